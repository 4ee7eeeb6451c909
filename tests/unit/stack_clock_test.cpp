// A wall clock that jumps back and forth: ages (DISK-4), the order of eviction (DISK-3) and what is stored
// (DISK-6) stay right, and answers exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/manifest.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kHourNs = 3'600'000'000'000;
constexpr uint64_t kYearNs = 365 * 24 * kHourNs;
constexpr uint32_t kStoredTokens = 304;  // 300 asked, 4 answered

class StackClock : public StackPair {
 protected:
  static TierOptions tiers(uint64_t ttl_ns, uint64_t disk_bytes = 64 << 20) {
    TierOptions tiers = ram_and_disk(600 << 10, disk_bytes);
    tiers.disk_ttl_ns = ttl_ns;
    return tiers;
  }
  void jump(int64_t ns) { world_->clock().set_wall(world_->clock().wall_ns() + static_cast<uint64_t>(ns)); }
  void pass(uint64_t ns) {
    world_->clock().advance(ns);
    world_->step(2);
    world_->settle();
  }
  // Stored and out of RAM and slots.
  std::vector<Token> store(uint64_t seed) {
    const auto prompt = prompt_of(seed, 300);
    const Answer answer = ask(prompt);
    ask(prompt_of(900 + seed, 300));
    world_->settle();
    return next_prompt(prompt, answer, seed, 10);
  }
  void restart() {
    world_->shutdown();
    world_->restart();
  }
  [[nodiscard]] bool is_stored(uint32_t tokens) const {
    const auto all = world_->stack().conversations();
    return std::any_of(all.begin(), all.end(), [&](const StoredConversation& one) {
      return one.tokens == tokens && one.disk_bytes > 0;
    });
  }
  [[nodiscard]] Manifest stored_manifest(uint32_t tokens) {
    auto manifest = read_published(world_->files(), StackWorld::kFolder, conversation_of(tokens));
    EXPECT_TRUE(manifest.ok());
    return manifest.ok() ? *manifest : Manifest{};
  }
};

TEST_F(StackClock, DISK4_AJumpForwardExpiresNothing) {
  make(tiers(kHourNs));
  const auto next = store(1);
  for (const int64_t years : {1, -3, 2}) {
    jump(years * static_cast<int64_t>(kYearNs));
    pass(10 * kMinuteNs);
    EXPECT_TRUE(is_stored(kStoredTokens)) << years;
  }
  EXPECT_EQ(world_->metrics().value("strata_evictions_total", "tier=\"disk\",reason=\"expired\""), 0);
  restart();
  ask(next);
}

TEST_F(StackClock, DISK4_AJumpBackDoesNotKeepTheOldForEver) {
  make(tiers(kHourNs));
  const auto next = store(1);
  jump(-static_cast<int64_t>(kYearNs));
  pass(kHourNs + 10 * kMinuteNs);
  EXPECT_FALSE(is_stored(kStoredTokens));
  EXPECT_GE(world_->metrics().value("strata_evictions_total", "tier=\"disk\",reason=\"expired\""), 1);
  ask(next);
}

// Stored while the clock was a year ahead: young when it is taken in, and as old as it gets from then on.
TEST_F(StackClock, DISK4_WhatWasStoredInTheFutureExpiresToo) {
  make(tiers(kHourNs));
  jump(static_cast<int64_t>(kYearNs));
  const auto next = store(1);
  world_->shutdown();
  jump(-static_cast<int64_t>(kYearNs));
  world_->restart();
  EXPECT_TRUE(is_stored(kStoredTokens));
  pass(50 * kMinuteNs);
  EXPECT_TRUE(is_stored(kStoredTokens));
  pass(20 * kMinuteNs);
  EXPECT_FALSE(is_stored(kStoredTokens));
  EXPECT_EQ(ask(next).placement.cause.reason, ReadReason::expired);
}

// A time at the end of all times overflows nothing.
TEST_F(StackClock, DISK4_ATimeAtTheEndOfTimeIsNow) {
  make(tiers(kHourNs));
  store(1);
  world_->shutdown();
  world_->halt();
  for (const std::string& path : files(".idx")) {
    auto manifest = *decode_manifest(world_->files().get(path), {});
    manifest.head.created_ns = manifest.head.last_used_ns = std::numeric_limits<uint64_t>::max();
    world_->files().put(path, encode_manifest(manifest));
  }
  world_->restart();
  world_->step(3);
  EXPECT_TRUE(is_stored(kStoredTokens));
  pass(kHourNs + kMinuteNs);
  EXPECT_FALSE(is_stored(kStoredTokens));
}

TEST_F(StackClock, DISK3_TheLeastRecentlyUsedGoesFirstWhateverTheClockSays) {
  make(tiers(0, 1300 << 10));
  store(1);
  jump(-static_cast<int64_t>(kYearNs));
  for (uint64_t i = 2; i < 5; ++i) store(i);
  restart();
  // What was used last is there; the first, of a year later by its clock, is not.
  const auto one = prompt_of(904, 300);
  EXPECT_GE(ask(next_prompt(one, expected(one), 7, 5)).placement.reused_tokens, 300u);
  const auto first = prompt_of(1, 300);
  EXPECT_LT(ask(next_prompt(first, expected(first), 7, 5)).placement.reused_tokens, 300u);
}

// What is written carries the time of the wall as it is now, not as it was when the engine started.
TEST_F(StackClock, DISK6_StoredTimesFollowTheWall) {
  make(tiers(0));
  jump(static_cast<int64_t>(kYearNs));
  store(1);
  const uint64_t now = world_->clock().wall_ns();
  const Manifest manifest = stored_manifest(kStoredTokens);
  EXPECT_LE(manifest.head.last_used_ns, now);
  EXPECT_LT(now - manifest.head.last_used_ns, kMinuteNs);
  EXPECT_LE(manifest.head.created_ns, manifest.head.last_used_ns);
  EXPECT_LT(now - manifest.head.created_ns, kMinuteNs);
}

// At every step somewhere else, back and forth, with a TTL: nothing expires early, all answers are exact.
TEST_F(StackClock, AClockThatIsNeverRightCostsNothing) {
  make(tiers(kHourNs), 2);
  FakeRandom random(5);
  std::vector<std::vector<Token>> agents;
  for (uint64_t i = 0; i < 4; ++i) agents.push_back(prompt_of(10 + i, 120));
  for (uint64_t turn = 0; turn < 24; ++turn) {
    auto& prompt = agents[random.below(agents.size())];
    world_->clock().set_wall(random.below(4) == 0 ? 0 : random.next() >> 2);
    const Answer answer = ask(prompt);
    world_->clock().set_wall(random.next() >> 2);
    world_->settle();
    prompt = next_prompt(prompt, answer, 50 + turn, 8);
  }
  EXPECT_EQ(world_->metrics().value("strata_evictions_total", "tier=\"disk\",reason=\"expired\""), 0);
  restart();
  for (const auto& prompt : agents) ask(prompt);
}

}  // namespace
}  // namespace strata::testing
