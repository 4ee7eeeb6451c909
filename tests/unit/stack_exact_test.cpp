// Invariant 1: a restored conversation answers exactly as one that was never parked, for every layout of
// state, from every tier. Logits are compared bit for bit. (RAM-2, RAM-3, DISK-1, DISK-6, DISK-11, B-1, B-2,
// B-3)
#include <gtest/gtest.h>

#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

struct Kind {
  const char* layout;
  int stages;
  bool whole;
};

class StackExact : public ::testing::TestWithParam<Kind> {
 protected:
  StackWorldOptions options(TierOptions tiers, int slots = 2) const {
    StackWorldOptions world;
    world.layout = GetParam().layout;
    world.stages = GetParam().stages;
    world.whole = GetParam().whole;
    world.slots = slots;
    world.tiers = tiers;
    return world;
  }
  // The same turns in a world without a cache, each conversation in a slot of its own.
  std::vector<Answer> never_parked(const std::vector<std::vector<Token>>& first, uint32_t generate,
                                   const std::vector<std::vector<Token>>& more) const {
    std::vector<Answer> answers;
    StackWorld world(options({}, static_cast<int>(first.size())));
    for (size_t i = 0; i < first.size(); ++i) {
      TierRequest request;
      request.slot = static_cast<SlotId>(i);
      answers.push_back(world.ask(first[i], generate, request));
    }
    for (size_t i = 0; i < first.size(); ++i) {
      TierRequest request;
      request.slot = static_cast<SlotId>(i);
      answers.push_back(world.ask(continued(first[i], answers[i], more[i]), generate, request));
    }
    return answers;
  }
  static std::vector<Token> continued(const std::vector<Token>& prompt, const Answer& answer,
                                      const std::vector<Token>& more) {
    std::vector<Token> next = prompt;
    next.insert(next.end(), answer.tokens.begin(), answer.tokens.end());
    next.insert(next.end(), more.begin(), more.end());
    return next;
  }
};

constexpr uint32_t kGenerate = 12;

std::vector<std::vector<Token>> prompts(uint64_t seed, size_t count, uint32_t tokens) {
  std::vector<std::vector<Token>> list;
  for (size_t i = 0; i < count; ++i) {
    list.push_back(prompt_of(seed + i, tokens + static_cast<uint32_t>(i) * 7));
  }
  return list;
}

TEST_P(StackExact, FromRam) {
  const auto first = prompts(10, 5, 100);
  const auto more = prompts(50, 5, 30);
  const auto expected = never_parked(first, kGenerate, more);
  StackWorld world(options(ram_tier(64 << 20)));
  std::vector<Answer> answers;
  for (const auto& prompt : first) answers.push_back(world.ask(prompt, kGenerate));
  for (size_t i = 0; i < first.size(); ++i) {
    const Answer answer = world.ask(continued(first[i], answers[i], more[i]), kGenerate);
    EXPECT_EQ(answer, expected[first.size() + i]) << "conversation " << i;
    EXPECT_EQ(answer.placement.tier, i < 3 ? Tier::ram : answer.placement.tier);
    EXPECT_EQ(answer.placement.reused_tokens, first[i].size() + kGenerate);
  }
}

TEST_P(StackExact, FromDiskAfterARestart) {
  const auto first = prompts(20, 5, 90);
  const auto more = prompts(60, 5, 40);
  const auto expected = never_parked(first, kGenerate, more);
  StackWorld world(options(ram_and_disk(4 << 20, 64 << 20)));
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  std::vector<Answer> answers;
  for (const auto& prompt : first) answers.push_back(world.ask(prompt, kGenerate));
  world.shutdown();
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const Answer answer = world.ask(continued(first[i], answers[i], more[i]), kGenerate);
    EXPECT_EQ(answer, expected[first.size() + i]) << "conversation " << i;
    EXPECT_EQ(answer.placement.tier, Tier::disk);
    EXPECT_EQ(answer.placement.reused_tokens, first[i].size() + kGenerate);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StackExact,
                         ::testing::Values(Kind{"attention", 1, false}, Kind{"attention", 2, false},
                                           Kind{"sliding", 1, false}, Kind{"sliding", 2, false},
                                           Kind{"hybrid", 1, false}, Kind{"hybrid", 2, false},
                                           Kind{"hybrid", 1, true}, Kind{"attention", 1, true}),
                         [](const auto& named) {
                           return std::string(named.param.layout) + std::to_string(named.param.stages) +
                                  (named.param.whole ? "whole" : "blocks");
                         });

}  // namespace
}  // namespace strata::testing
