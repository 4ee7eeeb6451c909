// DISK-7: at shutdown every slot's conversation reaches the disk, also when RAM holds only one of them at a
// time.
#include <gtest/gtest.h>

#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

TEST(StackShutdown, WritesOneAfterTheOtherWhenRamHoldsOnlyOne) {
  StackWorldOptions options;
  options.slots = 3;
  options.tiers = ram_and_disk(400 << 10, 64 << 20);
  StackWorld world(options);
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  std::vector<std::vector<Token>> prompts;
  for (uint64_t i = 0; i < 3; ++i) {
    prompts.push_back(prompt_of(30 + i, 300));
    ASSERT_TRUE(world.ask(prompts.back(), 2).failure.empty());
  }
  world.shutdown();
  EXPECT_EQ(world.stack().drain_progress().conversations, 3u);
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, 3u);
  for (const auto& prompt : prompts) EXPECT_EQ(world.ask(prompt, 1).placement.tier, Tier::disk);
}

TEST(StackShutdown, EndsAlthoughTheDiskTakesNothing) {
  StackWorldOptions options;
  options.slots = 2;
  options.tiers = ram_and_disk(400 << 10, 100 << 10);  // no conversation fits the disk
  StackWorld world(options);
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  for (uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(world.ask(prompt_of(30 + i, 300), 2).failure.empty());
  world.shutdown();
  EXPECT_EQ(world.stack().drain_progress().conversations, 0u);
  EXPECT_TRUE(world.log().contains("too_large"));
}

}  // namespace
}  // namespace strata::testing
