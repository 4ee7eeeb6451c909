#include "core/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "core/byte_codec.hpp"
#include "core/check.hpp"
#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/token_span.hpp"

namespace strata {

bool ManifestHead::operator==(const ManifestHead&) const = default;

namespace {

constexpr std::string_view kMagic = "STRAINDX";
constexpr size_t kFileBytes = 16;
constexpr size_t kMediaBytes = 16;
constexpr size_t kPartBytes = 48;
constexpr size_t kDigestBytes = 16;
constexpr size_t kPadding = 8;
constexpr uint32_t kKnownFlags = kManifestEphemeral;

template <class... Args>
Error corrupt(fmt::format_string<Args...> text, Args&&... args) {
  return make_error(ErrorCode::corrupt, "index: " + fmt::format(text, std::forward<Args>(args)...));
}

#define STRATA_RULE(condition, ...)                \
  do {                                             \
    if (!(condition)) return corrupt(__VA_ARGS__); \
  } while (false)

// Counts of the lists in the head that are not fields of ManifestHead.
struct ListCounts {
  uint32_t files = 0;
  uint32_t resume_positions = 0;
  uint32_t prefix_chain = 0;
  uint32_t identity_fields = 0;
  uint32_t label_bytes = 0;
};

uint64_t chunks(uint64_t tokens, uint64_t per_chunk) { return (tokens + per_chunk - 1) / per_chunk; }

uint64_t body_bytes(const ManifestHead& head) {
  const uint64_t content = uint64_t{head.token_count} * sizeof(Token) +
                           uint64_t{head.media_count} * kMediaBytes +
                           (uint64_t{head.block_count} + head.checkpoint_count) * kPartBytes;
  return align_up(content, kPadding) + kDigestBytes;
}

// The body is bound to its head, so that halves of two generations cannot pass as one manifest.
Digest body_digest(std::span<const std::byte> head, std::span<const std::byte> body) {
  DigestStream stream;
  stream.update(head.last(kDigestBytes));
  stream.update(body);
  return stream.finish();
}

// ---- writing

void write_fixed(ByteWriter& writer, const ManifestHead& head) {
  writer.text(kMagic);
  writer.u32(kManifestVersion);
  writer.u32(head.flags);
  writer.u64(head.head_bytes);
  writer.u64(head.total_bytes);
  writer.u64(head.id.value);
  writer.u64(head.generation);
  writer.digest(head.model_identity);
  writer.digest(head.configuration_identity);
  writer.u64(head.created_ns);
  writer.u64(head.last_used_ns);
  writer.u64(head.salt);
  writer.u64(head.payload_bytes);
  writer.u32(head.token_count);
  writer.u32(head.tokens_per_block);
  writer.u32(head.stage_count);
  writer.u32(head.media_count);
  writer.u32(static_cast<uint32_t>(head.files.size()));
  writer.u32(head.block_count);
  writer.u32(head.checkpoint_count);
  writer.u32(static_cast<uint32_t>(head.resume_positions.size()));
  writer.u32(static_cast<uint32_t>(head.prefix_chain.size()));
  writer.u32(static_cast<uint32_t>(head.identity_fields.size()));
  writer.u32(static_cast<uint32_t>(head.label.size()));
  writer.zeros_up_to(kManifestFixedBytes);
}

void write_lists(ByteWriter& writer, const ManifestHead& head) {
  for (const ManifestFile& file : head.files) {
    writer.u64(file.id.value);
    writer.u64(file.needed_length);
  }
  writer.array(std::span(head.prefix_chain));
  writer.array(std::span(head.resume_positions));
  for (const IdentityField& field : head.identity_fields) {
    writer.u32(static_cast<uint32_t>(field.name.size()));
    writer.u32(static_cast<uint32_t>(field.value.size()));
    writer.text(field.name);
    writer.text(field.value);
  }
  writer.text(head.label);
  writer.align(kPadding);
}

void write_part(ByteWriter& writer, const ManifestPart& part) {
  writer.u16(part.stage);
  writer.u16(part.file);
  writer.u32(part.first);
  writer.u32(part.kind == PartKind::block ? part.count : static_cast<uint32_t>(part.kind));
  writer.u32(0);
  writer.u64(part.offset);
  writer.u64(part.length);
  writer.digest(part.digest);
}

uint64_t head_bytes(const ManifestHead& head) {
  uint64_t bytes = kManifestFixedBytes + head.files.size() * kFileBytes +
                   head.prefix_chain.size() * sizeof(uint64_t) +
                   head.resume_positions.size() * sizeof(uint32_t) + head.label.size();
  for (const IdentityField& field : head.identity_fields) bytes += 8 + field.name.size() + field.value.size();
  return align_up(bytes, kPadding) + kDigestBytes;
}

// ---- reading the head

ListCounts read_fixed(ByteReader& reader, ManifestHead& head) {
  ListCounts counts;
  (void)reader.text(kMagic.size());
  (void)reader.u32();  // the version; peek_manifest has checked it
  head.flags = reader.u32();
  head.head_bytes = reader.u64();
  head.total_bytes = reader.u64();
  head.id.value = reader.u64();
  head.generation = reader.u64();
  head.model_identity = reader.digest();
  head.configuration_identity = reader.digest();
  head.created_ns = reader.u64();
  head.last_used_ns = reader.u64();
  head.salt = reader.u64();
  head.payload_bytes = reader.u64();
  head.token_count = reader.u32();
  head.tokens_per_block = reader.u32();
  head.stage_count = reader.u32();
  head.media_count = reader.u32();
  counts.files = reader.u32();
  head.block_count = reader.u32();
  head.checkpoint_count = reader.u32();
  counts.resume_positions = reader.u32();
  counts.prefix_chain = reader.u32();
  counts.identity_fields = reader.u32();
  counts.label_bytes = reader.u32();
  return counts;
}

Status check_fixed(const ManifestHead& head, const ListCounts& counts) {
  if ((head.flags & ~kKnownFlags) != 0)
    return make_error(ErrorCode::unsupported, fmt::format("index: unknown flags {:#x}", head.flags));
  STRATA_RULE(head.id, "conversation id 0");
  STRATA_RULE(head.token_count >= 1 && head.token_count <= limits::kMaxTokens, "token count {}",
              head.token_count);
  STRATA_RULE(head.stage_count >= 1 && head.stage_count <= limits::kMaxStages, "stage count {}",
              head.stage_count);
  STRATA_RULE(head.tokens_per_block <= limits::kMaxTokens, "tokens per block {}", head.tokens_per_block);
  STRATA_RULE(head.media_count <= limits::kMaxMediaMarks, "media count {}", head.media_count);
  STRATA_RULE(counts.files >= 1 && counts.files <= limits::kMaxFilesPerImage, "file count {}", counts.files);
  STRATA_RULE(head.checkpoint_count <= limits::kMaxCheckpointsPerImage, "checkpoint count {}",
              head.checkpoint_count);
  STRATA_RULE(counts.identity_fields <= limits::kMaxIdentityFields, "identity field count {}",
              counts.identity_fields);
  STRATA_RULE(counts.label_bytes <= limits::kMaxLabelBytes, "label length {}", counts.label_bytes);
  STRATA_RULE(head.payload_bytes <= limits::kMaxSessionBytes, "payload of {} bytes", head.payload_bytes);
  return {};
}

Status check_counts(const ManifestHead& head, const ListCounts& counts) {
  const uint64_t links = chunks(head.token_count, limits::kPrefixChunkTokens);
  STRATA_RULE(counts.prefix_chain == links, "prefix chain of {} links, {} expected", counts.prefix_chain,
              links);
  if (head.block_count != 0) {
    STRATA_RULE(head.tokens_per_block != 0, "blocks of 0 tokens");
    const uint64_t blocks = head.stage_count * chunks(head.token_count, head.tokens_per_block);
    STRATA_RULE(head.block_count == blocks, "{} blocks, {} expected", head.block_count, blocks);
  } else {
    STRATA_RULE(head.checkpoint_count != 0, "neither blocks nor a live state");
  }
  const uint64_t checkpoints = uint64_t{head.stage_count} * counts.resume_positions;
  STRATA_RULE(head.checkpoint_count == checkpoints, "{} checkpoints, {} expected for {} positions",
              head.checkpoint_count, checkpoints, counts.resume_positions);
  STRATA_RULE(head.total_bytes == head.head_bytes + body_bytes(head),
              "length {} does not follow from its counts", head.total_bytes);
  return {};
}

Status read_files(ByteReader& reader, uint32_t count, ManifestHead& head) {
  STRATA_RULE(uint64_t{count} * kFileBytes <= reader.remaining(), "{} files do not fit the head", count);
  head.files.reserve(count);
  std::unordered_set<ConversationId> seen;
  for (uint32_t i = 0; i < count; ++i) {
    ManifestFile file;
    file.id.value = reader.u64();
    file.needed_length = reader.u64();
    STRATA_RULE(file.id, "file {} has conversation id 0", i);
    STRATA_RULE(seen.insert(file.id).second, "file {} is listed twice", to_hex(file.id));
    const bool unused_own = i == 0 && file.needed_length == 0;
    STRATA_RULE(unused_own || (file.needed_length >= limits::kSessionHeaderBytes &&
                               file.needed_length <= limits::kMaxSessionBytes),
                "file {} needs {} bytes", to_hex(file.id), file.needed_length);
    head.files.push_back(file);
  }
  STRATA_RULE(head.files.front().id == head.id, "file 0 is not the conversation's own");
  return {};
}

Status read_positions(ByteReader& reader, uint32_t count, ManifestHead& head) {
  STRATA_RULE(uint64_t{count} * sizeof(uint32_t) <= reader.remaining(), "{} resume positions do not fit",
              count);
  head.resume_positions.resize(count);
  reader.array(std::span(head.resume_positions));
  uint32_t previous = 0;
  for (const uint32_t position : head.resume_positions) {
    STRATA_RULE(position > previous && position <= head.token_count,
                "resume position {} after {} of {} tokens", position, previous, head.token_count);
    previous = position;
  }
  STRATA_RULE(head.block_count != 0 || previous == head.token_count, "no blocks and no state at the end");
  return {};
}

Status read_identity_fields(ByteReader& reader, uint32_t count, ManifestHead& head) {
  STRATA_RULE(uint64_t{count} * 8 <= reader.remaining(), "{} identity fields do not fit", count);
  head.identity_fields.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t name_bytes = reader.u32();
    const uint32_t value_bytes = reader.u32();
    STRATA_RULE(name_bytes >= 1 && name_bytes <= limits::kMaxIdentityTextBytes &&
                    value_bytes <= limits::kMaxIdentityTextBytes &&
                    uint64_t{name_bytes} + value_bytes <= reader.remaining(),
                "identity field {} of {} + {} bytes", i, name_bytes, value_bytes);
    const std::string_view name = reader.text(name_bytes);
    head.identity_fields.push_back({std::string(name), std::string(reader.text(value_bytes))});
  }
  return {};
}

Status read_lists(ByteReader& reader, const ListCounts& counts, ManifestHead& head) {
  STRATA_TRY(read_files(reader, counts.files, head));
  STRATA_RULE(uint64_t{counts.prefix_chain} * sizeof(uint64_t) <= reader.remaining(),
              "prefix chain does not fit");
  head.prefix_chain.resize(counts.prefix_chain);
  reader.array(std::span(head.prefix_chain));
  STRATA_TRY(read_positions(reader, counts.resume_positions, head));
  STRATA_TRY(read_identity_fields(reader, counts.identity_fields, head));
  STRATA_RULE(counts.label_bytes <= reader.remaining(), "label does not fit the head");
  head.label = std::string(reader.text(counts.label_bytes));
  STRATA_RULE(reader.align(kPadding), "padding of the head");
  STRATA_RULE(reader.ok() && reader.remaining() == kDigestBytes,
              "head length does not follow from its counts");
  return {};
}

// ---- reading the body

Status read_tokens(ByteReader& reader, Manifest& manifest) {
  manifest.tokens.resize(manifest.head.token_count);
  reader.array(std::span(manifest.tokens));
  STRATA_RULE(std::all_of(manifest.tokens.begin(), manifest.tokens.end(), [](Token t) { return t >= 0; }),
              "negative token");
  return {};
}

Status read_media(ByteReader& reader, Manifest& manifest) {
  manifest.media.reserve(manifest.head.media_count);
  for (uint32_t i = 0; i < manifest.head.media_count; ++i) {
    const uint64_t start = reader.u64();
    const uint64_t digest = reader.u64();
    STRATA_RULE(start < manifest.head.token_count, "media mark at {} of {} tokens", start,
                manifest.head.token_count);
    STRATA_RULE(manifest.media.empty() || start > manifest.media.back().start, "media marks out of order");
    manifest.media.push_back({static_cast<uint32_t>(start), digest});
  }
  return {};
}

// The field at offset 8 of a part: tokens of a block, kind of a checkpoint.
Status read_part(ByteReader& reader, const ManifestHead& head, ManifestPart& part, uint32_t& count_or_kind) {
  part.stage = reader.u16();
  part.file = reader.u16();
  part.first = reader.u32();
  count_or_kind = reader.u32();
  const uint32_t reserved = reader.u32();
  part.offset = reader.u64();
  part.length = reader.u64();
  part.digest = reader.digest();
  STRATA_RULE(reserved == 0, "reserved field of a part is {}", reserved);
  STRATA_RULE(part.file < head.files.size(), "part in file {} of {}", part.file, head.files.size());
  STRATA_RULE(part.offset % limits::kAlignment == 0 && part.offset >= limits::kSessionHeaderBytes,
              "part at offset {}", part.offset);
  const uint64_t needed = head.files[part.file].needed_length;
  STRATA_RULE(part.offset <= needed && part.length <= needed - part.offset,
              "part at {} of {} bytes reaches past the {} bytes of its file", part.offset, part.length,
              needed);
  return {};
}

Status read_blocks(ByteReader& reader, Manifest& manifest) {
  const ManifestHead& head = manifest.head;
  const auto per_stage = static_cast<uint32_t>(head.block_count / head.stage_count);
  for (uint32_t i = 0; i < head.block_count; ++i) {
    ManifestPart part;
    STRATA_TRY(read_part(reader, head, part, part.count));
    const uint32_t first = i % per_stage * head.tokens_per_block;
    const uint32_t count = std::min(head.tokens_per_block, head.token_count - first);
    STRATA_RULE(part.stage == i / per_stage && part.first == first && part.count == count,
                "block {} is stage {} tokens {}+{}, expected stage {} tokens {}+{}", i, part.stage,
                part.first, part.count, i / per_stage, first, count);
    STRATA_RULE(part.length >= 1 && part.length <= limits::kMaxPartBytes, "block of {} bytes", part.length);
    manifest.parts.push_back(part);
  }
  return {};
}

Status read_checkpoints(ByteReader& reader, Manifest& manifest) {
  const ManifestHead& head = manifest.head;
  for (uint32_t i = 0; i < head.checkpoint_count; ++i) {
    ManifestPart part;
    uint32_t kind = 0;
    STRATA_TRY(read_part(reader, head, part, kind));
    const uint32_t position = head.resume_positions[i / head.stage_count];
    STRATA_RULE(part.stage == i % head.stage_count && part.first == position,
                "checkpoint {} is stage {} position {}, expected stage {} position {}", i, part.stage,
                part.first, i % head.stage_count, position);
    STRATA_RULE(
        kind == static_cast<uint32_t>(PartKind::live) || kind == static_cast<uint32_t>(PartKind::checkpoint),
        "checkpoint of kind {}", kind);
    part.kind = static_cast<PartKind>(kind);
    STRATA_RULE(part.kind != PartKind::live || position == head.token_count, "live state at {} of {} tokens",
                position, head.token_count);
    STRATA_RULE(part.stage == 0 || part.kind == manifest.parts.back().kind,
                "stages disagree about the kind at position {}", position);
    STRATA_RULE(part.length <= limits::kMaxCheckpointBytes, "checkpoint of {} bytes", part.length);
    manifest.parts.push_back(part);
  }
  STRATA_RULE(head.block_count != 0 || manifest.parts.back().kind == PartKind::live,
              "no blocks and no live state");
  return {};
}

Status check_extents(const Manifest& manifest) {
  std::vector<const ManifestPart*> by_place;
  by_place.reserve(manifest.parts.size());
  uint64_t payload_bytes = 0;
  for (const ManifestPart& part : manifest.parts) {
    payload_bytes += part.length;
    if (part.length != 0) by_place.push_back(&part);
  }
  STRATA_RULE(payload_bytes == manifest.head.payload_bytes, "parts hold {} bytes, the head says {}",
              payload_bytes, manifest.head.payload_bytes);
  std::sort(by_place.begin(), by_place.end(), [](const ManifestPart* a, const ManifestPart* b) {
    return a->file != b->file ? a->file < b->file : a->offset < b->offset;
  });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const ManifestPart& before = *by_place[i - 1];
    const uint64_t end = before.offset + align_up(before.length, limits::kAlignment);
    STRATA_RULE(before.file != by_place[i]->file || end <= by_place[i]->offset, "parts overlap at offset {}",
                by_place[i]->offset);
  }
  return {};
}

