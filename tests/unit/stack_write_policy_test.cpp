// Write policies: evict, through, idle. What a crash costs under each, and that nobody waits for it.
#include <gtest/gtest.h>

#include "tests/support/stack_pair.hpp"

namespace strata::testing {
namespace {

class StackWritePolicy : public StackPair {
 protected:
  StackWorld& make_with(WritePolicy policy, int slots = 2, bool disk_mode = false) {
    TierOptions tiers = ram_and_disk(disk_mode ? 0 : 8 << 20, 64 << 20);
    tiers.write_policy = policy;
    tiers.disk_mode = disk_mode;
    return make(tiers, slots);
  }
  // Steps for so long, in virtual time.
  void pass(uint64_t ns) {
    const uint64_t until = world_->clock().monotonic_ns() + ns;
    while (world_->clock().monotonic_ns() < until) {
      world_->clock().advance(50'000'000);
      world_->step();
    }
  }
};

constexpr uint64_t kSecondNs = 1'000'000'000;

TEST_F(StackWritePolicy, Evict_NothingIsWrittenBeforeItsPlaceIsNeeded) {
  StackWorld& world = make_with(WritePolicy::evict);
  ask(prompt_of(1, 300));
  ask(prompt_of(2, 200));
  pass(120 * kSecondNs);
  EXPECT_TRUE(files(".idx").empty());
  world.restart();  // as after a crash
  EXPECT_EQ(ask(prompt_of(1, 300)).placement.reused_tokens, 0u);
}

TEST_F(StackWritePolicy, B6_Through_ACrashLosesAtMostTheTurnThatRuns) {
  for (const bool disk_mode : {false, true}) {
    StackWorld& world = make_with(WritePolicy::through, 2, disk_mode);
    std::vector<Token> prompt = prompt_of(1, 300);
    for (uint64_t turn = 0; turn < 4; ++turn) {
      const Answer answer = ask(prompt);
      world.step(300);
      EXPECT_EQ(files(".idx").size(), 1u);
      prompt = next_prompt(prompt, answer, 10 + turn, 20);
    }
    const auto stored = static_cast<uint32_t>(prompt.size()) - 20;
    const RequestId running = world.begin(prompt);
    ASSERT_TRUE(world.place(running));
    world.restart();
    expect_reused(stored, Tier::disk, prompt);
  }
}

TEST_F(StackWritePolicy, B1_Through_EachTurnWritesOnlyItsNewBlocks) {
  StackWorld& world = make_with(WritePolicy::through);
  std::vector<Token> prompt = prompt_of(1, 400);
  const Answer first = ask(prompt);
  world.step(300);
  const double before = world.metrics().value("strata_disk_written_bytes_total", "");
  prompt = next_prompt(prompt, first, 10, 10);
  ask(prompt);
  world.step(300);
  const double written = world.metrics().value("strata_disk_written_bytes_total", "") - before;
  EXPECT_GT(written, 0);
  EXPECT_LE(written, 2 * 16 * 1024 + 3 * 4096 + 4 * 420.0);
}

TEST_F(StackWritePolicy, Through_TheNextTurnIsNotForkedButGoesOnInItsSlot) {
  StackWorld& world = make_with(WritePolicy::through);
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  expect_reused(304, Tier::vram, next_prompt(a, first, 3, 10));
  world.settle();
  EXPECT_EQ(files(".idx").size(), 1u);
}

// In disk mode a background write gives way to a request for its slot.
TEST_F(StackWritePolicy, Through_DiskModeARequestForTheSlotIsNotHeldUpByAHangingDisk) {
  StackWorld& world = make_with(WritePolicy::through, 1, true);
  world.options().writes_run = false;
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  world.step(50);
  EXPECT_GT(world.writer().waiting(), 0u) << "it is on its way";
  const auto next = next_prompt(a, first, 3, 10);
  expect_reused(304, Tier::vram, next);
  EXPECT_TRUE(files(".idx").empty());
  world.options().writes_run = true;
  world.step(400);
  EXPECT_EQ(files(".idx").size(), 1u);
}

TEST_F(StackWritePolicy, Idle_WritesWhenNothingRuns) {
  StackWorld& world = make_with(WritePolicy::idle);
  const auto a = prompt_of(1, 300);
  ask(a);
  world.step(50);
  EXPECT_TRUE(files(".idx").empty()) << "not quiet for long enough";
  pass(3 * kSecondNs);
  EXPECT_EQ(files(".idx").size(), 1u);
  world.restart();
  expect_reused(299, Tier::disk, a);
}

TEST_F(StackWritePolicy, Idle_WhatWaitedTooLongIsWrittenAlthoughSomethingRuns) {
  StackWorld& world = make_with(WritePolicy::idle);
  ask(prompt_of(1, 300));
  const RequestId busy = world.begin(prompt_of(2, 100));
  ASSERT_TRUE(world.place(busy));
  pass(30 * kSecondNs);
  EXPECT_TRUE(files(".idx").empty());
  pass(40 * kSecondNs);
  EXPECT_EQ(files(".idx").size(), 1u);
  world.end(busy);
}

TEST_F(StackWritePolicy, OneShotRequestsAreNeverWritten) {
  StackWorld& world = make_with(WritePolicy::through);
  TierRequest once;
  once.keep = false;
  ask(prompt_of(1, 300), once);
  world.step(300);
  EXPECT_TRUE(files(".idx").empty());
}

}  // namespace
}  // namespace strata::testing
