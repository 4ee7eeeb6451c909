// A conversation's tokens with its media marks, and the rule by which two of them share a prefix (RAM-3).
// Images in a prompt take part through a 64-bit content digest at the position of their first token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.hpp"

namespace strata {

struct MediaMark {
  uint32_t start = 0;  // position of the first token that stands for the medium
  uint64_t digest = 0;
  auto operator<=>(const MediaMark&) const = default;
};

// A view; the owner of the tokens must outlive it. `media` is sorted by start.
struct TokenSpan {
  std::span<const Token> tokens;
  std::span<const MediaMark> media;
};

// Number of leading tokens that are equal one by one, with equal media marks.
[[nodiscard]] uint32_t common_prefix(TokenSpan a, TokenSpan b);

// Chained XXH3-64, one value per kPrefixChunkTokens tokens, and one for the remainder if there is one.
// chain[i] covers all tokens and media marks before min((i+1)·256, n). `salt` separates tenants. A hint,
// never proof.
[[nodiscard]] std::vector<uint64_t> prefix_chain(TokenSpan span, uint64_t salt);
// The same for the remainder alone: hash of tokens [from, to) chained on `previous` (or the salt's start when
// from = 0).
[[nodiscard]] uint64_t prefix_link(TokenSpan span, uint32_t from, uint32_t to, uint64_t previous);
[[nodiscard]] uint64_t prefix_start(uint64_t salt);

}  // namespace strata
