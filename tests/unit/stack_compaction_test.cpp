// Space of session files: reused, given back, or won by compaction, crash-safely; never without bound.
#include <gtest/gtest.h>

#include "core/manifest.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
const std::vector<FileFault> kNoPunch{{FileCall::punch, 1, EOPNOTSUPP, true}};

class StackCompaction : public StackPair {
 protected:
  StackWorld& make_world(bool punches) {
    StackWorldOptions options;
    options.slots = 1;
    options.context = 2048;
    options.tiers = ram_and_disk(2 << 20, 64 << 20);
    options.tiers.write_policy = WritePolicy::through;
    StackWorld& world = make(options);
    if (!punches) world.faulty_files().set_plan(kNoPunch);
    return world;
  }
  // A long conversation, and a short one that shares its first tokens; then the long one goes.
  void leave_garbage(StackWorld& world) {
    ask(long_);
    world.settle();
    const Answer answer = ask(short_);
    next_ = next_prompt(short_, answer, 9, 8);
    world.settle();
    // Both out of the slot and of RAM.
    for (uint64_t i = 3; i < 5; ++i) {
      ask(prompt_of(i, 960));
      world.settle();
    }
    ASSERT_TRUE(world.stack().forget(conversation_of(1504)).ok());
    world.settle();
  }
  void pass_a_tick(StackWorld& world) {
    world.clock().advance(2 * kSecondNs);
    world.settle();
  }
  [[nodiscard]] double compactions() const { return world_->metrics().value("strata_compactions_total", ""); }
  [[nodiscard]] uint64_t payload() const {
    uint64_t sum = 0;
    for (const StoredConversation& stored : world_->stack().conversations()) sum += stored.disk_bytes;
    return sum;
  }
  void expect_published_is_whole() {
    for (const std::string& path : files(".idx")) {
      const std::string name = path.substr(path.rfind('/') + 1);
      const auto id = parse_conversation_file_name(name, "idx");
      ASSERT_TRUE(id.ok());
      const auto manifest = read_published(world_->files(), StackWorld::kFolder, *id);
      EXPECT_TRUE(manifest.ok()) << manifest.error().message;
    }
  }

  const std::vector<Token> long_ = prompt_of(1, 1500);
  const std::vector<Token> short_ = branch(long_, 400, 7, 40);
  std::vector<Token> next_;
};

TEST_F(StackCompaction, AFileOfWhichLessThanHalfIsInUseIsWrittenAnew) {
  StackWorld& world = make_world(false);
  leave_garbage(world);
  const uint64_t before = world.files().allocated_bytes();
  pass_a_tick(world);
  EXPECT_EQ(compactions(), 1);
  EXPECT_LT(world.files().allocated_bytes() + (900u << 10), before);
  EXPECT_LE(world.files().allocated_bytes(), payload() + (256u << 10));
  expect_published_is_whole();
  expect_reused(static_cast<uint32_t>(next_.size()) - 8, Tier::disk, next_);
  world.settle();
  world.shutdown();
  world.restart();
  expect_reused(static_cast<uint32_t>(next_.size()) - 1, Tier::disk, next_);
  EXPECT_EQ(compactions(), 1) << "nothing more to win";
}

TEST_F(StackCompaction, WhereHolesArePunchedThereIsNothingToWin) {
  StackWorld& world = make_world(true);
  leave_garbage(world);
  EXPECT_LE(world.files().allocated_bytes(), payload() + (256u << 10));
  pass_a_tick(world);
  EXPECT_EQ(compactions(), 0);
}

// Extents that became free while nobody knew who else used them.
TEST_F(StackCompaction, WhatARestartForgotIsWonBack) {
  StackWorld& world = make_world(true);
  ask(long_);
  world.settle();
  const Answer answer = ask(short_);
  next_ = next_prompt(short_, answer, 9, 8);
  world.settle();
  world.shutdown();
  world.restart();
  ASSERT_TRUE(world.stack().forget(conversation_of(1504)).ok());
  world.settle();
  const uint64_t before = world.files().allocated_bytes();
  pass_a_tick(world);
  EXPECT_EQ(compactions(), 0) << "its extents are not known yet";
  expect_reused(static_cast<uint32_t>(next_.size()) - 8, Tier::disk, next_);
  pass_a_tick(world);
  EXPECT_EQ(compactions(), 1);
  EXPECT_LT(world.files().allocated_bytes() + (900u << 10), before);
  world.restart();
  expect_reused(static_cast<uint32_t>(next_.size()) - 1, Tier::disk, next_);
}

TEST_F(StackCompaction, AConversationIsReadWhileItsFileIsCompacted) {
  StackWorld& world = make_world(false);
  leave_garbage(world);
  world.options().writes_run = false;
  world.clock().advance(2 * kSecondNs);
  world.step(3);
  ASSERT_EQ(world.writer().waiting(), 1u);
  const RequestId reading = world.begin(next_);
  for (int i = 0; i < 4; ++i) world.step();
  ASSERT_TRUE(world.writer().run_one());
  ASSERT_TRUE(world.place(reading));
  EXPECT_EQ(world.stack().placement(reading).reused_tokens, next_.size() - 8);
  expect_exact(world.answer(reading, next_, kGenerate), next_);
  world.end(reading);
  world.options().writes_run = true;
  world.settle();
  EXPECT_EQ(compactions(), 1);
  expect_published_is_whole();
}

