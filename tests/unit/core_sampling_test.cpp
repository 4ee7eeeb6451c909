#include "core/sampling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace strata {
namespace {

using lines::SamplingParams;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Sampler sampler(const SamplingParams& params, uint64_t seed = 1) {
  auto made = Sampler::make(params, seed);
  EXPECT_TRUE(made.ok());
  return std::move(*made);
}

Token one(const SamplingParams& params, const std::vector<float>& logits) {
  return sampler(params).sample(logits)->token;
}

std::vector<Token> many(const SamplingParams& params, const std::vector<float>& logits, size_t count,
                        uint64_t fallback = 1) {
  Sampler s = sampler(params, fallback);
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(s.sample(logits)->token);
  return tokens;
}

std::vector<size_t> histogram(const std::vector<Token>& tokens, size_t size) {
  std::vector<size_t> counts(size);
  for (const Token token : tokens) ++counts[static_cast<size_t>(token)];
  return counts;
}

TEST(Sampling, GreedyTakesTheLargestAndTheLowerOfEqualOnes) {
  EXPECT_EQ(one({}, {0.5F, 2.0F, 1.0F}), 1);
  EXPECT_EQ(one({.temperature = 0.0}, {0.5F, 2.0F, 2.0F}), 1);
  EXPECT_EQ(one({}, {-1.0F, -1.0F}), 0);
  EXPECT_EQ(one({}, {kNaN, -kInfinity, -5.0F}), 2);
}

TEST(Sampling, LogitsWithoutAFiniteValueAreAnError) {
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params{.temperature = temperature};
    params.logprobs = 2;
    const auto result = sampler(params).sample(std::vector<float>{kNaN, kInfinity, -kInfinity});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::internal);
  }
  EXPECT_FALSE(sampler({}).sample({}).ok());
}

TEST(Sampling, EqualSeedsGiveEqualTokensAndOthersOthers) {
  const std::vector<float> flat(50, 0.0F);
  SamplingParams seven{.temperature = 1.0};
  seven.seed = 7;
  SamplingParams eight = seven;
  eight.seed = 8;
  EXPECT_EQ(many(seven, flat, 100, 1), many(seven, flat, 100, 2));  // the request's seed counts
  EXPECT_NE(many(seven, flat, 100), many(eight, flat, 100));
  EXPECT_NE(many({.temperature = 1.0}, flat, 100, 1), many({.temperature = 1.0}, flat, 100, 2));
}

TEST(Sampling, TheSequenceOfASeedNeverChanges) {  // answers repeat across releases
  SamplingParams params{.temperature = 1.0};
  params.seed = 42;
  EXPECT_THAT(many(params, std::vector<float>(100, 0.0F), 8),
              ::testing::ElementsAre(74, 15, 27, 34, 3, 86, 21, 80));
}

TEST(Sampling, FrequenciesFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const auto counts = histogram(many({.temperature = 1.0}, logits, 20000), 3);
  EXPECT_NEAR(static_cast<double>(counts[0]), 10000, 300);
  EXPECT_NEAR(static_cast<double>(counts[1]), 6000, 300);
  EXPECT_NEAR(static_cast<double>(counts[2]), 4000, 300);
  const auto sharp = histogram(many({.temperature = 0.5}, logits, 20000), 3);  // squares: 25 : 9 : 4
  EXPECT_NEAR(static_cast<double>(sharp[0]), 20000.0 * 25 / 38, 300);
}

TEST(Sampling, TopKKeepsTheLargest) {
  SamplingParams params{.temperature = 5.0};
  params.top_k = 2;
  const auto counts = histogram(many(params, {1.0F, 3.0F, 2.0F, 2.0F}, 500), 4);
  EXPECT_EQ(counts[0], 0U);
  EXPECT_GT(counts[1], 0U);
  EXPECT_GT(counts[2], 0U);  // of two equal ones the lower
  EXPECT_EQ(counts[3], 0U);
  params.top_k = 0;  // off
  EXPECT_GT(histogram(many(params, {1.0F, 3.0F, 2.0F, 2.0F}, 500), 4)[3], 0U);
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  SamplingParams params{.temperature = 3.0, .top_p = 0.6};
  auto counts = histogram(many(params, logits, 500), 3);
  EXPECT_GT(counts[1], 0U);
  EXPECT_EQ(counts[2], 0U);
  params.top_p = 0.0;  // the first one always stays
  counts = histogram(many(params, logits, 100), 3);
  EXPECT_EQ(counts[0], 100U);
}

TEST(Sampling, MinPIsRelativeToTheLargest) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  SamplingParams params{.temperature = 3.0};
  params.min_p = 0.5;  // 0.3 ≥ 0.5 · 0.5 > 0.2
  const auto counts = histogram(many(params, logits, 500), 3);
  EXPECT_GT(counts[1], 0U);
  EXPECT_EQ(counts[2], 0U);
}

