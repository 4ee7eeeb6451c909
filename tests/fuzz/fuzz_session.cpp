// Session files: any bytes as a header, as a trailer, and as a whole self-contained file in a folder that is
// verified. What was accepted is written back to the same bytes.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/digest.hpp"
#include "core/folder_check.hpp"
#include "core/limits.hpp"
#include "core/session_file.hpp"
#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/one_file_system.hpp"

namespace strata {
namespace {

constexpr size_t kHeaderFields = 80;

void header(std::span<const std::byte> bytes) {
  const auto read = decode_session_header(bytes);
  if (!read) return;
  const SessionHeaderBytes written = encode_session_header(*read);
  STRATA_CHECK(std::equal(written.begin(), written.end(), bytes.begin()));
}

void trailer(std::span<const std::byte> bytes) {
  const auto read = decode_session_trailer(bytes);
  if (!read) return;
  STRATA_CHECK(read->manifest_offset % limits::kAlignment == 0);
  STRATA_CHECK(read->manifest_length <= limits::kMaxManifestBytes);
  const SessionTrailerBytes written = encode_session_trailer(*read);
  STRATA_CHECK(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end()));
}

// The header's digest made right, so that its rules are reached.
void reseal(std::vector<std::byte>& bytes) {
  if (bytes.size() < kHeaderFields + sizeof(Digest)) return;
  const Digest digest = digest_bytes(std::span(bytes).first(kHeaderFields));
  std::memcpy(bytes.data() + kHeaderFields, &digest.low, 8);
  std::memcpy(bytes.data() + kHeaderFields + 8, &digest.high, 8);
}

void whole_file(const std::vector<std::byte>& bytes) {
  testing::OneFileSystem files("saved.sess", bytes);
  const auto listing = list_folder(files, "folder");
  STRATA_CHECK(listing && listing->conversations.size() + listing->leftovers.size() <= 1);
  const Verification found = verify_stored(files, "folder", "saved.sess", [](uint64_t) {});
  STRATA_CHECK(!found.gone);
  STRATA_CHECK(files.open_files() == 0);
}

}  // namespace
}  // namespace strata

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const auto* first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  header(bytes);
  trailer(std::span(bytes).last(std::min(bytes.size(), kSessionTrailerBytes)));
  whole_file(bytes);
  reseal(bytes);
  header(bytes);
  whole_file(bytes);
  return 0;
}
