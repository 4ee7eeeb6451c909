// The step machine over all open requests (design 02.6), on a model and tiers that do what the test says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/engine_bench.hpp"

namespace strata {
namespace {

using testing::ask;
using ::testing::ElementsAre;
using testing::EngineBench;
using ::testing::HasSubstr;
using testing::ScriptedModel;

uint32_t prompt_tokens_of(const ScriptedModel::Batch& batch) {
  return std::accumulate(batch.begin(), batch.end(), 0U, [](uint32_t sum, const ScriptedModel::Item& item) {
    return sum +
           (item.tokens.size() > 1 || !item.want_logits ? static_cast<uint32_t>(item.tokens.size()) : 0U);
  });
}

const ScriptedModel::Item* item_of(const ScriptedModel::Batch& batch, SlotId slot) {
  for (const ScriptedModel::Item& item : batch)
    if (item.slot == slot) return &item;
  return nullptr;
}

TEST(EngineLoop, AnswersARequestInOrderOfEvents) {
  EngineBench bench;
  bench.engine.generate(ask(7, 10, 3));
  bench.run_until_done();

  std::vector<Token> tokens;
  for (const auto& line : bench.events.of<lines::TokenLine>()) tokens.push_back(line.token);
  EXPECT_THAT(tokens, ElementsAre(10, 11, 12));
  EXPECT_TRUE(std::holds_alternative<lines::Resume>(bench.events.events.front()));
  const auto done = bench.events.of<lines::Done>();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].finish, lines::Finish::length);
  EXPECT_EQ(done[0].prompt, 10U);
  EXPECT_EQ(done[0].read, 10U);
  EXPECT_EQ(done[0].generated, 3U);
  EXPECT_EQ(done[0].reason, "new");
  EXPECT_TRUE(std::holds_alternative<lines::Done>(bench.events.events.back()));
  EXPECT_THAT(bench.tiers.finished, ElementsAre(7U));
}

// The slot holds everything but the last generated token, so the next turn reads one token of this one again.
TEST(EngineLoop, NeverDecodesTheLastGeneratedToken) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 3));
  bench.run_until_done();
  EXPECT_EQ(bench.model.length(0), 12U);
  EXPECT_EQ(bench.tiers.held_tokens[0].size(), 12U);
  EXPECT_EQ(bench.tiers.held_tokens[0].back(), 11);
}

// RAM-3 at the engine's end: only what was not reused is read.
TEST(EngineLoop, ReadsOnlyWhatWasNotReused) {
  EngineBench bench;
  bench.tiers.placements[1] = {kNoSlot, 90, Tier::ram, {ReadReason::none, 0}, 5'000'000, 1000, 0};
  bench.engine.generate(ask(1, 100, 1));
  bench.run_until_done();
  ASSERT_EQ(bench.model.batches.size(), 1U);
  EXPECT_EQ(bench.model.batches[0][0].position, 90U);
  EXPECT_EQ(bench.model.batches[0][0].tokens.size(), 10U);
  const auto resume = bench.events.of<lines::Resume>();
  EXPECT_EQ(resume.at(0).tokens, 90U);
  EXPECT_EQ(resume.at(0).tier, Tier::ram);
  EXPECT_DOUBLE_EQ(resume.at(0).ms, 5.0);
  EXPECT_EQ(bench.metrics.value("llamacpp:prompt_tokens_total"), 10);
}

// Invariant: a long prompt never stops another slot's tokens.
TEST(EngineLoop, ALongPromptNeverStopsAnotherSlotsTokens) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 100));
  bench.engine.step();  // slot 0 answers from now on
  bench.engine.generate(ask(2, 2000, 1));
  const size_t first = bench.model.batches.size();
  while (bench.events.of<lines::Done>().empty()) bench.engine.step();

  size_t batches_with_both = 0;
  for (size_t i = first; i < bench.model.batches.size(); ++i) {
    const auto& batch = bench.model.batches[i];
    const auto* answer = item_of(batch, 0);
    ASSERT_NE(answer, nullptr) << "batch " << i << " leaves the answering slot out";
    EXPECT_EQ(answer->tokens.size(), 1U);
    if (const auto* prompt = item_of(batch, 1)) {
      ++batches_with_both;
      EXPECT_LE(prompt->tokens.size(), 64U);
    }
  }
  EXPECT_EQ(batches_with_both, (2000U + 63U) / 64U);
}

