// The log lines of the tiers (DISK-10, design 04): their shapes are read by dashboards. Every line that a
// scenario brings about is written down with its numbers masked; a shape that changes, comes or goes shows in
// the golden file. What the numbers say is checked where it counts: totals after every hit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "tests/support/golden.hpp"
#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StackWorldOptions options_of(const TierOptions& tiers) {
  StackWorldOptions options;
  options.slots = 1;
  options.tiers = tiers;
  return options;
}

// Conversations of 300 tokens, one after the other.
void talk(StackWorld& world, uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) EXPECT_TRUE(world.ask(prompt_of(first + i, 300), 2).failure.empty());
  world.settle();
}

std::string path_ending_in(const StackWorld& world, const std::string& ending) {
  for (const std::string& path : const_cast<StackWorld&>(world).files().paths())
    if (path.ends_with(ending)) return path;
  return {};
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// How many characters from `at` on are a conversation's id or a number, with decimals.
size_t number_at(const std::string& line, size_t at) {
  constexpr size_t kIdDigits = 16;
  const std::string_view before = std::string_view(line).substr(0, at);
  if (before.ends_with("conv-") && at + kIdDigits <= line.size()) return kIdDigits;
  size_t end = at;
  while (end < line.size() && is_digit(line[end])) ++end;
  if (end > at && end + 1 < line.size() && line[end] == '.' && is_digit(line[end + 1])) {
    for (++end; end < line.size() && is_digit(line[end]);) ++end;
  }
  return end - at;
}

// Numbers and ids become #.
std::string shape_of(const std::string& line) {
  std::string shape;
  for (size_t at = 0; at < line.size();) {
    const size_t length = number_at(line, at);
    shape += length > 0 ? '#' : line[at];
    at += std::max<size_t>(length, 1);
  }
  return shape;
}

class StackLog : public ::testing::Test {
 protected:
  // What the scenario's world said, each shape once, under the scenario's name.
  void note(const char* scenario, const StackWorld& world) {
    text_ += std::string("# ") + scenario + "\n";
    std::vector<std::string> seen;
    for (const RecordingLog::Line& line : const_cast<StackWorld&>(world).log().lines()) {
      const std::string shape = shape_of(line.text);
      if (line.level == LogLevel::debug || std::find(seen.begin(), seen.end(), shape) != seen.end()) continue;
      seen.push_back(shape);
      text_ += shape + "\n";
    }
  }

  std::string text_;
};

void write_evict_and_hit(StackWorld& world) {
  talk(world, 10, 4);
  world.ask(prompt_of(10, 300), 2);
  world.settle();
}

TEST_F(StackLog, GoldenShapes) {
  {
    StackWorld world(options_of(ram_tier(1 << 10)));
    talk(world, 10, 2);
    note("RAM is too small for one", world);
  }
  {
    StackWorld world(options_of(ram_and_disk(400 << 10, 64 << 20)));
    write_evict_and_hit(world);
    world.shutdown();
    note("parked, queued, written, hit", world);
  }
  {
    StackWorld world(options_of(ram_and_disk(400 << 10, 100 << 10)));
    talk(world, 10, 3);
    note("refused: larger than the disk's budget", world);
  }
  {
    StackWorld world(options_of(ram_and_disk(400 << 10, 64 << 20)));
    world.faulty_files().set_plan(
        {{.call = FileCall::allocate, .nth = 1, .os_errno = ENOSPC, .and_later = true}});
    talk(world, 10, 3);
    note("dropped: no space", world);
  }
  {
    StackWorld world(options_of(ram_and_disk(400 << 10, 64 << 20)));
    talk(world, 10, 3);
    world.shutdown();
    world.files().flip_byte(path_ending_in(world, ".sess"), 5000);
    world.files().put(std::string(StackWorld::kFolder) + "/conv-00000000000000aa.idx.tmp", "STRAINDX");
    world.files().put(std::string(StackWorld::kFolder) + "/conv-00000000000000bb.idx", "STRAINDX");
    world.restart();
    for (uint64_t i = 0; i < 3; ++i) world.ask(prompt_of(10 + i, 300), 2);
    world.settle();
    note("taken in, refused at the start, quarantined", world);
  }
  {
    StackWorld world(options_of(ram_and_disk(400 << 10, 64 << 20)));
    talk(world, 10, 3);
    world.shutdown();
    world.restart();
    world.files().cut(path_ending_in(world, ".sess"), 0);
    for (uint64_t i = 0; i < 3; ++i) world.ask(prompt_of(10 + i, 300), 2);
    world.settle();
    note("set aside: cannot be read", world);
  }
  expect_golden("log_shapes.txt", text_);
}

TEST_F(StackLog, EveryHitIsFollowedByTheTotalsSoFar) {  // DISK-10
  StackWorld world(options_of(ram_and_disk(400 << 10, 64 << 20)));
  talk(world, 10, 4);
  uint64_t tokens = 0;
  for (uint64_t hits = 1; hits <= 2; ++hits) {
    const Answer answer = world.ask(prompt_of(9 + hits, 300), 2);
    ASSERT_EQ(answer.placement.tier, Tier::disk);
    tokens += answer.placement.reused_tokens;
    world.settle();
    std::string last;
    for (const RecordingLog::Line& line : world.log().lines())
      if (line.text.find("conversation disk: hit") != std::string::npos) last = line.text;
    EXPECT_THAT(last, HasSubstr(fmt::format("hits={} tokens={} stored=", hits, tokens)));
  }
}

}  // namespace
}  // namespace strata::testing
