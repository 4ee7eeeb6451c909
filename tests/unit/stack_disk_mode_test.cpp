// Disk mode, DM-1 to DM-4: conversations are parked straight to the disk and streamed back; RAM holds
// metadata and a few buffers. Every answer is held against a world without a cache.
#include <gtest/gtest.h>

#include <set>

#include "core/manifest.hpp"
#include "core/session_file.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"
#include "tiers/pinned_pool.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kBlockBytes = 16 * 1024;  // of 16 tokens, attention

TierOptions disk_mode(uint64_t disk_bytes) {
  TierOptions tiers = ram_and_disk(0, disk_bytes);
  tiers.disk_mode = true;
  return tiers;
}

class StackDiskMode : public StackPair {
 protected:
  [[nodiscard]] uint64_t extent_bytes_written() const {
    uint64_t sum = 0;
    for (const std::string& call : world_->recorded_files().calls) {
      const bool session = call.starts_with("write ") && call.find(".sess ") != std::string::npos;
      if (session) sum += std::stoull(call.substr(call.find('+') + 1));
    }
    return sum;
  }
};

struct Shape {
  const char* layout;
  int stages;
  bool whole;
};
class StackDiskModeShapes : public StackDiskMode, public ::testing::WithParamInterface<Shape> {};

TEST_P(StackDiskModeShapes, DM1_ParkedToTheDiskAndStreamedBackExactly) {
  StackWorldOptions options;
  options.layout = GetParam().layout;
  options.stages = GetParam().stages;
  options.whole = GetParam().whole;
  options.slots = 1;
  options.tiers = disk_mode(64 << 20);
  StackWorld& world = make(options);
  const auto a = prompt_of(1, 300);
  const auto b = prompt_of(2, 200);
  const Answer first_a = ask(a);
  const Answer first_b = ask(b);
  EXPECT_EQ(world.stack().status().disk_images, 1u);
  EXPECT_FALSE(world.stack().status().ram_on);
  const auto next_a = next_prompt(a, first_a, 3, 20);
  const Answer second_a = expect_reused(304, Tier::disk, next_a);
  const auto next_b = next_prompt(b, first_b, 4, 20);
  expect_reused(204, Tier::disk, next_b);
  EXPECT_EQ(world.stack().status().ram_images, 0u);
  world.settle();
  world.shutdown();
  world.restart();
  expect_reused(static_cast<uint32_t>(next_a.size()) + 4, Tier::disk, next_prompt(next_a, second_a, 5, 9));
}

INSTANTIATE_TEST_SUITE_P(All, StackDiskModeShapes,
                         ::testing::Values(Shape{"attention", 1, false}, Shape{"attention", 2, false},
                                           Shape{"sliding", 1, false}, Shape{"hybrid", 2, false},
                                           Shape{"attention", 1, true}, Shape{"hybrid", 1, true}));

TEST_F(StackDiskMode, B1_ParkingAgainWritesOnlyWhatIsNew) {
  StackWorld& world = make(disk_mode(64 << 20));
  const auto a = prompt_of(1, 320);
  const Answer first = ask(a);
  ask(prompt_of(2, 16));
  const auto next = next_prompt(a, first, 3, 20);
  expect_reused(324, Tier::disk, next);
  world.settle();
  world.recorded_files().calls.clear();
  ask(prompt_of(4, 16));
  world.settle();
  // The two blocks from token 320 on, and what the short conversation before it left.
  EXPECT_LE(extent_bytes_written(), 3 * kBlockBytes);
  EXPECT_GE(extent_bytes_written(), kBlockBytes);
}

TEST_F(StackDiskMode, DM1_PinnedMemoryIsAFewBuffersHoweverLongTheConversation) {
  StackWorldOptions options;
  options.slots = 1;
  options.context = 4096;
  options.tiers = disk_mode(256 << 20);
  StackWorld& world = make(options);
  uint64_t most = 0;
  world.after_step = [&](StackWorld& w) { most = std::max(most, w.stack().status().ram_bytes); };
  const auto a = prompt_of(1, 4000);
  const Answer first = ask(a);
  ask(prompt_of(2, 100));
  expect_reused(4004, Tier::disk, next_prompt(a, first, 3, 5));
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, 12 * PinnedPool::class_bytes(kBlockBytes));
}