// The same on a machine where a prompt token costs what a token of the answer costs, and on one where it is
// nearly free.
TEST(EngineLoop, ALongPromptKeepsTheGapsOfAnotherSlotBelowTwiceTheirLength) {
  for (const uint64_t prompt_token_ns : {uint64_t{15'000'000}, uint64_t{1'000'000}, uint64_t{10'000}}) {
    constexpr uint64_t kAnswerNs = 25'000'000;
    EngineBench bench(2, 8192);
    bench.model.on_decode = [&](const ScriptedModel::Batch& batch) {
      for (const ScriptedModel::Item& item : batch) {
        const bool answer = item.slot == 0 && item.position >= 10;
        bench.clock.advance(answer ? kAnswerNs : item.tokens.size() * prompt_token_ns);
      }
    };
    lines::Generate answering = ask(1, 10, 4000);
    answering.ignore_end = true;
    bench.engine.generate(std::move(answering));
    for (int i = 0; i < 10; ++i) bench.engine.step();
    bench.engine.generate(ask(2, 1500, 1));
    uint32_t largest_part = 0;
    while (bench.events.of<lines::Done>().empty()) {
      const uint64_t before_ns = bench.clock.monotonic_ns();
      bench.engine.step();
      EXPECT_LT(bench.clock.monotonic_ns() - before_ns, 2 * kAnswerNs) << "prompt token " << prompt_token_ns;
      if (const auto* prompt = item_of(bench.model.batches.back(), 1))
        largest_part = std::max(largest_part, static_cast<uint32_t>(prompt->tokens.size()));
    }
    EXPECT_EQ(bench.events.of<lines::Done>()[0].id, 2U)
        << "the prompt was read while the other slot answered";
    const uint64_t affordable = kAnswerNs / 2 / prompt_token_ns;
    EXPECT_EQ(largest_part, std::clamp<uint64_t>(affordable, 1, 64)) << "prompt token " << prompt_token_ns;
  }
}

TEST(EngineLoop, ReadsInLargerPartsWhenNobodyAnswers) {
  EngineBench bench;
  bench.engine.generate(ask(1, 600, 0));
  bench.run_until_done();
  ASSERT_EQ(bench.model.batches.size(), 3U);
  EXPECT_EQ(bench.model.batches[0][0].tokens.size(), 256U);
  EXPECT_EQ(bench.model.batches[2][0].tokens.size(), 600U - 512U);
}

TEST(EngineLoop, SharesPromptTokensAmongReadingSlots) {
  EngineBench bench;
  bench.engine.generate(ask(1, 1000, 1));
  bench.engine.generate(ask(2, 1000, 1));
  bench.engine.generate(ask(3, 20, 1));
  bench.engine.step();
  ASSERT_EQ(bench.model.batches.size(), 1U);
  const auto& batch = bench.model.batches[0];
  EXPECT_EQ(prompt_tokens_of(batch), 256U);
  EXPECT_EQ(item_of(batch, 2)->tokens.size(), 20U);
  EXPECT_EQ(item_of(batch, 0)->tokens.size(), 118U);
  EXPECT_EQ(item_of(batch, 1)->tokens.size(), 118U);
}

// RAM-6: reading stops where a checkpoint is due, and goes on when the tiers allow it.
TEST(EngineLoop, StopsAtTheReadLimitAndGoesOn) {
  EngineBench bench;
  bench.tiers.limits[0] = 100;
  bench.engine.generate(ask(1, 300, 0));
  bench.engine.step();
  EXPECT_EQ(bench.model.length(0), 100U);
  EXPECT_EQ(bench.engine.step(), Pace::waiting);
  EXPECT_EQ(bench.model.batches.size(), 1U);
  bench.tiers.limits.erase(0);
  bench.run_until_done();
  EXPECT_EQ(bench.model.length(0), 300U);
}

TEST(EngineLoop, LeavesAHeldSlotOutWithoutStoppingOthers) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 50));
  bench.engine.generate(ask(2, 10, 5));
  bench.engine.step();
  bench.tiers.held.insert(0);
  while (bench.events.of<lines::Done>().empty()) bench.engine.step();
  EXPECT_EQ(bench.events.of<lines::Done>()[0].id, 2U);
  EXPECT_EQ(bench.model.length(0), 10U);
  bench.tiers.held.clear();
  bench.run_until_done();
  EXPECT_EQ(bench.events.of<lines::Done>().at(1).generated, 50U);
}

