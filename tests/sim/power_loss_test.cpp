// Power loss (B-6, invariant 4, DISK-6, DISK-8): whatever the disk forgets, every conversation that was
// published is restored exactly or refused with a reason, the folder stays within its budget, and nothing
// that is not ours is touched. tools/power_loss runs more seeds, or one of them again.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/sim/power_loss_history.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kSeedsPerCase = 125;

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void run_seeds(uint64_t from, uint64_t count) {
  ColdAnswers cold;
  PowerLossCounts all;
  for (uint64_t seed = from; seed < from + count; ++seed) {
    PowerLossHistory history(seed, cold);
    const std::string failure = history.run();
    all.add(history.counts());
    if (!failure.empty()) {
      ADD_FAILURE() << failure << "\n  again: tools/power_loss --seed " << seed;
    } else if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << "\n  again: tools/power_loss --seed " << seed;
    }
    if (::testing::Test::HasFailure()) break;
    if ((seed + 1 - from) % 1000 != 0) continue;
    std::printf("%llu …\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }
  std::printf("%s\n", all.text().c_str());
  if (count < kSeedsPerCase || ::testing::Test::HasFailure()) return;
  EXPECT_GT(all.publications, count) << "something is stored before the power goes";
  EXPECT_GT(all.compactions, 0u);
  EXPECT_GT(all.restored, count);
  EXPECT_GT(all.reused, count / 2);
}

class PowerLoss : public ::testing::TestWithParam<uint64_t> {};

TEST_P(PowerLoss, B6_WhatWasPublishedIsRestoredExactlyOrRefusedWithAReason) {
  run_seeds(GetParam(), kSeedsPerCase);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PowerLoss, ::testing::Range<uint64_t>(1, 1001, kSeedsPerCase),
                         [](const auto& from) { return "from" + std::to_string(from.param); });

// What tools/power_loss runs.
TEST(PowerLossTool, Seeds) {
  const uint64_t count = number_from("STRATA_POWER_LOSS_SEEDS", 0);
  if (count == 0) GTEST_SKIP() << "seeds are asked for by tools/power_loss";
  run_seeds(number_from("STRATA_POWER_LOSS_FROM", 1), count);
}

// The control: with a sync left out, a promise is broken before long.
class ForgottenSyncs : public ::testing::TestWithParam<ForgottenSync> {};

TEST_P(ForgottenSyncs, B6_ASyncThatIsLeftOutIsMissed) {
  ColdAnswers cold;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    PowerLossHistory history(seed, cold, GetParam());
    const std::string failure = history.run();
    if (failure.empty()) continue;
    std::printf("found by seed %llu: %s\n", static_cast<unsigned long long>(seed),
                failure.substr(0, failure.find('\n')).c_str());
    return;
  }
  ADD_FAILURE() << "nobody missed it in 1000 histories";
}

std::string control_name(const ::testing::TestParamInfo<ForgottenSync>& sync) {
  constexpr const char* kNames[] = {"none",        "sessionData",   "indexData",
                                    "createdName", "publishedName", "removedName"};
  return kNames[static_cast<size_t>(sync.param)];
}
INSTANTIATE_TEST_SUITE_P(Controls, ForgottenSyncs,
                         ::testing::Values(ForgottenSync::session_data, ForgottenSync::index_data,
                                           ForgottenSync::created_name, ForgottenSync::published_name,
                                           ForgottenSync::removed_name),
                         control_name);

}  // namespace
}  // namespace strata::testing
