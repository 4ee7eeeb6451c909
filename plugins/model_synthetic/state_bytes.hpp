// The bytes of the state, as a function of (token prefix, stage, layer, position) and nothing else; made and
// checked at the speed of memory. Pure functions, thread-safe.
//
// A prefix is a 64-bit hash chained over its tokens. A row is what one token leaves in one layer: words that
// are its key, made from the hash of the prefix that ends with the token and from the layer, combined with a
// fixed table. So a row in the wrong place, of another conversation or with a wrong byte is not equal to what
// it should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace strata::synthetic {

[[nodiscard]] constexpr uint64_t mixed(uint64_t value) {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93ULL;
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93ULL;
  return value ^ (value >> 32);
}

// Of the empty prefix, and of a prefix and one token behind it.
[[nodiscard]] constexpr uint64_t empty_prefix(uint64_t seed) { return mixed(seed + 0x9e3779b97f4a7c15ULL); }
[[nodiscard]] constexpr uint64_t longer_prefix(uint64_t prefix, int32_t token) {
  return mixed(prefix ^ (static_cast<uint64_t>(token) * 0x9e3779b97f4a7c15ULL + 1));
}

// Of a row: `place` is the layer, counted over all stages, or kCheckpointPlace + stage.
inline constexpr uint64_t kCheckpointPlace = uint64_t{1} << 32;
[[nodiscard]] constexpr uint64_t row_key(uint64_t prefix, uint64_t place) {
  return mixed(prefix + (place + 1) * 0x9e3779b97f4a7c15ULL);
}

// Sizes are multiples of 8 bytes; any alignment.
void fill_row(std::span<std::byte> row, uint64_t key);
[[nodiscard]] bool is_row(std::span<const std::byte> row, uint64_t key);

}  // namespace strata::synthetic
