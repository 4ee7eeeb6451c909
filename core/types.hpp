// The small types every layer shares. Units are in the names: *_bytes, *_ns, *_tokens.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace strata {

using Token = int32_t;
using SlotId = int32_t;    // index of a slot, 0 … slots−1
using StageId = uint16_t;  // one device's share of a model split by layers

inline constexpr SlotId kNoSlot = -1;

// Random, never 0. Names the conversation's files: conv-<16 hex>.sess / .idx.
struct ConversationId {
  uint64_t value = 0;
  auto operator<=>(const ConversationId&) const = default;
  [[nodiscard]] explicit operator bool() const { return value != 0; }
};

[[nodiscard]] std::string to_hex(ConversationId id);  // 16 lower-case digits

// 128 bits, stored little-endian low word first.
struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const Digest&) const = default;
};

[[nodiscard]] std::string to_hex(const Digest& digest);  // 32 lower-case digits, high word first

// Where a conversation's bytes came from, cheapest first.
enum class Tier : uint8_t { vram, ram, disk, none };
[[nodiscard]] const char* to_string(Tier tier);

}  // namespace strata

template <>
struct std::hash<strata::ConversationId> {
  size_t operator()(const strata::ConversationId& id) const noexcept { return id.value; }
};
