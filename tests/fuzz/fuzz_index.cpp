// Index: any bytes yield a manifest or an error; what was accepted keeps every rule that users of it rely on,
// and is written back to the same bytes. A fuzzer cannot guess digests, so each input is also tried with its
// digests made right.
#include <algorithm>
#include <cstring>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace strata {
namespace {

constexpr size_t kDigestBytes = 16;

void put_digest(std::vector<std::byte>& bytes, size_t at, const Digest& digest) {
  std::memcpy(bytes.data() + at, &digest.low, 8);
  std::memcpy(bytes.data() + at + 8, &digest.high, 8);
}

// Both digests as the format wants them, and the total length that of the input, where the head length allows
// it.
void reseal(std::vector<std::byte>& bytes) {
  if (bytes.size() < kManifestFixedBytes + 2 * kDigestBytes) return;
  uint64_t head = 0;
  std::memcpy(&head, bytes.data() + 16, sizeof head);
  if (head < kManifestFixedBytes + kDigestBytes || head > bytes.size() - kDigestBytes) return;
  const uint64_t total = bytes.size();
  std::memcpy(bytes.data() + 24, &total, sizeof total);
  const std::span<const std::byte> all(bytes);
  put_digest(bytes, head - kDigestBytes, digest_bytes(all.first(head - kDigestBytes)));
  DigestStream body;
  body.update(all.subspan(head - kDigestBytes, kDigestBytes));
  body.update(all.subspan(head, all.size() - head - kDigestBytes));
  put_digest(bytes, bytes.size() - kDigestBytes, body.finish());
}

void check_accepted(const Manifest& manifest, std::span<const std::byte> bytes) {
  const ManifestHead& head = manifest.head;
  STRATA_CHECK(manifest.tokens.size() == head.token_count && head.token_count <= limits::kMaxTokens);
  STRATA_CHECK(manifest.media.size() == head.media_count);
  STRATA_CHECK(manifest.parts.size() == size_t{head.block_count} + head.checkpoint_count);
  uint64_t payload_bytes = 0;
  for (const ManifestPart& part : manifest.parts) {
    STRATA_CHECK(part.file < head.files.size() && part.stage < head.stage_count);
    STRATA_CHECK(part.offset % limits::kAlignment == 0 && part.offset >= limits::kSessionHeaderBytes);
    STRATA_CHECK(part.offset + part.length <= head.files[part.file].needed_length);
    STRATA_CHECK(part.first + part.count <= head.token_count);
    payload_bytes += part.length;
  }
  STRATA_CHECK(payload_bytes == head.payload_bytes);
  const std::vector<std::byte> written = encode_manifest(manifest);
  STRATA_CHECK(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end()));
}

void decode(std::span<const std::byte> bytes) {
  const auto sizes = peek_manifest(bytes.first(std::min(bytes.size(), kManifestFixedBytes)));
  const auto whole = decode_manifest(bytes, ManifestLimits{});
  if (sizes && sizes->head_bytes <= bytes.size()) {
    const auto head = decode_manifest_head(bytes.first(sizes->head_bytes));
    STRATA_CHECK(!whole || (head && *head == whole->head));
  }
  STRATA_CHECK(sizes || !whole);
  if (whole) check_accepted(*whole, bytes);
}

}  // namespace
}  // namespace strata

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  strata::decode(bytes);
  strata::reseal(bytes);
  strata::decode(bytes);
  return 0;
}
