// The contract of PageSource (core/page_source.hpp) on the operating system. RAM-1.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "core/limits.hpp"
#include "core/posix/page_source.hpp"

namespace strata {
namespace {

using limits::kKiB;
using limits::kMiB;

// Of the mapping that holds the address: a field of /proc/self/smaps, in KiB.
uint64_t smaps_kib(const void* address, const std::string& field) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long first = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &first, &end) == 2) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      inside = at >= first && at < end;
    } else if (inside && line.starts_with(field + ":")) {
      return std::stoull(line.substr(field.size() + 1));
    }
  }
  return 0;
}

TEST(PageSource, MemoryIsAlignedAndThereBeforeItIsUsed) {
  PosixPageSource pages;
  for (const uint64_t bytes : {4 * kKiB, 64 * kKiB, 2 * kMiB, 2 * kMiB + 512 * kKiB, 16 * kMiB}) {
    const auto memory = pages.take(bytes);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    ASSERT_EQ(memory->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % limits::kAlignment, 0u);
    EXPECT_GE(smaps_kib(memory->data(), "Rss"), bytes / kKiB) << "touched ahead";
    std::memset(memory->data(), 0x5a, memory->size());
    pages.give_back(*memory);
  }
}

TEST(PageSource, LargeMemoryIsInHugePagesWhereTheSystemHasThem) {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(setting, modes);
  if (modes.find("[madvise]") == std::string::npos && modes.find("[always]") == std::string::npos)
    GTEST_SKIP() << "transparent huge pages: " << (modes.empty() ? "none" : modes);
  PosixPageSource pages;
  const auto memory = pages.take(16 * kMiB);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (2 * kMiB), 0u);
  // How many there are at the moment is the system's; that they were asked for is ours.
  std::ifstream smaps("/proc/self/smaps");
  const std::string all((std::istreambuf_iterator<char>(smaps)), std::istreambuf_iterator<char>());
  EXPECT_NE(all.find(" hg"), std::string::npos);
  pages.give_back(*memory);
}

TEST(PageSource, WhatTheSystemDoesNotHaveIsExhausted) {
  PosixPageSource pages;
  const auto memory = pages.take(uint64_t{1} << 55);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::exhausted);
  EXPECT_FALSE(memory.error().message.empty());
}

}  // namespace
}  // namespace strata
