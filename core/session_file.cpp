#include "core/session_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/byte_codec.hpp"
#include "core/digest.hpp"

namespace strata {

namespace {
constexpr std::string_view kHeaderMagic = "STRASESS";
constexpr std::string_view kIndexMagic = "STRAINDX";
constexpr std::string_view kTrailerMagic = "STRAEND\x01";
constexpr size_t kHeaderDigestAt = 80;
constexpr uint32_t kKnownFlags = kSessionSelfContained | kSessionEncrypted | kSessionEphemeral;

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

template <size_t N>
std::array<std::byte, N> padded(const ByteWriter& writer) {
  std::array<std::byte, N> bytes{};
  std::copy(writer.bytes().begin(), writer.bytes().end(), bytes.begin());
  return bytes;
}

Error corrupt(std::string message) { return make_error(ErrorCode::corrupt, std::move(message)); }
}  // namespace

SessionHeaderBytes encode_session_header(const SessionHeader& header) {
  ByteWriter writer(kHeaderDigestAt + sizeof(Digest));
  writer.text(kHeaderMagic);
  writer.u32(kSessionVersion);
  writer.u32(static_cast<uint32_t>(limits::kSessionHeaderBytes));
  writer.u32(header.flags);
  writer.u32(header.stage_count);
  writer.u64(header.id.value);
  writer.u64(header.created_ns);
  writer.digest(header.model_identity);
  writer.digest(header.configuration_identity);
  writer.u32(header.tokens_per_block);
  writer.u32(header.alignment);
  writer.digest(digest_bytes(writer.bytes()));
  return padded<limits::kSessionHeaderBytes>(writer);
}

Result<SessionHeader> decode_session_header(std::span<const std::byte> bytes) {
  if (!starts_with(bytes, kHeaderMagic))
    return make_error(ErrorCode::invalid, "session file: not a Strata session file");
  if (bytes.size() < limits::kSessionHeaderBytes) return corrupt("session file: shorter than its header");
  ByteReader reader(bytes.first(limits::kSessionHeaderBytes));
  (void)reader.text(kHeaderMagic.size());
  const uint32_t version = reader.u32();
  if (version != kSessionVersion)
    return make_error(ErrorCode::unsupported, fmt::format("session file: unknown version {}", version));
  const uint32_t header_bytes = reader.u32();
  SessionHeader header;
  header.flags = reader.u32();
  header.stage_count = reader.u32();
  header.id.value = reader.u64();
  header.created_ns = reader.u64();
  header.model_identity = reader.digest();
  header.configuration_identity = reader.digest();
  header.tokens_per_block = reader.u32();
  header.alignment = reader.u32();
  if (reader.digest() != digest_bytes(bytes.first(kHeaderDigestAt)))
    return corrupt("session file: header does not match its digest");
  if (!reader.zeros(reader.remaining())) return corrupt("session file: bytes after the header's fields");
  if (header_bytes != limits::kSessionHeaderBytes)
    return corrupt(fmt::format("session file: header size {}", header_bytes));
  if ((header.flags & ~kKnownFlags) != 0)
    return make_error(ErrorCode::unsupported, fmt::format("session file: unknown flags {:#x}", header.flags));
  if (header.alignment != limits::kAlignment)
    return make_error(ErrorCode::unsupported, fmt::format("session file: alignment {}", header.alignment));
  if (!header.id) return corrupt("session file: conversation id 0");
  if (header.stage_count == 0 || header.stage_count > limits::kMaxStages)
    return corrupt(fmt::format("session file: stage count {}", header.stage_count));
  if (header.tokens_per_block > limits::kMaxTokens)
    return corrupt(fmt::format("session file: tokens per block {}", header.tokens_per_block));
  return header;
}

SessionTrailerBytes encode_session_trailer(const SessionTrailer& trailer) {
  ByteWriter writer(kSessionTrailerBytes);
  writer.u64(trailer.manifest_offset);
  writer.u64(trailer.manifest_length);
  writer.digest(trailer.manifest_digest);
  writer.text(kTrailerMagic);
  return padded<kSessionTrailerBytes>(writer);
}

Result<SessionTrailer> decode_session_trailer(std::span<const std::byte> bytes) {
  if (bytes.size() != kSessionTrailerBytes) return corrupt("session file: trailer is cut");
  ByteReader reader(bytes);
  SessionTrailer trailer;
  trailer.manifest_offset = reader.u64();
  trailer.manifest_length = reader.u64();
  trailer.manifest_digest = reader.digest();
  if (reader.text(kTrailerMagic.size()) != kTrailerMagic)
    return make_error(ErrorCode::invalid, "session file: no trailer, not self-contained");
  if (!reader.zeros(reader.remaining())) return corrupt("session file: bytes after the trailer's fields");
  if (trailer.manifest_offset < limits::kSessionHeaderBytes ||
      trailer.manifest_offset % limits::kAlignment != 0 || trailer.manifest_offset > limits::kMaxSessionBytes)
    return corrupt(fmt::format("session file: manifest offset {}", trailer.manifest_offset));
  if (trailer.manifest_length == 0 || trailer.manifest_length > limits::kMaxManifestBytes)
    return corrupt(fmt::format("session file: manifest length {}", trailer.manifest_length));
  return trailer;
}

bool has_strata_magic(std::span<const std::byte> first_bytes) {
  return starts_with(first_bytes, kHeaderMagic) || starts_with(first_bytes, kIndexMagic);
}

}  // namespace strata