TEST_F(StackDiskMode, DM2_ASnapshotLargerThanTheBudgetIsRefusedBeforeAnythingIsTouched) {
  StackWorld& world = make(disk_mode(300 << 10));
  ask(prompt_of(1, 100));
  ask(prompt_of(2, 480));
  world.settle();
  const auto before = world.files().paths();
  ASSERT_EQ(world.stack().status().disk_images, 1u);
  const auto c = prompt_of(3, 40);
  ask(c);  // the 480 tokens would need 480 KiB
  world.settle();
  EXPECT_EQ(world.files().paths(), before);
  EXPECT_EQ(skips("disk", "too_large"), 1);
  EXPECT_EQ(ask(prompt_of(2, 480)).placement.cause.reason, ReadReason::too_large);
}

TEST_F(StackDiskMode, DM2_TheBudgetHoldsAtEveryStepAndTheOldestGo) {
  constexpr uint64_t kBudget = 1300 << 10;
  StackWorld& world = make(disk_mode(kBudget), 2);
  world.after_step = [&](StackWorld& w) {
    ASSERT_LE(w.stack().status().disk_bytes, kBudget);
    ASSERT_LE(w.files().allocated_bytes(), kBudget);
  };
  for (uint64_t i = 0; i < 14; ++i) ask(prompt_of(i, 270 + static_cast<uint32_t>(i * 37 % 200)));
  world.settle();
  EXPECT_GT(world.metrics().value("strata_evictions_total", "tier=\"disk\",reason=\"evicted\""), 0);
  EXPECT_EQ(ask(prompt_of(0, 270)).placement.cause.reason, ReadReason::evicted);
}

TEST_F(StackDiskMode, DM3_DaysAreTheAgeLimitAndZeroEmptiesTheFolder) {
  TierOptions tiers = disk_mode(64 << 20);
  tiers.disk_ttl_ns = 7 * 24 * 60 * kMinuteNs;
  StackWorld& world = make(tiers);
  const auto a = prompt_of(1, 300);
  ask(a);
  world.shutdown();
  world.clock().advance(6 * 24 * 60 * kMinuteNs);
  world.restart();
  expect_reused(299, Tier::disk, a);
  world.shutdown();
  world.clock().advance(8 * 24 * 60 * kMinuteNs);
  world.restart();
  EXPECT_EQ(ask(a).placement.cause.reason, ReadReason::expired);
  world.shutdown();
  ASSERT_FALSE(files(".idx").empty());
  world.options().tiers.disk_empty_at_start = true;
  world.options().tiers.disk_persist = false;
  world.restart();
  EXPECT_TRUE(files(".idx").empty());
  EXPECT_TRUE(files(".sess").empty());
  ask(a);
  ask(prompt_of(2, 30));
  expect_reused(299, Tier::disk, a);
  world.shutdown();
  EXPECT_TRUE(files(".idx").empty());
}

TEST_F(StackDiskMode, DM4_TheFloorOfFreeRamHoldsForParkingAndReadingBack) {
  TierOptions tiers = disk_mode(64 << 20);
  tiers.ram_min_free_bytes = uint64_t{2} << 30;
  StackWorld& world = make(tiers);
  const auto a = prompt_of(1, 300);
  ask(a);
  world.memory().set_available(uint64_t{2} << 30);
  ask(prompt_of(2, 40));
  EXPECT_EQ(skips("ram", "min_free_ram"), 1);
  EXPECT_EQ(world.stack().status().disk_images, 0u);
  world.memory().set_available(uint64_t{64} << 30);
  ask(a);
  ask(prompt_of(3, 40));
  ASSERT_EQ(world.stack().status().disk_images, 2u);
  world.memory().set_unknown(true);
  const Answer refused = ask(a);
  EXPECT_EQ(refused.placement.reused_tokens, 0u);
  EXPECT_EQ(refused.placement.cause.reason, ReadReason::too_large);
  EXPECT_EQ(skips("ram", "memory_unknown"), 2) << "the park of the outgoing one and the restore";
}