Status read_body(std::span<const std::byte> body, Manifest& manifest) {
  ByteReader reader(body);
  STRATA_TRY(read_tokens(reader, manifest));
  STRATA_TRY(read_media(reader, manifest));
  manifest.parts.reserve(manifest.head.block_count + manifest.head.checkpoint_count);
  STRATA_TRY(read_blocks(reader, manifest));
  STRATA_TRY(read_checkpoints(reader, manifest));
  STRATA_RULE(reader.align(kPadding) && reader.remaining() == 0, "padding of the body");
  STRATA_TRY(check_extents(manifest));
  STRATA_RULE(
      prefix_chain({manifest.tokens, manifest.media}, manifest.head.salt) == manifest.head.prefix_chain,
      "prefix chain does not match the tokens");
  return {};
}

bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

uint64_t last_use_ns(const ManifestHead& head, int64_t modified_ns) {
  return std::max(head.last_used_ns, static_cast<uint64_t>(std::max<int64_t>(modified_ns, 0)));
}

void complete_head(Manifest& manifest) {
  ManifestHead& head = manifest.head;
  head.token_count = static_cast<uint32_t>(manifest.tokens.size());
  head.media_count = static_cast<uint32_t>(manifest.media.size());
  head.block_count = 0;
  head.payload_bytes = 0;
  head.resume_positions.clear();
  for (const ManifestPart& part : manifest.parts) {
    head.payload_bytes += part.length;
    if (part.kind == PartKind::block)
      ++head.block_count;
    else if (head.resume_positions.empty() || head.resume_positions.back() != part.first)
      head.resume_positions.push_back(part.first);
  }
  head.checkpoint_count = static_cast<uint32_t>(manifest.parts.size()) - head.block_count;
  head.prefix_chain = prefix_chain({manifest.tokens, manifest.media}, head.salt);
  head.head_bytes = head_bytes(head);
  head.total_bytes = head.head_bytes + body_bytes(head);
}

