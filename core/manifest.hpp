// Manifest: the published description of one conversation on disk, the content of conv-<id>.idx and the end
// of a self-contained session file. Byte tables: docs/session-format.md. A reader refuses everything that
// breaks a rule listed there, before it allocates anything of the size a count claims. Pure functions,
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/identity.hpp"
#include "core/image.hpp"
#include "core/result.hpp"

namespace strata {

inline constexpr uint32_t kManifestVersion = 1;
inline constexpr size_t kManifestFixedBytes = 192;  // enough to know head length and total length

enum ManifestFlags : uint32_t {
  kManifestEphemeral =
      1u << 0,  // bound to one run (no --conversation-disk-persist); removed by the next start
};

struct ManifestFile {
  ConversationId id;
  uint64_t needed_length =
      0;  // the file must be at least this long; 0 (own file only): nothing lies in it, it may be missing
  bool operator==(const ManifestFile&) const = default;
};

// One block or checkpoint as stored. `file` indexes ManifestHead::files.
struct ManifestPart {
  PartKind kind = PartKind::block;
  StageId stage = 0;
  uint16_t file = 0;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  Digest digest;
  bool operator==(const ManifestPart&) const = default;
};

// What intake reads.
struct ManifestHead {
  uint32_t flags = 0;
  uint64_t head_bytes = 0;   // filled by the codec
  uint64_t total_bytes = 0;  // filled by the codec
  ConversationId id;
  uint64_t generation = 0;
  Digest model_identity;
  Digest configuration_identity;
  uint64_t created_ns = 0;
  uint64_t last_used_ns = 0;
  uint64_t salt = 0;
  uint32_t token_count = 0;
  uint32_t tokens_per_block = 0;
  uint32_t stage_count = 0;
  uint32_t media_count = 0;
  uint32_t block_count = 0;
  uint32_t checkpoint_count = 0;           // checkpoints and live states, over all stages
  uint64_t payload_bytes = 0;              // sum of the parts' lengths
  std::vector<ManifestFile> files;         // file 0 is the own one
  std::vector<uint64_t> prefix_chain;      // token_span.hpp
  std::vector<uint32_t> resume_positions;  // positions with a complete checkpoint or live state, ascending
  std::vector<IdentityField> identity_fields;  // so that a refusal names the field that differs
  std::string label;
  bool operator==(const ManifestHead&) const;
};

struct Manifest {
  ManifestHead head;
  std::vector<Token> tokens;
  std::vector<MediaMark> media;
  std::vector<ManifestPart> parts;  // blocks by (stage, first), then checkpoints by (position, stage)
};

// What the reader's model allows; counts and sizes above are refused.
struct ManifestLimits {
  uint64_t max_payload_bytes = uint64_t{1} << 42;
};

// Fills what follows from the rest: the counts, payload_bytes, prefix_chain, resume_positions, head_bytes,
// total_bytes.
void complete_head(Manifest& manifest);
// Writes the manifest as complete_head would leave it; the caller's derived fields are not looked at.
[[nodiscard]] std::vector<std::byte> encode_manifest(const Manifest& manifest);

// When a stored conversation was used last. The index carries the time up to its publication; a later use is
// the time of its file (FileInfo::modified_ns), which a publication sets to the same.
[[nodiscard]] uint64_t last_use_ns(const ManifestHead& head, int64_t modified_ns);

// From the first kManifestFixedBytes: magic, version and plausible lengths. Errors: invalid (not our magic:
// foreign), unsupported (version), corrupt.
struct ManifestSizes {
  uint64_t head_bytes = 0;
  uint64_t total_bytes = 0;
};
Result<ManifestSizes> peek_manifest(std::span<const std::byte> fixed_part);
// `head` is exactly head_bytes long. Checks its digest and every rule that concerns the head.
Result<ManifestHead> decode_manifest_head(std::span<const std::byte> head);
// The whole manifest, exactly total_bytes long. Checks everything, including the body against the head
// (counts, chain, resume positions, file indices, coverage, overlap).
Result<Manifest> decode_manifest(std::span<const std::byte> bytes, const ManifestLimits& limits);

[[nodiscard]] std::string index_file_name(ConversationId id);    // conv-<16 hex>.idx
[[nodiscard]] std::string session_file_name(ConversationId id);  // conv-<16 hex>.sess
// Parses either name, extension "idx" or "sess"; invalid when it is not exactly of that form.
Result<ConversationId> parse_conversation_file_name(std::string_view name, std::string_view extension);

}  // namespace strata