TEST_F(StackDiskMode, RAM6_CheckpointsOfTheSystemPromptSurviveOnTheDisk) {
  StackWorld& world = make(disk_mode(64 << 20), 1, "hybrid");
  TierRequest request;
  request.borders = {64};
  const auto a = prompt_of(1, 300);
  ask(a, request);
  ask(prompt_of(2, 40));
  world.settle();
  EXPECT_LE(world.stack().status().ram_bytes, 100u << 10);
  expect_reused(64, Tier::disk, branch(a, 100, 3, 30), request);
}

TEST_F(StackDiskMode, B2_AForkOfALiveSlotGoesThroughTheDisk) {
  StackWorld& world = make(disk_mode(64 << 20), 2);
  const auto a = prompt_of(1, 300);
  ask(a);
  expect_reused(200, Tier::disk, branch(a, 200, 5, 50));
  world.settle();
  expect_reused(299, Tier::vram, a);
}

// What is on its way to the disk is waited for, not read again.
TEST_F(StackDiskMode, ARequestForWhatIsBeingParkedWaitsForIt) {
  StackWorld& world = make(disk_mode(64 << 20), 2);
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  ask(prompt_of(2, 300));
  world.options().writes_run = false;
  const RequestId other = world.begin(prompt_of(3, 40));  // takes the slot of the first
  world.step(20);
  ASSERT_EQ(world.stack().state(other), RequestState::placing);
  const auto next = next_prompt(a, first, 4, 10);
  const RequestId waits = world.begin(next);
  world.step(50);
  EXPECT_EQ(world.stack().state(waits), RequestState::waiting);
  world.options().writes_run = true;
  ASSERT_TRUE(world.place(other));
  ASSERT_TRUE(world.place(waits));
  EXPECT_EQ(world.stack().placement(waits).reused_tokens, 304u);
  expect_exact(world.answer(waits, next, kGenerate), next);
  world.end(waits);
  world.end(other);
}

TEST_F(StackDiskMode, AFailedWriteLosesThatConversationAndNothingElse) {
  StackWorld& world = make(disk_mode(64 << 20));
  const auto a = prompt_of(1, 300);
  ask(a);
  ask(prompt_of(2, 280));
  world.settle();
  const auto before = world.files().paths();
  world.faulty_files().set_plan({{FileCall::write, 1, ENOSPC, true}});
  ask(prompt_of(3, 40));
  world.settle();
  world.faulty_files().set_plan({});
  EXPECT_EQ(world.files().paths(), before);
  EXPECT_EQ(skips("disk", "no_space"), 1);
  EXPECT_EQ(ask(prompt_of(2, 280)).placement.cause.reason, ReadReason::evicted);
  expect_reused(299, Tier::disk, a);
  EXPECT_LE(world.files().open_files(), 1u) << "the lock";
}

// The wall clock jumped during the run: header and index of a streamed file say the same.
// A slot goes on from what was read back; then the file is found damaged. What the slot holds is written
// anew.
TEST_F(StackDiskMode, DISK11_NothingIsParkedOntoACopyThatIsKnownToBeDamaged) {
  StackWorld& world = make(disk_mode(64 << 20), 2);
  const auto a = prompt_of(1, 440);
  const Answer first = ask(a);
  world.shutdown();
  world.restart();
  std::vector<Token> other(a.begin(), a.begin() + 320);
  const auto own = prompt_of(2, 20);
  other.insert(other.end(), own.begin(), own.end());
  const Answer branched = expect_reused(320, Tier::disk, other);
  world.files().flip_byte(file(".sess"), 4096 + 5);  // the first block, which both have
  EXPECT_EQ(to_string(ask(next_prompt(a, first, 3, 20)).placement.cause), "corrupt");
  world.shutdown();
  world.restart();
  expect_reused(static_cast<uint32_t>(other.size()) + 4, Tier::disk, next_prompt(other, branched, 5, 9));
}

