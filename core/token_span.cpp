#include "core/token_span.hpp"

#include <algorithm>
#include <bit>

#include "core/check.hpp"
#include "core/digest.hpp"
#include "core/limits.hpp"

namespace strata {

static_assert(std::endian::native == std::endian::little, "tokens are hashed as they lie in memory");

namespace {
uint32_t common_tokens(std::span<const Token> a, std::span<const Token> b) {
  const size_t limit = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<ptrdiff_t>(limit);
  return static_cast<uint32_t>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}
}  // namespace

uint32_t common_prefix(TokenSpan a, TokenSpan b) {
  uint32_t common = common_tokens(a.tokens, b.tokens);
  for (size_t i = 0;; ++i) {
    const uint32_t at_a = i < a.media.size() ? a.media[i].start : UINT32_MAX;
    const uint32_t at_b = i < b.media.size() ? b.media[i].start : UINT32_MAX;
    const uint32_t first = std::min(at_a, at_b);
    if (first >= common) return common;
    if (at_a != at_b || a.media[i].digest != b.media[i].digest) return first;
  }
}

uint64_t prefix_start(uint64_t salt) {
  static constexpr char kName[] = "strata prefix";
  return hash_bytes(std::as_bytes(std::span(kName, sizeof kName - 1)), salt);
}

uint64_t prefix_link(TokenSpan span, uint32_t from, uint32_t to, uint64_t previous) {
  STRATA_CHECK(from <= to && to <= span.tokens.size());
  uint64_t link = hash_bytes(std::as_bytes(span.tokens.subspan(from, to - from)), previous);
  auto mark = std::lower_bound(span.media.begin(), span.media.end(), from,
                               [](const MediaMark& m, uint32_t position) { return m.start < position; });
  for (; mark != span.media.end() && mark->start < to; ++mark) {
    const uint64_t fields[2] = {mark->start, mark->digest};
    link = hash_bytes(std::as_bytes(std::span(fields)), link);
  }
  return link;
}

std::vector<uint64_t> prefix_chain(TokenSpan span, uint64_t salt) {
  const auto total = static_cast<uint32_t>(span.tokens.size());
  std::vector<uint64_t> chain;
  chain.reserve((total + limits::kPrefixChunkTokens - 1) / limits::kPrefixChunkTokens);
  uint64_t link = prefix_start(salt);
  for (uint32_t from = 0; from < total; from += limits::kPrefixChunkTokens) {
    const uint32_t to = std::min(total, from + limits::kPrefixChunkTokens);
    link = prefix_link(span, from, to, link);
    chain.push_back(link);
  }
  return chain;
}

}  // namespace strata
