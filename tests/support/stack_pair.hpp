// A world with tiers and one without, side by side: every answer of the first is held against the second's
// (invariant 1). One thread.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/stack_world.hpp"

namespace strata::testing {

class StackPair : public ::testing::Test {
 protected:
  static constexpr uint32_t kGenerate = 4;
  static constexpr uint64_t kMinuteNs = 60'000'000'000;

  StackWorld& make(const StackWorldOptions& options) {
    const std::string shape = options.layout + std::to_string(options.stages) + (options.whole ? "w" : "b");
    if (shape != shape_) {
      StackWorldOptions plain = options;
      plain.tiers = {};
      plain.slots = 1;
      plain_ = std::make_unique<StackWorld>(plain);
      known_.clear();
      shape_ = shape;
    }
    world_ = std::make_unique<StackWorld>(options);
    EXPECT_TRUE(world_->opened.ok()) << world_->opened.error().message;
    return *world_;
  }
  StackWorld& make(const TierOptions& tiers, int slots = 1, const std::string& layout = "attention",
                   int stages = 1) {
    StackWorldOptions options;
    options.slots = slots;
    options.layout = layout;
    options.stages = stages;
    options.tiers = tiers;
    return make(options);
  }
  // What a model that was never interrupted answers.
  Answer expected(const std::vector<Token>& prompt, uint32_t generate = kGenerate) {
    Answer& answer = known_[{prompt, generate}];
    if (!answer.tokens.empty()) return answer;
    TierRequest uncached;
    uncached.use_cache = false;
    return answer = plain_->ask(prompt, generate, uncached);
  }
  void expect_exact(const Answer& answer, const std::vector<Token>& prompt, uint32_t generate = kGenerate) {
    EXPECT_TRUE(answer.failure.empty()) << answer.failure;
    EXPECT_EQ(answer, expected(prompt, generate))
        << "reused " << answer.placement.reused_tokens << " from " << to_string(answer.placement.tier);
  }
  Answer ask(const std::vector<Token>& prompt, TierRequest extra = {}) {
    const Answer answer = world_->ask(prompt, kGenerate, std::move(extra));
    expect_exact(answer, prompt);
    return answer;
  }
  // Asks and expects so many reused tokens from there.
  Answer expect_reused(uint32_t tokens, Tier tier, const std::vector<Token>& prompt, TierRequest extra = {}) {
    const Answer answer = ask(prompt, std::move(extra));
    EXPECT_EQ(answer.placement.reused_tokens, tokens) << to_string(answer.placement.cause);
    EXPECT_EQ(answer.placement.tier, tier) << to_string(answer.placement.tier);
    return answer;
  }
  // Answers all requests that were launched, and checks each.
  void run(std::vector<InFlight>& requests) {
    world_->run(requests);
    for (const InFlight& request : requests) expect_exact(request.answer, request.prompt, request.generate);
  }
  // Whether a request with this prompt could be placed from a tier; nothing is asked.
  [[nodiscard]] double skips(const std::string& tier, const std::string& reason) const {
    return world_->metrics().value("strata_skips_total", "tier=\"" + tier + "\",reason=\"" + reason + "\"");
  }
  [[nodiscard]] std::vector<std::string> files(const std::string& ending) const {
    std::vector<std::string> found;
    for (const std::string& path : world_->files().paths()) {
      if (path.ends_with(ending)) found.push_back(path);
    }
    return found;
  }
  [[nodiscard]] std::string file(const std::string& ending) const {
    const auto found = files(ending);
    return found.empty() ? "" : found.front();
  }
  [[nodiscard]] ConversationId conversation_of(uint32_t tokens) const {
    for (const StoredConversation& stored : world_->stack().conversations()) {
      if (stored.tokens == tokens) return stored.id;
    }
    ADD_FAILURE() << "no conversation of " << tokens << " tokens";
    return {};
  }

  std::unique_ptr<StackWorld> plain_;
  std::unique_ptr<StackWorld> world_;

 private:
  std::string shape_;  // of the model in plain_
  std::map<std::pair<std::vector<Token>, uint32_t>, Answer> known_;
};

// The same prompt with another token there.
[[nodiscard]] inline std::vector<Token> changed_at(std::vector<Token> prompt, uint32_t at) {
  prompt[at] = prompt[at] == 40 ? 41 : 40;
  return prompt;
}
// The first `tokens` of a prompt, and something else behind them.
[[nodiscard]] inline std::vector<Token> branch(std::vector<Token> prompt, uint32_t tokens, uint64_t seed,
                                               uint32_t more) {
  const Token other = prompt[tokens] == 40 ? 41 : 40;
  prompt.resize(tokens);
  prompt.push_back(other);
  return followed_by(std::move(prompt), seed, more - 1);
}

}  // namespace strata::testing
