// The gaps of an answer while a prompt is read beside it: PromptPacer alone, on made-up times.
#include "engine/runtime/prompt_pacer.hpp"

#include <gtest/gtest.h>

namespace strata {
namespace {

// A machine whose step takes so long for the answers, and so long for each prompt token.
struct Machine {
  uint64_t answers_ns;
  uint64_t prompt_token_ns;

  uint32_t step(PromptPacer& pacer, uint32_t answers = 1) const {
    const uint32_t tokens = pacer.budget(answers);
    pacer.observe(answers, tokens, answers_ns + tokens * prompt_token_ns);
    return tokens;
  }
};

TEST(EnginePromptPacer, MeasuresAStepAloneBeforeItAllowsAny) {
  PromptPacer pacer(64);
  const Machine machine{1'000'000, 1'000};
  EXPECT_EQ(machine.step(pacer), 0U);
  EXPECT_EQ(machine.step(pacer), 1U);
}

TEST(EnginePromptPacer, GrowsToTheMostWhereTokensCostLittle) {
  PromptPacer pacer(64);
  const Machine machine{1'000'000, 1'000};
  for (int i = 0; i < 10; ++i) machine.step(pacer);
  EXPECT_EQ(machine.step(pacer), 64U);
}

TEST(EnginePromptPacer, StaysWithinTheStretchWhereTheyCostMuch) {
  PromptPacer pacer(64);
  const Machine machine{1'000'000, 100'000};
  for (int i = 0; i < 200; ++i) EXPECT_LE(machine.step(pacer), 5U);
}

TEST(EnginePromptPacer, OneTokenIsAlwaysAllowedAndNoTwoStepsInARowHaveNone) {
  PromptPacer pacer(64);
  const Machine machine{1'000'000, 5'000'000};
  uint32_t before = 1;
  for (uint32_t i = 0; i < 200; ++i) {
    const uint32_t tokens = machine.step(pacer, 1 + i % 3);  // answers come and go all the time
    EXPECT_GT(tokens + before, 0U);
    before = tokens;
  }
}

TEST(EnginePromptPacer, FollowsAMachineThatGetsSlower) {
  PromptPacer pacer(64);
  for (int i = 0; i < 20; ++i) Machine{1'000'000, 1'000}.step(pacer);
  const Machine slower{1'000'000, 70'000};
  for (int i = 0; i < 20; ++i) slower.step(pacer);
  EXPECT_LE(slower.step(pacer), 7U);
}

TEST(EnginePromptPacer, MeasuresTheAnswersAgainFromTimeToTime) {
  PromptPacer pacer(64);
  const Machine machine{1'000'000, 100'000};
  uint32_t alone = 0;
  for (uint32_t i = 0; i < 10 * (PromptPacer::kRemeasureSteps + 1); ++i)
    alone += machine.step(pacer) == 0 ? 1 : 0;
  EXPECT_EQ(alone, 10U);
}

TEST(EnginePromptPacer, MeasuresAgainWhenAnotherNumberOfSlotsAnswers) {
  PromptPacer pacer(64);
  for (int i = 0; i < 20; ++i) Machine{1'000'000, 100'000}.step(pacer, 1);
  EXPECT_EQ(pacer.budget(2), 0U);
}

TEST(EnginePromptPacer, AStepTooQuickToMeasureAllowsTheMost) {
  PromptPacer pacer(64);
  const Machine machine{0, 0};
  EXPECT_EQ(machine.step(pacer), 0U);
  EXPECT_EQ(machine.step(pacer), 64U);
}

}  // namespace
}  // namespace strata
