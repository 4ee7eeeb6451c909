// XXH3 digests, seeded with where the bytes belong, so that intact bytes in the wrong place are found.
// They detect corruption; they do not authenticate. Thread-safe: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.hpp"

namespace strata {

enum class PartKind : uint8_t { block = 0, live = 1, checkpoint = 2 };
[[nodiscard]] const char* to_string(PartKind kind);

// What a part's digest is bound to (a live state and a checkpoint at the same position are the same). `first`
// is the first token of a block or the position of a checkpoint.
struct PartPlace {
  ConversationId file;
  StageId stage = 0;
  uint32_t first = 0;
  PartKind kind = PartKind::block;
};

[[nodiscard]] Digest digest_bytes(std::span<const std::byte> bytes);  // XXH3-128, seed 0
[[nodiscard]] Digest digest_part(const PartPlace& place,
                                 std::span<const std::byte> bytes);                  // XXH3-128, seeded
[[nodiscard]] uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed);  // XXH3-64

// digest_bytes, or digest_part of a place, of bytes handed over in pieces.
class DigestStream {
 public:
  DigestStream();
  explicit DigestStream(const PartPlace& place);
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] Digest finish() const;

 private:
  explicit DigestStream(uint64_t seed);
  void* state_;
};

}  // namespace strata