// Nobody waits for it: what else is to be written ends it, quietly, and it is tried again later.
TEST_F(StackCompaction, Invariant7_ItGivesWayToWhatElseIsToBeWritten) {
  StackWorld& world = make_world(false);
  leave_garbage(world);
  const double skips_before = skips("disk", "cancelled");
  const auto before = world.files().paths();
  world.options().writes_run = false;
  world.clock().advance(2 * kSecondNs);
  world.step(3);
  ASSERT_EQ(world.writer().waiting(), 1u) << "the compaction";
  ask(prompt_of(8, 60));
  world.step(200);  // written through: it waits behind the compaction
  ASSERT_GE(world.writer().waiting(), 1u);
  ASSERT_TRUE(world.writer().run_one());
  world.step();
  EXPECT_EQ(compactions(), 0);
  EXPECT_EQ(world.files().paths(), before) << "nothing is left of it";
  EXPECT_EQ(skips("disk", "cancelled"), skips_before);
  world.options().writes_run = true;
  world.settle();
  world.clock().advance(20 * kSecondNs);
  world.settle();
  EXPECT_EQ(compactions(), 1);
  expect_reused(static_cast<uint32_t>(next_.size()) - 8, Tier::disk, next_);
}

TEST_F(StackCompaction, AShutdownDoesNotWaitForIt) {
  StackWorld& world = make_world(false);
  leave_garbage(world);
  world.clock().advance(2 * kSecondNs);
  world.shutdown();
  EXPECT_EQ(compactions(), 0);
}

// Damaged bytes are found while they are copied; they are left for the restore that needs them, and one try
// is enough.
TEST_F(StackCompaction, ADamagedFileIsTriedOnce) {
  StackWorld& world = make_world(false);
  leave_garbage(world);
  for (const std::string& path : files(".sess"))
    world.files().flip_byte(path, limits::kSessionHeaderBytes + 5);
  for (int i = 0; i < 4; ++i) {
    world.clock().advance(20 * kSecondNs);
    world.settle();
  }
  EXPECT_EQ(compactions(), 0);
  EXPECT_EQ(skips("disk", "corrupt"), 1);
}

// B-6: whatever fails, and wherever a crash comes: what was published is there.
TEST_F(StackCompaction, B6_EachCallFailsOnceAndNothingIsLost) {
  bool clean = false;
  for (uint64_t nth = 1; nth < 200 && !clean && !HasFailure(); ++nth) {
    StackWorld& world = make_world(false);
    leave_garbage(world);
    world.faulty_files().set_plan({{FileCall::punch, 1, EOPNOTSUPP, true}, {FileCall::any, nth, EIO}});
    pass_a_tick(world);
    const uint64_t punches = world.faulty_files().calls(FileCall::punch);
    clean = world.faulty_files().faults() <= punches;
    world.faulty_files().set_plan(kNoPunch);
    expect_published_is_whole();
    if (nth % 2 == 0) world.restart();
    expect_reused(static_cast<uint32_t>(next_.size()) - 8, Tier::disk, next_);
    EXPECT_LE(world.files().open_files(), 1u) << "the lock";
    pass_a_tick(world);
    EXPECT_LE(world.stack().status().disk_bytes, 64u << 20);
    EXPECT_GE(world.stack().status().disk_bytes, world.files().allocated_bytes());
    if (HasFailure()) ADD_FAILURE() << "call " << nth;
  }
  EXPECT_TRUE(clean);
}

TEST_F(StackCompaction, ACrashBehindAnyIndexLeavesEverythingThere) {
  for (uint64_t cut = 1; cut < 60; ++cut) {
    StackWorld& world = make_world(false);
    leave_garbage(world);
    world.faulty_files().set_plan(
        {{FileCall::any, cut, EIO, true}});  // from here on nothing reaches the disk
    world.clock().advance(2 * kSecondNs);
    for (int i = 0; i < 30; ++i) world.step();
    const bool over = world.faulty_files().faults() == 0;
    world.faulty_files().set_plan(kNoPunch);
    world.restart();
    expect_reused(static_cast<uint32_t>(next_.size()) - 8, Tier::disk, next_);
    if (HasFailure()) FAIL() << "cut at call " << cut;
    if (over) return;
  }
}

// A thousand turns, each published: the file holds the conversation and a little more.
TEST_F(StackCompaction, B1_AFileDoesNotGrowWithoutBoundOverAThousandTurns) {
  for (const bool whole : {false, true}) {
    for (const bool punches : {true, false}) {
      StackWorldOptions options;
      options.slots = 1;
      options.context = 2048;
      options.whole = whole;
      options.tiers = ram_and_disk(4 << 20, 64 << 20);
      options.tiers.write_policy = WritePolicy::through;
      StackWorld& world = make(options);
      if (!punches) world.faulty_files().set_plan(kNoPunch);
      std::vector<Token> prompt = prompt_of(5, 40);
      for (uint64_t turn = 0; turn < 1000; ++turn) {
        if (prompt.size() > 100) prompt = prompt_of(5, 40);  // back to where it began
        const Answer answer = world.ask(prompt, 2);
        ASSERT_TRUE(answer.failure.empty());
        prompt = next_prompt(prompt, answer, turn, 3);
        world.step(20);
        if (turn % 100 == 0) pass_a_tick(world);
      }
      pass_a_tick(world);
      EXPECT_LE(world.files().allocated_bytes(), 3 * payload() + (1u << 20) + (64u << 10))
          << "whole " << whole << ", holes " << punches;
      expect_published_is_whole();
    }
  }
}

}  // namespace
}  // namespace strata::testing
