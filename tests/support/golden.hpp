// Compares text with a file under tests/golden/. With STRATA_REGENERATE_GOLDEN=1 in the environment the file
// is written instead, and the difference is looked at in version control. Bytes are compared as a hex dump.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string>

namespace strata::testing {

inline std::string hex_dump(std::span<const std::byte> bytes) {
  constexpr size_t kRow = 16;
  std::string out;
  bool skipping = false;
  for (size_t at = 0; at < bytes.size(); at += kRow) {
    const auto row = bytes.subspan(at, std::min(kRow, bytes.size() - at));
    const bool zero = std::all_of(row.begin(), row.end(), [](std::byte b) { return b == std::byte{0}; });
    if (zero && at != 0 && at + kRow < bytes.size()) {  // runs of zero rows shrink to one star
      if (!skipping) out += "*\n";
      skipping = true;
      continue;
    }
    skipping = false;
    out += fmt::format("{:08x} ", at);
    for (const std::byte byte : row) out += fmt::format(" {:02x}", static_cast<unsigned>(byte));
    out += '\n';
  }
  return out + fmt::format("{:08x}\n", bytes.size());
}

inline void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(STRATA_SOURCE_DIR) + "/tests/golden/" + name;
  const char* regenerate = std::getenv("STRATA_REGENERATE_GOLDEN");
  if (regenerate != nullptr && std::string(regenerate) == "1") {
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file.is_open()) << path << " is missing";
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(actual, expected) << "differs from " << path;
}

}  // namespace strata::testing
