// Long runs of bytes in pieces, so that memory does not grow with them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/limits.hpp"
#include "core/result.hpp"

namespace strata {

inline constexpr uint64_t kPieceBytes = 4 * limits::kMiB;

// Calls take(piece, offset) for [0, length) in order, until one fails; `buffer` lends the memory and is kept
// for the next run.
template <typename Take>
Status in_pieces(std::vector<std::byte>& buffer, uint64_t length, Take take) {
  buffer.resize(std::max<size_t>(buffer.size(), std::min(kPieceBytes, length)));
  for (uint64_t done = 0; done < length;) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), length - done));
    STRATA_TRY(take(piece, done));
    done += piece.size();
  }
  return {};
}

}  // namespace strata