TEST(EngineLoop, AnotherRequestGoesOnWhileOneIsPlaced) {
  EngineBench bench;
  bench.tiers.placing_steps[1] = 1000;
  bench.engine.generate(ask(1, 10, 1));
  bench.engine.generate(ask(2, 10, 5));
  while (bench.events.of<lines::Done>().empty()) bench.engine.step();
  EXPECT_EQ(bench.events.of<lines::Done>()[0].id, 2U);
  EXPECT_EQ(bench.engine.step(), Pace::waiting);
}

TEST(EngineLoop, MaxZeroOnlyReads) {
  EngineBench bench;
  bench.engine.generate(ask(1, 40, 0));
  bench.run_until_done();
  EXPECT_TRUE(bench.events.of<lines::TokenLine>().empty());
  EXPECT_FALSE(bench.model.batches.at(0).at(0).want_logits);
  EXPECT_EQ(bench.events.of<lines::Done>().at(0).finish, lines::Finish::length);
  EXPECT_EQ(bench.model.length(0), 40U);
}

TEST(EngineLoop, EndsAtTheEndOfTheContext) {
  EngineBench bench(1, 64);
  bench.engine.generate(ask(1, 60, 1000));
  bench.run_until_done();
  const auto done = bench.events.of<lines::Done>().at(0);
  EXPECT_EQ(done.finish, lines::Finish::length);
  EXPECT_EQ(done.prompt + done.generated, 64U);
}

TEST(EngineLoop, EndOfGenerationIsNeitherEmittedNorCounted) {
  EngineBench bench(1, 4096, 12);
  bench.engine.generate(ask(1, 10, 100));  // last prompt token 9: 10 follows, then 11, the end
  bench.run_until_done();
  const auto done = bench.events.of<lines::Done>().at(0);
  EXPECT_EQ(done.finish, lines::Finish::stop);
  EXPECT_EQ(done.generated, 1U);
  EXPECT_EQ(bench.events.of<lines::TokenLine>().size(), 1U);
}

TEST(EngineLoop, IgnoreEndGoesOn) {
  EngineBench bench(1, 4096, 12);
  auto request = ask(1, 10, 5);
  request.ignore_end = true;
  bench.engine.generate(std::move(request));
  bench.run_until_done();
  EXPECT_EQ(bench.events.of<lines::Done>().at(0).generated, 5U);
}

// Field lesson 20: what was read stays in the slot.
TEST(EngineLoop, StopWhileReadingKeepsWhatWasRead) {
  EngineBench bench;
  bench.engine.generate(ask(1, 1000, 10));
  bench.engine.step();
  bench.engine.stop(1);
  bench.engine.step();
  const auto done = bench.events.of<lines::Done>().at(0);
  EXPECT_EQ(done.finish, lines::Finish::cancel);
  EXPECT_EQ(done.read, 256U);
  EXPECT_EQ(bench.tiers.held_tokens[0].size(), 256U);
  EXPECT_EQ(bench.model.batches.size(), 1U) << "nothing is decoded after a stop";
}