std::vector<std::byte> encode_manifest(const Manifest& manifest) {
  Manifest whole = manifest;
  complete_head(whole);
  ByteWriter writer(whole.head.total_bytes);
  write_fixed(writer, whole.head);
  write_lists(writer, whole.head);
  writer.digest(digest_bytes(writer.bytes()));
  STRATA_CHECK(writer.size() == whole.head.head_bytes);
  writer.array(std::span<const Token>(whole.tokens));
  for (const MediaMark& mark : whole.media) {
    writer.u64(mark.start);
    writer.u64(mark.digest);
  }
  for (const ManifestPart& part : whole.parts) write_part(writer, part);
  writer.align(kPadding);
  const auto bytes = writer.bytes();
  const auto head = bytes.first(whole.head.head_bytes);
  writer.digest(body_digest(head, bytes.subspan(head.size())));
  STRATA_CHECK(writer.size() == whole.head.total_bytes);
  return writer.take();
}

Result<ManifestSizes> peek_manifest(std::span<const std::byte> fixed_part) {
  const bool ours =
      fixed_part.size() >= kMagic.size() && std::memcmp(fixed_part.data(), kMagic.data(), kMagic.size()) == 0;
  if (!ours) return make_error(ErrorCode::invalid, "index: not a Strata index");
  STRATA_RULE(fixed_part.size() >= kManifestFixedBytes, "shorter than its fixed part");
  ByteReader reader(fixed_part);
  (void)reader.text(kMagic.size());
  const uint32_t version = reader.u32();
  if (version != kManifestVersion)
    return make_error(ErrorCode::unsupported, fmt::format("index: unknown version {}", version));
  (void)reader.u32();
  ManifestSizes sizes;
  sizes.head_bytes = reader.u64();
  sizes.total_bytes = reader.u64();
  STRATA_RULE(sizes.head_bytes >= kManifestFixedBytes + kDigestBytes &&
                  sizes.head_bytes <= limits::kMaxIndexHeadBytes && sizes.head_bytes % kPadding == 0,
              "head of {} bytes", sizes.head_bytes);
  STRATA_RULE(sizes.total_bytes > sizes.head_bytes && sizes.total_bytes <= limits::kMaxManifestBytes,
              "{} bytes in all", sizes.total_bytes);
  return sizes;
}

