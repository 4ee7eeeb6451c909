// RAM-6: where checkpoints are taken and which are kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tiers/checkpoint_policy.hpp"

namespace strata {
namespace {

// Distance from the end at which an edit `edit` tokens back resumes: the nearest checkpoint before it.
uint32_t resume_distance(const std::vector<uint32_t>& kept, uint32_t length, uint32_t edit) {
  uint32_t best = length;
  for (const uint32_t position : kept) {
    if (length - position >= edit) best = std::min(best, length - position);
  }
  return best;
}

// The worst ratio of resume distance to edit distance over edits in [from, to].
double worst_factor(const std::vector<uint32_t>& kept, uint32_t length, uint32_t from, uint32_t to) {
  double worst = 0;
  for (uint32_t edit = from; edit <= to; edit += 50) {
    worst = std::max(worst, static_cast<double>(resume_distance(kept, length, edit)) / edit);
  }
  return worst;
}

TEST(CheckpointPolicy, RAM6_OneLongPromptLeavesACheckpointNearEveryUsualEdit) {
  const CheckpointRules rules;
  const std::vector<uint32_t> borders = {4000};
  for (const uint32_t length : {60000u, 120000u, 210000u, 211337u, 500000u}) {
    const auto positions = checkpoint_positions(0, length, borders, rules);
    const auto kept = checkpoints_to_keep(positions, length, 4000, rules);
    EXPECT_LE(kept.size(), rules.max);
    EXPECT_EQ(kept.front(), 4000u);
    EXPECT_LE(worst_factor(kept, length, 2000, 20000), 2.2) << length;
  }
}

TEST(CheckpointPolicy, RAM6_WithoutSpreadTheSameEditFallsFarBack) {
  CheckpointRules rules;
  rules.spread = false;
  const auto positions = checkpoint_positions(0, 210000, std::vector<uint32_t>{4000}, rules);
  const auto kept = checkpoints_to_keep(positions, 210000, 4000, rules);
  EXPECT_GT(worst_factor(kept, 210000, 2000, 20000), 5) << "the control must fail where the rule succeeds";
}

// A conversation that grows turn by turn, as agents' do: at every length an edit finds a checkpoint close by.
TEST(CheckpointPolicy, RAM6_AGrowingConversationKeepsItsCheckpointsSpread) {
  const CheckpointRules rules;
  double sum_of_worst = 0;
  uint32_t turns = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    uint32_t length = 6000;
    std::vector<uint32_t> kept = checkpoint_positions(0, length, std::vector<uint32_t>{4000}, rules);
    while (length < 210000) {
      const uint32_t from = length;
      length += 300 + random() % 4000;
      const std::vector<uint32_t> borders = {4000, from + 20};
      for (const uint32_t at : checkpoint_positions(from, length, borders, rules)) {
        kept.push_back(at);
        kept = checkpoints_to_keep(kept, at, 4000, rules);
      }
      kept = checkpoints_to_keep(kept, length, 4000, rules);
      ASSERT_LE(kept.size(), rules.max);
      ASSERT_TRUE(std::binary_search(kept.begin(), kept.end(), 4000u)) << "the root is never given up";
      if (length > 60000) {
        const double worst = worst_factor(kept, length, 2000, 20000);
        ASSERT_LE(worst, 4.0) << seed << " at " << length;
        sum_of_worst += worst;
        ++turns;
      }
    }
  }
  EXPECT_LE(sum_of_worst / turns, 2.6) << "of the worst edit after each turn, on average";
}

TEST(CheckpointPolicy, RAM6_PositionsLieInsideAndAreBounded) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    CheckpointRules rules;
    rules.max = random() % 9;
    rules.every_tokens = random() % 3 == 0 ? 0 : 1 + random() % 20000;
    rules.spread = random() % 2 == 0;
    const uint32_t from = random() % 50000;
    const uint32_t to = from + random() % 250000;
    std::vector<uint32_t> borders(random() % 400);
    for (uint32_t& border : borders) border = random() % 300000;
    std::sort(borders.begin(), borders.end());
    const auto positions = checkpoint_positions(from, to, borders, rules);
    EXPECT_LE(positions.size(), size_t{4} * rules.max);
    EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
    EXPECT_EQ(std::adjacent_find(positions.begin(), positions.end()), positions.end());
    for (const uint32_t at : positions) EXPECT_TRUE(at > from && at < to) << at;
    if (rules.max > 0 && !borders.empty() && borders[0] > from && borders[0] < to) {
      EXPECT_TRUE(std::binary_search(positions.begin(), positions.end(), borders[0]))
          << "end of the system prompt";
    }
  }
}