TEST(EngineLoop, StopWhileAnsweringEndsAtTheNextToken) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 1000));
  bench.engine.step();
  bench.engine.step();
  bench.engine.stop(1);
  bench.engine.step();
  EXPECT_EQ(bench.events.of<lines::Done>().at(0).generated, 2U);
}

TEST(EngineLoop, StopWhilePlacingEndsAtOnce) {
  EngineBench bench;
  bench.tiers.placing_steps[1] = 1000;
  bench.engine.generate(ask(1, 10, 1));
  bench.engine.step();
  bench.engine.stop(1);
  bench.engine.step();
  const auto done = bench.events.of<lines::Done>().at(0);
  EXPECT_EQ(done.finish, lines::Finish::cancel);
  EXPECT_EQ(done.read, 0U);
  EXPECT_EQ(bench.engine.open_requests(), 0U);
}

TEST(EngineLoop, StaleStopsAreIgnored) {
  EngineBench bench;
  bench.engine.stop(99);
  bench.engine.generate(ask(1, 10, 2));
  bench.engine.stop(98);
  bench.run_until_done();
  EXPECT_EQ(bench.events.of<lines::Done>().at(0).finish, lines::Finish::length);
}

TEST(EngineLoop, ADecodeErrorEndsOnlyTheRequestThatCausesIt) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 20));
  bench.engine.generate(ask(2, 10, 20));
  bench.engine.step();
  bench.model.broken_slots.insert(1);
  bench.run_until_done();
  const auto failed = bench.events.of<lines::Failed>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].id, 2U);
  EXPECT_THAT(failed[0].reason, HasSubstr("slot 1 is broken"));
  const auto done = bench.events.of<lines::Done>();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].generated, 20U);
  EXPECT_THAT(bench.tiers.finished, ElementsAre(2U, 1U));
}

TEST(EngineLoop, ABatchThatFailsOnceCostsNobodyAnAnswer) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 5));
  bench.engine.generate(ask(2, 10, 5));
  bench.engine.step();
  bench.model.fail_next = true;
  bench.run_until_done();
  EXPECT_TRUE(bench.events.of<lines::Failed>().empty());
  EXPECT_EQ(bench.events.of<lines::Done>().size(), 2U);
}

TEST(EngineLoop, RefusalsNameTheRequestAndCostNothing) {
  EngineBench bench;
  bench.engine.generate(ask(1, 5000, 1));
  bench.engine.generate(ask(2, 0, 1));
  EXPECT_EQ(bench.engine.step(), Pace::idle);
  const auto failed = bench.events.of<lines::Failed>();
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_EQ(failed[0].id, 1U);
  EXPECT_THAT(failed[0].reason, HasSubstr("longer than the context"));
  EXPECT_EQ(failed[1].id, 2U);
}

TEST(EngineLoop, SamplingParametersOutOfRangeAreRefusedBeforeAnythingElse) {
  EngineBench bench;
  auto request = ask(3, 10, 1);
  request.sampling.top_p = 7;
  bench.engine.generate(std::move(request));
  EXPECT_EQ(bench.events.of<lines::Failed>().at(0).id, 3U);
  EXPECT_EQ(bench.engine.open_requests(), 0U);
  EXPECT_EQ(bench.engine.step(), Pace::idle);
}

// An answer that ignores its grammar would be wrong.
TEST(EngineLoop, AGrammarThatTheModelCannotUseIsRefused) {
  EngineBench bench;
  auto request = ask(3, 10, 1);
  request.grammar = "root ::= \"yes\"";
  bench.engine.generate(std::move(request));
  EXPECT_THAT(bench.events.of<lines::Failed>().at(0).reason, HasSubstr("grammar"));
  EXPECT_EQ(bench.engine.open_requests(), 0U);
}

