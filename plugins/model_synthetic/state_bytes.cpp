#include "plugins/model_synthetic/state_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace strata::synthetic {
namespace {

// A longer row is cut into pieces of this size, each with a key of its own.
constexpr size_t kPieceWords = 512;
constexpr size_t kPieceBytes = kPieceWords * sizeof(uint64_t);

constexpr std::array<uint64_t, kPieceWords> make_table() {
  std::array<uint64_t, kPieceWords> table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = mixed(i + 1);
  return table;
}
constexpr std::array<uint64_t, kPieceWords> kTable = make_table();

void fill_piece(std::byte* to, size_t words, uint64_t key) {
  for (size_t i = 0; i < words; ++i) {
    const uint64_t word = key ^ kTable[i];
    std::memcpy(to + i * sizeof word, &word, sizeof word);
  }
}

// Looks at every word, so that the loop runs in wide registers.
bool is_piece(const std::byte* from, size_t words, uint64_t key) {
  uint64_t difference = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, from + i * sizeof word, sizeof word);
    difference |= word ^ key ^ kTable[i];
  }
  return difference == 0;
}

}  // namespace

void fill_row(std::span<std::byte> row, uint64_t key) {
  for (; !row.empty(); key = mixed(key)) {
    const size_t bytes = std::min(row.size(), kPieceBytes);
    fill_piece(row.data(), bytes / sizeof(uint64_t), key);
    row = row.subspan(bytes);
  }
}

bool is_row(std::span<const std::byte> row, uint64_t key) {
  for (; !row.empty(); key = mixed(key)) {
    const size_t bytes = std::min(row.size(), kPieceBytes);
    if (!is_piece(row.data(), bytes / sizeof(uint64_t), key)) return false;
    row = row.subspan(bytes);
  }
  return true;
}

}  // namespace strata::synthetic