TEST(Sampling, RepeatPenaltyPushesSeenTokensDown) {
  SamplingParams params;
  params.repeat_penalty = 2.0;
  Sampler s = sampler(params);
  EXPECT_EQ(s.sample(std::vector<float>{3.0F, 2.0F})->token, 0);
  s.accept(0);
  EXPECT_EQ(s.sample(std::vector<float>{3.0F, 2.0F})->token, 1);    // 1.5 < 2
  EXPECT_EQ(s.sample(std::vector<float>{-1.0F, -1.5F})->token, 1);  // −2 < −1.5
}

TEST(Sampling, PresenceCountsOnceAndFrequencyEachTime) {
  SamplingParams params;
  params.presence_penalty = 1.5;
  Sampler presence = sampler(params);
  for (int i = 0; i < 5; ++i) presence.accept(0);
  EXPECT_EQ(presence.sample(std::vector<float>{3.0F, 1.0F})->token, 0);
  EXPECT_EQ(presence.sample(std::vector<float>{3.0F, 2.0F})->token, 1);
  params = {};
  params.frequency_penalty = 1.0;
  Sampler frequency = sampler(params);
  frequency.accept(0);
  EXPECT_EQ(frequency.sample(std::vector<float>{3.0F, 1.0F})->token, 0);
  frequency.accept(std::vector<Token>{0, 0});
  EXPECT_EQ(frequency.sample(std::vector<float>{3.0F, 1.0F})->token, 1);
}

TEST(Sampling, OnlyTheLastTokensArePenalised) {
  SamplingParams params;
  params.presence_penalty = 10.0;
  params.repeat_last_n = 2;
  Sampler s = sampler(params);
  s.accept(std::vector<Token>{0, 0, 1, 2});
  EXPECT_EQ(s.sample(std::vector<float>{1.0F, 3.0F, 2.0F})->token, 0);
  s.accept(0);  // the last two: 2, 0
  EXPECT_EQ(s.sample(std::vector<float>{1.0F, 3.0F, 2.0F})->token, 1);
  params.repeat_last_n = 0;  // off
  Sampler off = sampler(params);
  off.accept(std::vector<Token>{1, 1});
  EXPECT_EQ(off.sample(std::vector<float>{1.0F, 3.0F, 2.0F})->token, 1);
}

TEST(Sampling, LogProbabilitiesAreTheModelsOwn) {
  const std::vector<float> logits = {std::log(0.2F) + 7, std::log(0.5F) + 7, std::log(0.3F) + 7};
  SamplingParams params{.temperature = 2.0, .top_p = 0.1};
  params.presence_penalty = 3.0;
  params.logprobs = 2;
  Sampler s = sampler(params);
  s.accept(1);
  const auto result = s.sample(logits);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, 2);
  EXPECT_NEAR(result->logprob, std::log(0.3), 1e-6);
  ASSERT_EQ(result->top.size(), 2U);
  EXPECT_EQ(result->top[0].first, 1);
  EXPECT_NEAR(result->top[0].second, std::log(0.5), 1e-6);
  EXPECT_EQ(result->top[1].first, 2);
  EXPECT_NEAR(result->top[1].second, result->logprob, 1e-12);
}

TEST(Sampling, LogProbabilitiesAreLeftOutUnlessAskedFor) {
  EXPECT_EQ(sampler({}).sample(std::vector<float>{1.0F, 2.0F})->logprob, 0.0);
  EXPECT_TRUE(sampler({}).sample(std::vector<float>{1.0F, 2.0F})->top.empty());
  SamplingParams none;
  none.logprobs = 0;  // of the token, without alternatives
  const auto result = sampler(none).sample(std::vector<float>{1.0F, 1.0F});
  EXPECT_NEAR(result->logprob, std::log(0.5), 1e-6);
  EXPECT_TRUE(result->top.empty());
  none.logprobs = 9;
  EXPECT_EQ(sampler(none).sample(std::vector<float>{1.0F, kNaN, 2.0F})->top.size(), 2U);
}

TEST(Sampling, ParametersOutOfRangeAreNamed) {
  const auto refused = [](const SamplingParams& params, const char* name) {
    const auto made = Sampler::make(params, 1);
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_EQ(made.error().code, ErrorCode::invalid);
    EXPECT_NE(made.error().message.find(name), std::string::npos) << made.error().message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused({.temperature = -0.1}, "temperature");
  refused({.temperature = nan}, "temperature");
  refused({.top_p = 1.1}, "top_p");
  SamplingParams params;
  params.min_p = -1.0;
  refused(params, "min_p");
  params = {};
  params.repeat_penalty = 0.0;
  refused(params, "repeat_penalty");
  params = {};
  params.presence_penalty = nan;
  refused(params, "presence_penalty");
  params = {};
  params.frequency_penalty = 1e9;
  refused(params, "frequency_penalty");
  params = {};
  params.logprobs = 65;
  refused(params, "logprobs");
}

}  // namespace
}  // namespace strata