TEST(EngineLoop, LogProbabilitiesFollowEachToken) {
  EngineBench bench;
  auto request = ask(1, 10, 2);
  request.sampling.logprobs = 3;
  bench.engine.generate(std::move(request));
  bench.run_until_done();
  const auto probabilities = bench.events.of<lines::LogProbs>();
  ASSERT_EQ(probabilities.size(), 2U);
  EXPECT_EQ(probabilities[0].token, 10);
  EXPECT_EQ(probabilities[0].top.size(), 3U);
}

TEST(EngineLoop, AnIdInUseIsRefusedWithoutTouchingItsOwner) {
  EngineBench bench;
  bench.engine.generate(ask(1, 10, 3));
  bench.engine.generate(ask(1, 10, 3));
  bench.run_until_done();
  const auto failed = bench.events.of<lines::Failed>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_FALSE(failed[0].id.has_value());
  EXPECT_EQ(bench.events.of<lines::Done>().size(), 1U);
}

TEST(EngineLoop, ASlotThatCannotServeFailsItsRequest) {
  EngineBench bench;
  bench.tiers.failures[1] = "device lost";
  bench.engine.generate(ask(1, 10, 3));
  bench.run_until_done();
  EXPECT_EQ(bench.events.of<lines::Failed>().at(0).reason, "device lost");
}

TEST(EngineLoop, MoreRequestsThanSlotsAreAllAnswered) {
  EngineBench bench(2);
  for (RequestId id = 1; id <= 9; ++id) bench.engine.generate(ask(id, 50, 4));
  EXPECT_EQ(bench.metrics.value("llamacpp:requests_deferred"), 9);
  bench.run_until_done();
  EXPECT_EQ(bench.events.of<lines::Done>().size(), 9U);
  EXPECT_EQ(bench.metrics.value("llamacpp:requests_deferred"), 0);
  EXPECT_EQ(bench.metrics.value("llamacpp:requests_processing"), 0);
}

TEST(EngineLoop, ProgressIsReportedAtTheEndsAndNoMoreOftenThanAsked) {
  EngineBench bench;
  bench.engine.generate(ask(1, 2560, 0));
  while (bench.engine.open_requests() > 0) {
    bench.engine.step();
    bench.clock.advance(200'000'000);
  }
  std::vector<uint32_t> seen;
  for (const auto& progress : bench.events.of<lines::PromptProgress>()) seen.push_back(progress.done);
  EXPECT_THAT(seen, ElementsAre(0, 1024, 1792, 2560));
}

// B-5: only steps that read and do not answer say how fast reading is.
TEST(EngineLoop, ReadingSpeedIsMeasuredWhenNobodyAnswers) {
  EngineBench bench;
  bench.engine.generate(ask(1, 300, 2));
  bench.run_until_done();
  EXPECT_EQ(bench.tiers.observed_prompt_tokens, 300U);
}

TEST(EngineLoop, IsIdleWithoutRequests) {
  EngineBench bench;
  EXPECT_EQ(bench.engine.step(), Pace::idle);
}

// OBS-1: the reason is in the line and in the event.
TEST(EngineLoop, TheLogLineKeepsItsShape) {
  EngineBench bench;
  bench.tiers.placements[1] = {kNoSlot,       90, Tier::disk, {ReadReason::prefix_changed, 90},
                               3'300'000'000, 1,  1};
  bench.engine.generate(ask(1, 100, 0));
  while (bench.engine.open_requests() > 0) {
    bench.engine.step();
    bench.clock.advance(20'000'000);
  }
  ASSERT_EQ(bench.log.lines().size(), 1U);
  EXPECT_EQ(bench.log.lines()[0].text,
            "strata: prompt 100 tokens = 90 reused + 10 read in 0.0 ms (0.0 tok/s), 0 generated in 0.0 ms "
            "(0.0 tok/s), "
            "because prefix_changed@90, reused from the disk in 3.3 s");
  EXPECT_EQ(bench.events.of<lines::Done>().at(0).reason, "prefix_changed@90");
}

}  // namespace
}  // namespace strata
