// Random histories of switching agents over small budgets: at every step the budgets hold (invariants 2 and
// 3, DISK-3), and every answer equals that of a world without a cache (invariant 1), whatever was parked,
// spilled, evicted, forked or restarted in between.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

struct History {
  const char* layout;
  int stages;
  uint64_t seed;
};

// One agent: its conversation so far.
struct Agent {
  std::vector<Token> tokens;
  uint64_t born = 0;
};

class Histories : public ::testing::TestWithParam<History> {
 protected:
  static constexpr uint64_t kRam = 700 << 10;
  static constexpr uint64_t kDisk = 1200 << 10;
  static constexpr uint32_t kGenerate = 3;

  StackWorldOptions options(TierOptions tiers, int slots) const {
    StackWorldOptions world;
    world.layout = GetParam().layout;
    world.stages = GetParam().stages;
    world.slots = slots;
    world.seed = GetParam().seed;
    world.tiers = tiers;
    return world;
  }
  // What a model that was never interrupted answers to these tokens.
  Answer expected(StackWorld& plain, const std::vector<Token>& prompt) const {
    TierRequest request;
    request.use_cache = false;
    return plain.ask(prompt, kGenerate, request);
  }
};

std::vector<Token> grow(const std::vector<Token>& from, uint64_t seed, uint32_t tokens) {
  std::vector<Token> next = from;
  const std::vector<Token> more = prompt_of(seed, tokens);
  next.insert(next.end(), more.begin(), more.end());
  return next;
}

TEST_P(Histories, KeepBudgetsAndAnswers) {
  FakeRandom random(GetParam().seed);
  StackWorld plain(options({}, 1));
  TierOptions tiers = ram_and_disk(kRam, kDisk);
  tiers.checkpoints_every_tokens = 64;
  StackWorld world(options(tiers, 2));
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  world.after_step = [&](StackWorld& w) {
    const TierStatus status = w.stack().status();
    ASSERT_LE(status.ram_bytes, kRam);
    ASSERT_LE(status.disk_bytes, kDisk);
    ASSERT_LE(w.files().allocated_bytes(), kDisk);
  };
  const std::vector<Token> system = prompt_of(1, 70);
  std::vector<Agent> agents(5);
  for (size_t i = 0; i < agents.size(); ++i) agents[i].tokens = grow(system, 100 + i, 40);
  std::map<Tier, int> tiers_seen;
  for (int turn = 0; turn < 60; ++turn) {
    Agent& agent = agents[random.next() % agents.size()];
    if (agent.tokens.size() > 400) agent.tokens = grow(system, random.next(), 30);  // a new task
    if (random.next() % 9 == 0 && agent.tokens.size() > 200) {
      agent.tokens.resize(agent.tokens.size() - 60);  // the history is rewritten some way back
      agent.tokens = grow(agent.tokens, random.next(), 20);
    }
    world.options().writes_run = random.next() % 3 != 0;
    const Answer answer = world.ask(agent.tokens, kGenerate);
    ASSERT_TRUE(answer.failure.empty()) << answer.failure;
    ASSERT_EQ(answer, expected(plain, agent.tokens))
        << "turn " << turn << " reused " << answer.placement.reused_tokens << " from "
        << to_string(answer.placement.tier);
    ++tiers_seen[answer.placement.tier];
    agent.tokens.insert(agent.tokens.end(), answer.tokens.begin(), answer.tokens.end());
    agent.tokens = grow(agent.tokens, random.next(), 5 + static_cast<uint32_t>(random.next() % 40));
    if (random.next() % 15 == 0) {
      if (random.next() % 2 == 0) world.shutdown();
      world.restart();
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(tiers_seen[Tier::ram] + tiers_seen[Tier::disk], 10);
  world.settle();
  EXPECT_EQ(world.log().count("quarantined"), 0u);
}

std::vector<History> histories() {
  std::vector<History> list;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    list.push_back({"attention", 1 + static_cast<int>(seed % 2), seed});
    list.push_back({"sliding", 1 + static_cast<int>(seed % 2), seed});
    list.push_back({"hybrid", 1 + static_cast<int>(seed % 2), seed});
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Seeds, Histories, ::testing::ValuesIn(histories()), [](const auto& named) {
  return std::string(named.param.layout) + std::to_string(named.param.stages) + "seed" +
         std::to_string(named.param.seed);
});

}  // namespace
}  // namespace strata::testing