Result<ManifestHead> decode_manifest_head(std::span<const std::byte> bytes) {
  STRATA_ASSIGN(const ManifestSizes sizes, peek_manifest(bytes));
  STRATA_RULE(bytes.size() == sizes.head_bytes, "head is {} bytes long, not {}", bytes.size(),
              sizes.head_bytes);
  const auto content = bytes.first(bytes.size() - kDigestBytes);
  ByteReader digest_reader(bytes.last(kDigestBytes));
  STRATA_RULE(digest_reader.digest() == digest_bytes(content), "head does not match its digest");
  ByteReader reader(bytes);
  ManifestHead head;
  const ListCounts counts = read_fixed(reader, head);
  STRATA_RULE(reader.zeros(kManifestFixedBytes - reader.position()), "reserved bytes of the head");
  STRATA_TRY(check_fixed(head, counts));
  STRATA_TRY(check_counts(head, counts));
  STRATA_TRY(read_lists(reader, counts, head));
  return head;
}

Result<Manifest> decode_manifest(std::span<const std::byte> bytes, const ManifestLimits& limits) {
  STRATA_ASSIGN(const ManifestSizes sizes, peek_manifest(bytes));
  STRATA_RULE(bytes.size() == sizes.total_bytes, "{} bytes long, not {}", bytes.size(), sizes.total_bytes);
  const auto head_part = bytes.first(sizes.head_bytes);
  Manifest manifest;
  STRATA_ASSIGN(manifest.head, decode_manifest_head(head_part));
  STRATA_RULE(manifest.head.payload_bytes <= limits.max_payload_bytes, "payload of {} bytes, {} allowed",
              manifest.head.payload_bytes, limits.max_payload_bytes);
  const auto body = bytes.subspan(sizes.head_bytes, bytes.size() - sizes.head_bytes - kDigestBytes);
  ByteReader digest_reader(bytes.last(kDigestBytes));
  STRATA_RULE(digest_reader.digest() == body_digest(head_part, body), "body does not match its digest");
  STRATA_TRY(read_body(body, manifest));
  return manifest;
}

std::string index_file_name(ConversationId id) { return "conv-" + to_hex(id) + ".idx"; }
std::string session_file_name(ConversationId id) { return "conv-" + to_hex(id) + ".sess"; }

Result<ConversationId> parse_conversation_file_name(std::string_view name, std::string_view extension) {
  constexpr std::string_view kPrefix = "conv-";
  constexpr size_t kDigits = 16;
  if (extension.starts_with('.')) extension.remove_prefix(1);
  const Error refusal =
      make_error(ErrorCode::invalid, fmt::format("{}: not a conversation's file name", name));
  if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kDigits + 1 + extension.size())
    return refusal;
  const std::string_view digits = name.substr(kPrefix.size(), kDigits);
  if (name.substr(kPrefix.size() + kDigits, 1) != "." || !name.ends_with(extension)) return refusal;
  if (!std::all_of(digits.begin(), digits.end(), is_lower_hex)) return refusal;
  ConversationId id;
  std::from_chars(digits.data(), digits.data() + digits.size(), id.value, 16);
  if (!id) return refusal;
  return id;
}

}  // namespace strata