TEST_F(StackDiskMode, StoredTimesAreThoseOfTheWallClock) {
  StackWorld& world = make(disk_mode(64 << 20));
  world.clock().set_wall(world.clock().wall_ns() + 24 * 60 * kMinuteNs);
  ask(prompt_of(1, 300));
  ask(prompt_of(2, 40));
  const ConversationId id = conversation_of(304);
  const auto manifest = read_published(world.files(), StackWorld::kFolder, id);
  ASSERT_TRUE(manifest.ok());
  const auto bytes =
      read_whole(world.files(), std::string(StackWorld::kFolder) + "/" + session_file_name(id));
  ASSERT_TRUE(bytes.ok());
  const auto header = decode_session_header(std::span(*bytes).first(limits::kSessionHeaderBytes));
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->created_ns, manifest->head.created_ns);
}

TEST_F(StackDiskMode, DISK7_ShutdownParksEverySlotAndWaits) {
  StackWorld& world = make(disk_mode(64 << 20), 3);
  std::vector<std::vector<Token>> prompts;
  for (uint64_t i = 0; i < 3; ++i) ask(prompts.emplace_back(prompt_of(i, 280)));
  world.shutdown();
  EXPECT_EQ(files(".idx").size(), 3u);
  world.restart();
  for (const auto& prompt : prompts) expect_reused(279, Tier::disk, prompt);
}

TEST_F(StackDiskMode, ACrashWhileParkingLeavesAnInterruptedWriteThatGoes) {
  StackWorld& world = make(disk_mode(64 << 20));
  const auto a = prompt_of(1, 300);
  const Answer first = ask(a);
  ask(prompt_of(2, 200));
  const auto next = next_prompt(a, first, 3, 100);
  ask(next);
  world.options().writes_run = false;
  (void)world.begin(prompt_of(4, 30));
  for (int i = 0; i < 100; ++i) world.step();
  ASSERT_TRUE(world.writer().run_one());  // extents of the longer state, and then the lights go out
  world.options().writes_run = true;
  world.restart();
  expect_reused(304, Tier::disk, next);
  EXPECT_EQ(files(".tmp").size(), 0u);
}

TEST_F(StackDiskMode, RandomHistoriesAreExactAndWithinTheBudget) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    StackWorldOptions options;
    options.slots = 2;
    options.layout = seed % 2 == 0 ? "hybrid" : "attention";
    options.seed = seed;
    options.tiers = disk_mode(900 << 10);
    options.tiers.write_policy = static_cast<WritePolicy>(seed % 3);
    StackWorld& world = make(options);
    world.after_step = [&](StackWorld& w) { ASSERT_LE(w.files().allocated_bytes(), 900u << 10); };
    FakeRandom random(seed);
    std::vector<std::vector<Token>> talks(4);
    for (int turn = 0; turn < 40; ++turn) {
      auto& talk = talks[random.next() % talks.size()];
      if (talk.empty() || talk.size() > 400) talk = prompt_of(random.next() % 5, 120);
      world.options().writes_run = random.next() % 2 == 0;
      InFlight request = world.launch(talk, kGenerate);
      for (int i = 0; i < 4000 && !request.done; ++i) {
        world.step();
        world.move(request);
        if (i % 7 == 0) world.writer().run_one();
      }
      ASSERT_TRUE(request.done) << "seed " << seed;
      expect_exact(request.answer, talk);
      talk = next_prompt(talk, request.answer, random.next(), 15);
      if (random.next() % 12 == 0) {
        world.options().writes_run = true;
        world.settle();
        world.restart();
      }
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace strata::testing
