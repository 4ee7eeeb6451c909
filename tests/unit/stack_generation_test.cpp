// An older state of a conversation that stays in RAM beside the newer one (a hold kept it from being
// superseded) never takes the newer one's place on disk (RAM-5, B-6). Found by the kill loop as a published
// conversation that was gone.
#include <gtest/gtest.h>

#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

constexpr uint32_t kGenerate = 4;

std::vector<Token> grown(std::vector<Token> tokens, const Answer& answer, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

TEST(StackGeneration, TheNewerStateIsOnDiskAfterAShutdown) {
  StackWorldOptions options;
  options.slots = 1;
  options.tiers = ram_and_disk(64 << 20, 64 << 20);
  StackWorld world(options);
  const auto first = prompt_of(1, 100);
  const auto other = prompt_of(2, 100);
  const Answer answer = world.ask(first, kGenerate);
  (void)world.ask(other, kGenerate);
  const auto stored = world.stack().conversations();
  ASSERT_EQ(stored.size(), 1U);
  ASSERT_TRUE(world.stack().pin(stored.front().id, true).ok());
  const auto newer = grown(first, answer, prompt_of(3, 60));
  const Answer newer_answer = world.ask(newer, kGenerate);
  ASSERT_GT(newer_answer.placement.reused_tokens, first.size());
  (void)world.ask(other, kGenerate);
  ASSERT_GE(world.stack().status().ram_images, 2U) << "the held state stays beside the newer one";

  world.shutdown();
  world.restart();
  const Answer again = world.ask(grown(newer, newer_answer, prompt_of(4, 20)), kGenerate);
  EXPECT_EQ(again.placement.tier, Tier::disk);
  EXPECT_EQ(again.placement.reused_tokens, newer.size() + kGenerate);
}

}  // namespace
}  // namespace strata::testing
