// PLG-1: offsets and sizes of the released plugin ABI never change; C and C++ agree on them.
// STRATA_REGENERATE_GOLDEN=1 writes the golden file anew: only for a minor version that was never released.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "tests/support/abi_layout.h"
#include "tests/support/golden.hpp"

namespace strata {
namespace {

static_assert(sizeof(void*) == 8 && sizeof(void (*)()) == 8, "the golden layout is that of 64-bit machines");
static_assert(sizeof(strata_error) == 256);

std::string layout_in_cpp() {
  std::ostringstream text;
#define STRUCT(type) text << #type << ' ' << sizeof(type) << '\n';
#define FIELD(type, field)                                              \
  text << #type << '.' << #field << ' ' << offsetof(type, field) << ' ' \
       << sizeof(std::declval<type&>().field) << '\n';
  STRATA_ABI_1_1(STRUCT, FIELD)
#undef STRUCT
#undef FIELD
  return text.str();
}

std::string layout_in_c() {
  std::string text(64 << 10, '\0');
  text.resize(strata_abi_layout_in_c(text.data(), text.size()));
  return text;
}

// Fields by name; a struct's own line has the empty field.
std::map<std::string, std::string> lines_of(const std::string& layout) {
  std::map<std::string, std::string> lines;
  std::istringstream text(layout);
  std::string line;
  while (std::getline(text, line)) lines[line.substr(0, line.find(' '))] = line.substr(line.find(' ') + 1);
  return lines;
}

std::string golden_text(const std::string& name) {
  std::ifstream file(std::string(STRATA_SOURCE_DIR) + "/tests/golden/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PluginAbi, LayoutIsThatOfTheGoldenFile_PLG1) { testing::expect_golden("abi_1_1.txt", layout_in_cpp()); }

// A minor version appends: every field of 1.0 is where it was, and no struct became smaller.
TEST(PluginAbi, LaterMinorVersionsKeepWhatWasReleased_PLG1) {
  const auto released = lines_of(golden_text("abi_1_0.txt"));
  const auto now = lines_of(layout_in_cpp());
  ASSERT_FALSE(released.empty());
  for (const auto& [name, place] : released) {
    ASSERT_TRUE(now.contains(name)) << name;
    if (name.find('.') != std::string::npos) {
      EXPECT_EQ(now.at(name), place) << name;
    } else {
      EXPECT_GE(std::stoul(now.at(name)), std::stoul(place)) << name;
    }
  }
}

TEST(PluginAbi, CAndCppAgree_PLG1) { EXPECT_EQ(layout_in_c(), layout_in_cpp()); }

// Neither padding whose content nobody defines, nor a field that the list of this test forgets.
TEST(PluginAbi, StructsHaveNoHoles) {
  std::istringstream lines(layout_in_cpp());
  std::string line;
  size_t end = 0;
  size_t bytes = 0;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name;
    size_t first = 0;
    size_t size = 0;
    words >> name >> first;
    if (words >> size) {
      EXPECT_EQ(first, end) << "hole before " << name;
      end = first + size;
    } else {
      EXPECT_EQ(end, bytes) << "hole before " << name;
      bytes = first;
      end = 0;
    }
  }
  EXPECT_EQ(end, bytes);
  EXPECT_GT(bytes, 0u);
}

}  // namespace
}  // namespace strata
