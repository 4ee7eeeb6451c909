// B-5: restore or recompute by measurement.
#include <gtest/gtest.h>

#include "tiers/cost_model.hpp"

namespace strata {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kMB = 1'000'000;

TEST(CostModel, B5_WhatNobodyMeasuredNeverDecidesAgainstARestore) {
  CostModel model;
  EXPECT_FALSE(model.cheaper_to_read(1ull << 40, 1ull << 40, 1));
  model.observe_prompt(1000, 1 * kMs);
  EXPECT_FALSE(model.cheaper_to_read(1ull << 40, 1ull << 40, 1));
  model.observe_copy(kMB, 1000 * kMs);
  EXPECT_FALSE(model.cheaper_to_read(1ull << 40, 1ull << 40, 1)) << "the disk's rate is still unknown";
  EXPECT_EQ(model.predict_restore_ns(1, 1), 0u);
  EXPECT_TRUE(model.cheaper_to_read(0, 1ull << 40, 1)) << "from RAM only the copy counts";
}

TEST(CostModel, B5_TheSlowerOfDiskAndCopyDecides) {
  CostModel model;
  model.observe_disk_read(100 * kMB, 100 * kMs);
  model.observe_copy(100 * kMB, 10 * kMs);
  EXPECT_EQ(model.predict_restore_ns(200 * kMB, 200 * kMB), 200 * kMs);
  EXPECT_EQ(model.predict_restore_ns(0, 200 * kMB), 20 * kMs);
}

TEST(CostModel, B5_DigestsCountForWhatComesFromTheDisk) {
  CostModel model;
  model.observe_disk_read(100 * kMB, 100 * kMs);
  model.observe_digest(100 * kMB, 400 * kMs);
  model.observe_copy(100 * kMB, 10 * kMs);
  EXPECT_EQ(model.predict_restore_ns(100 * kMB, 200 * kMB), 400 * kMs);
  EXPECT_EQ(model.predict_restore_ns(0, 200 * kMB), 20 * kMs) << "from RAM nothing is checked";
}

TEST(CostModel, B5_ReadingMustBeClearlyCheaper) {
  CostModel model;
  model.observe_disk_read(100 * kMB, 100 * kMs);
  model.observe_prompt(1000, 1000 * kMs);
  EXPECT_EQ(model.predict_read_ns(100), 100 * kMs);
  EXPECT_FALSE(model.cheaper_to_read(120 * kMB, 0, 100));
  EXPECT_TRUE(model.cheaper_to_read(130 * kMB, 0, 100));
}

TEST(CostModel, ARateFollowsTheMachineAndSmallTransfersBarelyMoveIt) {
  CostModel model;
  model.observe_disk_read(1000 * kMB, 1000 * kMs);
  model.observe_disk_read(1000, 10 * kMs);  // latency, not throughput
  EXPECT_LT(model.predict_restore_ns(1000 * kMB, 0), 1020 * kMs);
  for (int i = 0; i < 20; ++i) model.observe_disk_read(1000 * kMB, 4000 * kMs);
  EXPECT_GT(model.predict_restore_ns(1000 * kMB, 0), 3900 * kMs);
  EXPECT_LE(model.predict_restore_ns(1000 * kMB, 0), 4000 * kMs);
}

TEST(CostModel, ObservationsWithoutAmountOrTimeAreIgnored) {
  CostModel model;
  model.observe_disk_read(0, 5);
  model.observe_disk_read(5, 0);
  model.observe_prompt(0, 5);
  EXPECT_EQ(model.predict_restore_ns(5, 0), 0u);
  EXPECT_EQ(model.predict_read_ns(5), 0u);
}

}  // namespace
}  // namespace strata