TEST(CheckpointPolicy, RAM6_BordersAndDistanceAreUsedWhereThereIsRoom) {
  CheckpointRules rules;
  rules.spread = false;
  rules.every_tokens = 1000;
  EXPECT_EQ(checkpoint_positions(500, 3500, std::vector<uint32_t>{100, 700, 1500, 3500}, rules),
            (std::vector<uint32_t>{700, 1000, 1500, 2000, 3000}));
  rules.every_tokens = 0;
  EXPECT_EQ(checkpoint_positions(500, 3500, std::vector<uint32_t>{700}, rules), std::vector<uint32_t>{700});
}

TEST(CheckpointPolicy, RAM6_ABorderNearASpreadPositionStandsForIt) {
  CheckpointRules rules;
  rules.every_tokens = 0;
  const auto positions = checkpoint_positions(0, 8192, std::vector<uint32_t>{8192 - 1100}, rules);
  EXPECT_TRUE(std::binary_search(positions.begin(), positions.end(), 8192u - 1100));
  EXPECT_FALSE(std::binary_search(positions.begin(), positions.end(), 8192u - 1024));
}

TEST(CheckpointPolicy, RAM6_ZeroIsOff) {
  CheckpointRules rules;
  rules.max = 0;
  EXPECT_TRUE(checkpoint_positions(0, 100000, std::vector<uint32_t>{500}, rules).empty());
  EXPECT_TRUE(checkpoints_to_keep(std::vector<uint32_t>{500, 900}, 1000, 500, rules).empty());
}

TEST(CheckpointPolicy, RAM6_FewAreAllKeptAndOneIsTheRoot) {
  CheckpointRules rules;
  const std::vector<uint32_t> few = {10, 20, 30};
  EXPECT_EQ(checkpoints_to_keep(few, 40, 0, rules), few);
  rules.max = 1;
  EXPECT_EQ(checkpoints_to_keep(few, 40, 10, rules), std::vector<uint32_t>{10});
  rules.spread = false;
  EXPECT_EQ(checkpoints_to_keep(few, 40, 10, rules), std::vector<uint32_t>{10});
  EXPECT_EQ(checkpoints_to_keep(few, 40, 0, rules), std::vector<uint32_t>{30});
}

TEST(CheckpointPolicy, RAM6_KeepingIsASubsetForAnyInput) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    CheckpointRules rules;
    rules.max = 1 + random() % 8;
    rules.spread = random() % 2 == 0;
    const uint32_t length = 100 + random() % 300000;
    std::vector<uint32_t> positions(1 + random() % 40);
    for (uint32_t& at : positions) at = 1 + random() % length;
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    const uint32_t root = random() % 2 == 0 ? positions.front() : 0;
    const auto kept = checkpoints_to_keep(positions, length, root, rules);
    EXPECT_FALSE(kept.empty());
    EXPECT_LE(kept.size(), rules.max);
    EXPECT_TRUE(std::includes(positions.begin(), positions.end(), kept.begin(), kept.end()));
    if (root != 0) {
      EXPECT_EQ(kept.front(), root);
    }
  }
}

TEST(CheckpointPolicy, HostileInputStaysCheap) {
  CheckpointRules rules;
  rules.every_tokens = 1;
  std::vector<uint32_t> borders(1u << 20);
  for (uint32_t i = 0; i < borders.size(); ++i) borders[i] = i + 1;
  EXPECT_LE(checkpoint_positions(0, 1u << 20, borders, rules).size(), 24u);
}

}  // namespace
}  // namespace strata
