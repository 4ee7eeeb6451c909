// Image: tokens, media marks, blocks and checkpoints of one conversation (design vocabulary:
// docs/architecture.md).
//
// A Part is one block or checkpoint: immutable bytes with up to two homes outside the device, a pinned RAM
// buffer and an extent in a conv-*.sess file. Images that grew from one another share parts by reference
// (B-2). Ownership: parts are shared; buffers are returned to their pool when the last reference goes.
// Thread-safety: everything here belongs to the engine loop; only buffers' bytes may be read by the writer
// thread, through references that a write job holds and that come back with its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/digest.hpp"
#include "core/token_span.hpp"
#include "core/types.hpp"

namespace strata {

// Page-aligned host memory from a PinnedPool. Bytes are written once, before the buffer is shared.
class HostBuffer {
 public:
  virtual ~HostBuffer() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() const = 0;  // whole capacity, a multiple of kAlignment
};
using HostBufferRef = std::shared_ptr<HostBuffer>;

// Where a part lies on disk. `file` names conv-<id>.sess.
struct Extent {
  ConversationId file;
  uint64_t offset = 0;
  uint64_t length = 0;  // payload bytes; the extent occupies length rounded up to kAlignment
  Digest digest;        // digest_part over the payload
  bool operator==(const Extent&) const = default;
};

struct Part {
  PartKind kind = PartKind::block;
  StageId stage = 0;
  uint32_t first = 0;  // block: first token; checkpoint: its position
  uint32_t count = 0;  // block: tokens; checkpoint: 0
  uint64_t bytes = 0;  // payload
  HostBufferRef ram;   // null when not in RAM
  std::optional<Extent> disk;

  [[nodiscard]] uint32_t end() const { return first + count; }
  [[nodiscard]] bool is_block() const { return kind == PartKind::block; }
};
using PartRef = std::shared_ptr<Part>;

// A stage without state at a position still contributes a part, so that an image is complete over all stages
// or does not exist (DISK-11): one zero byte, never imported.
inline constexpr uint64_t kEmptyCheckpointBytes = 1;

struct Image {
  ConversationId id;
  uint64_t generation = 0;  // grows with every publication of the same conversation
  std::vector<Token> tokens;
  std::vector<MediaMark> media;
  uint64_t salt = 0;           // separates tenants; part of the prefix chain
  std::vector<PartRef> parts;  // blocks by (stage, first), then checkpoints by (position, stage)
  uint64_t created_ns = 0;     // wall
  uint64_t last_used_ns = 0;   // wall
  std::string label;

  [[nodiscard]] TokenSpan span() const { return {tokens, media}; }
  [[nodiscard]] uint32_t length() const { return static_cast<uint32_t>(tokens.size()); }
};
using ImageRef = std::shared_ptr<Image>;

[[nodiscard]] constexpr uint64_t align_up(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace strata
