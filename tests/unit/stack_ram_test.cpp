// The RAM tier end to end: RAM-1 to RAM-6. Every answer is held against a world without a cache.
#include <gtest/gtest.h>

#include "core/manifest.hpp"
#include "tests/support/counting_pages.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"
#include "tiers/pinned_pool.hpp"

namespace strata::testing {
namespace {

using StackRam = StackPair;

constexpr uint32_t kAnswer = 4;

// --- RAM-1

TEST_F(StackRam, RAM1_BelowTheFloorNothingIsParkedAndTheReasonIsSaid) {
  TierOptions tiers = ram_tier(8 << 20);
  tiers.ram_min_free_bytes = 1 << 30;
  StackWorld& world = make(tiers);
  world.memory().set_available((1 << 30) + (100 << 10));
  const auto prompt = prompt_of(1, 300);
  ask(prompt);
  ask(prompt_of(2, 300));
  EXPECT_EQ(world.stack().status().ram_images, 0u);
  EXPECT_EQ(skips("ram", "min_free_ram"), 1);
  EXPECT_TRUE(world.log().contains("min_free_ram"));
  EXPECT_EQ(to_string(ask(prompt).placement.cause), "evicted");
}

TEST_F(StackRam, RAM1_UnknownTelemetryRefusesWithAReason) {
  TierOptions tiers = ram_tier(8 << 20);
  tiers.ram_min_free_bytes = 1 << 20;
  StackWorld& world = make(tiers);
  ask(prompt_of(1, 300));
  world.memory().set_unknown(true);
  ask(prompt_of(2, 300));
  EXPECT_EQ(world.stack().status().ram_images, 0u);
  EXPECT_EQ(skips("ram", "memory_unknown"), 1);
  world.memory().set_unknown(false);
  ask(prompt_of(3, 300));
  EXPECT_EQ(world.stack().status().ram_images, 1u);
}

// DISK-9: room above the floor is made by evicting the oldest, not by refusing for ever.
TEST_F(StackRam, RAM1_AtTheFloorTheOldestGiveTheirMemory) {
  TierOptions tiers = ram_tier(8 << 20);
  tiers.ram_min_free_bytes = 1 << 30;
  StackWorld& world = make(tiers);
  world.memory().set_available(uint64_t{2} << 30);
  const auto oldest = prompt_of(1, 300);
  ask(oldest);
  for (uint64_t i = 2; i <= 3; ++i) ask(prompt_of(i, 300));
  EXPECT_EQ(world.stack().status().ram_images, 2u);
  const uint64_t held = world.stack().status().ram_bytes;
  world.memory().set_available(1 << 30);
  ask(prompt_of(4, 300));
  EXPECT_EQ(world.stack().status().ram_images, 2u);
  EXPECT_LE(world.stack().status().ram_bytes, held);
  EXPECT_EQ(to_string(ask(oldest).placement.cause), "evicted");
}

TEST_F(StackRam, RAM1_CountLimit) {
  TierOptions tiers = ram_tier(8 << 20);
  tiers.ram_max_images = 2;
  StackWorld& world = make(tiers);
  world.after_step = [](StackWorld& w) { EXPECT_LE(w.stack().status().ram_images, 2u); };
  const auto first = prompt_of(1, 300);
  for (uint64_t i = 1; i <= 4; ++i) ask(prompt_of(i, 300));
  EXPECT_EQ(to_string(ask(first).placement.cause), "evicted");
}

// --- RAM-2

TEST_F(StackRam, RAM2_ARefusedParkDropsNothing) {
  StackWorld& world = make(ram_tier(700 << 10));
  const auto a = prompt_of(1, 300);
  const auto b = prompt_of(2, 300);
  ask(a);
  ask(b);
  ask(prompt_of(3, 300));
  ASSERT_EQ(world.stack().status().ram_images, 2u);
  ASSERT_TRUE(world.stack().pin(conversation_of(300 + kAnswer), true).ok());
  for (const StoredConversation& stored : world.stack().conversations()) {
    ASSERT_TRUE(world.stack().pin(stored.id, true).ok());
  }
  ask(prompt_of(4, 300));  // the third cannot be parked now
  EXPECT_EQ(skips("ram", "budget"), 1);
  EXPECT_EQ(world.stack().status().ram_images, 2u);
  expect_reused(299, Tier::ram, a);
  expect_reused(299, Tier::ram, b);
}

// Without a RAM tier, or when parking is refused, what another slot holds is not cut for a common prefix
// while an idle slot is there.
TEST_F(StackRam, RAM2_WithoutATierTwoConversationsKeepTheirSlots) {
  make(TierOptions{}, 2);
  const auto system = prompt_of(1, 100);
  auto a = followed_by(system, 2, 100);
  auto b = followed_by(system, 3, 100);
  for (int turn = 0; turn < 3; ++turn) {
    const auto reused = static_cast<uint32_t>(turn == 0 ? 0 : a.size() - 10);
    a = next_prompt(a, expect_reused(reused, turn == 0 ? Tier::none : Tier::vram, a), 10, 10);
    b = next_prompt(b, expect_reused(reused, turn == 0 ? Tier::none : Tier::vram, b), 11, 10);
  }
}

// --- RAM-3

TEST_F(StackRam, RAM3_TheLongestPrefixOverAllTiersWins) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 2);
  const auto prompt = prompt_of(1, 400);
  const Answer first = ask(prompt);
  world.shutdown();
  world.restart();
  expect_reused(300, Tier::disk, branch(prompt, 300, 2, 20));
  ask(branch(prompt, 100, 3, 20));
  ask(prompt_of(7, 50));
  ask(prompt_of(8, 50));  // both in RAM now, nothing of it in a slot
  const auto next = next_prompt(prompt, first, 4, 20);
  expect_reused(400 + kAnswer, Tier::disk, next);
}

TEST_F(StackRam, RAM3_AtMostAllTokensButOne) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto prompt = prompt_of(1, 300);
  ask(prompt);
  expect_reused(299, Tier::vram, prompt);
  ask(prompt_of(2, 40));
  expect_reused(299, Tier::ram, prompt);
  world.shutdown();
  world.restart();
  expect_reused(299, Tier::disk, prompt);
}

TEST_F(StackRam, RAM3_TiesGoToTheCheaperTier) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  auto prompt = prompt_of(1, 300);
  prompt = next_prompt(prompt, ask(prompt), 5, 10);
  world.shutdown();
  world.restart();
  prompt = next_prompt(prompt, expect_reused(304, Tier::disk, prompt), 6, 10);
  prompt = next_prompt(prompt, expect_reused(318, Tier::vram, prompt), 7, 10);
  ask(prompt_of(2, 40));
  world.settle();
  expect_reused(332, Tier::ram, prompt);
}

TEST_F(StackRam, RAM3_NinetyFivePercentInCommonNeverMix) {
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    StackWorld& world = make(ram_and_disk(500 << 10, 1500 << 10), 2, layout);
    const auto common = prompt_of(1, 285);
    TierRequest request;
    request.borders = {285};
    std::vector<std::vector<Token>> prompts{followed_by(common, 2, 15), followed_by(common, 3, 15),
                                            followed_by(common, 4, 15)};
    uint64_t seed = 10;
    for (int turn = 0; turn < 4; ++turn) {
      for (auto& prompt : prompts) prompt = next_prompt(prompt, ask(prompt, request), ++seed, 5);
      if (turn != 1) continue;
      world.shutdown();
      world.restart();
    }
  }
}

// B-8: one tenant's prompt is not found through another's.
// What a slot holds and is stored too makes room in the model before the next is restored there; when that
// restore fails it is still stored.
TEST_F(StackRam, RAM3_AStoredConversationLeavesTheSlotBeforeARestore) {
  StackWorldOptions options;
  options.slots = 1;
  options.tiers = ram_tier(8 << 20);
  StackWorld& world = make(options);
  const auto a = prompt_of(1, 300);
  const auto b = prompt_of(2, 200);
  const Answer first = ask(a);
  const Answer second = ask(b);
  const uint64_t before = world.faulty_model().calls(ModelCall::clear);
  const auto a_again = next_prompt(a, first, 3, 10);
  const Answer third = expect_reused(304, Tier::ram, a_again);
  EXPECT_EQ(world.faulty_model().calls(ModelCall::clear) - before, 1u) << "b left before a came";
  world.faulty_model().set_fault({ModelCall::import_block, 1});
  EXPECT_EQ(ask(next_prompt(b, second, 4, 10)).placement.reused_tokens, 0u);
  EXPECT_EQ(world.faulty_model().injected(), 1u);
  world.faulty_model().set_fault({});
  expect_reused(318, Tier::ram, next_prompt(a_again, third, 5, 10));
}

TEST_F(StackRam, RAM3_SaltsNeverMix) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  TierRequest one, two;
  one.salt = 1;
  two.salt = 2;
  const auto prompt = prompt_of(1, 300);
  ask(prompt, one);
  EXPECT_EQ(to_string(expect_reused(0, Tier::none, prompt, two).placement.cause), "new");
  EXPECT_EQ(to_string(expect_reused(0, Tier::none, prompt).placement.cause), "new");
  expect_reused(299, Tier::ram, prompt, one);
  world.shutdown();
  world.restart();
  TierRequest three;
  three.salt = 3;
  EXPECT_EQ(to_string(expect_reused(0, Tier::none, prompt, three).placement.cause), "new");
  expect_reused(299, Tier::disk, prompt, two);
}

// After a restart only heads are known; many conversations that might share more than they do must not use
// up the tries of a plan.
TEST_F(StackRam, RAM3_ManyUnreadBodiesStillGiveTheCommonPrefix) {
  StackWorld& world = make(ram_and_disk(16 << 20, 64 << 20));
  const auto common = prompt_of(1, 300);
  for (uint64_t i = 0; i < 14; ++i) ask(followed_by(common, 10 + i, 100));
  world.shutdown();
  world.restart();
  const auto prompt = branch(common, 299, 50, 100);
  EXPECT_GE(ask(prompt).placement.reused_tokens, 299u);
}

// --- RAM-4

TEST_F(StackRam, RAM4_LeastRecentlyUsedGoesFirst) {
  StackWorld& world = make(ram_tier(1000 << 10));
  std::vector<std::vector<Token>> prompts;
  for (uint64_t i = 0; i < 3; ++i) prompts.push_back(prompt_of(i, 300));
  for (auto& prompt : prompts) prompt = next_prompt(prompt, ask(prompt), 5, 1);
  ask(prompt_of(9, 16));
  ASSERT_EQ(world.stack().status().ram_images, 3u);
  prompts[0] = next_prompt(prompts[0], expect_reused(304, Tier::ram, prompts[0]), 6, 1);
  ask(prompt_of(10, 300));  // the used one is parked again
  ask(prompt_of(11, 300));  // needs the room of one
  expect_reused(309, Tier::ram, prompts[0]);
  expect_reused(0, Tier::none, prompts[1]);
}

TEST_F(StackRam, RAM4_APinnedOneIsNeverEvicted) {
  StackWorld& world = make(ram_tier(700 << 10));
  const auto a = prompt_of(1, 300);
  ask(a);
  ask(prompt_of(2, 16));
  ASSERT_TRUE(world.stack().pin(conversation_of(300 + kAnswer), true).ok());
  for (uint64_t i = 3; i < 9; ++i) ask(prompt_of(i, 300));
  expect_reused(299, Tier::ram, a);
}

TEST_F(StackRam, RAM4_LargerThanTheBudgetIsRefusedBeforeAnythingIsTouched) {
  StackWorld& world = make(ram_tier(400 << 10));
  const auto a = prompt_of(1, 200);
  const auto b = prompt_of(2, 150);
  ask(a);
  ask(b);
  ask(prompt_of(3, 480));
  ASSERT_EQ(world.stack().status().ram_images, 2u);
  ask(prompt_of(4, 16));
  EXPECT_EQ(skips("ram", "too_large"), 1);
  EXPECT_EQ(world.stack().status().ram_images, 2u);
  expect_reused(199, Tier::ram, a);
  expect_reused(149, Tier::ram, b);
}

// A one-shot request is not parked itself.
TEST_F(StackRam, RAM4_AOneShotRequestIsNotParked) {
  StackWorld& world = make(ram_tier(700 << 10));
  const auto a = prompt_of(1, 300);
  const auto b = prompt_of(2, 300);
  ask(a);
  ask(b);
  for (uint64_t i = 3; i < 9; ++i) {
    TierRequest once;
    once.keep = false;
    ask(prompt_of(i, 300), once);
  }
  EXPECT_EQ(world.stack().status().ram_images, 2u);
  expect_reused(299, Tier::ram, a);
  expect_reused(299, Tier::ram, b);
}

// --- RAM-5

TEST_F(StackRam, RAM5_AnOlderStateOfTheSameConversationIsReplaced) {
  for (const char* layout : {"attention", "hybrid"}) {
    StackWorld& world = make(ram_tier(8 << 20), 1, layout);
    auto prompt = prompt_of(1, 100);
    for (uint64_t turn = 0; turn < 5; ++turn) {
      prompt = next_prompt(prompt, ask(prompt), turn, 20);
      ask(prompt_of(90, 30));  // always the same stranger
      EXPECT_LE(world.stack().status().ram_images, 2u);
    }
  }
}

TEST_F(StackRam, RAM5_BorrowingLeavesTheDonorUsable) {
  StackWorld& world = make(ram_tier(8 << 20));
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt);
  ask(prompt_of(2, 20));
  expect_reused(200, Tier::ram, branch(prompt, 200, 3, 20));
  ask(prompt_of(4, 20));
  expect_reused(304, Tier::ram, next_prompt(prompt, first, 5, 10));
  EXPECT_GE(world.stack().status().ram_images, 3u);
}

// Two that go on from the same parked state are two conversations: neither takes the other's place.
TEST_F(StackRam, RAM5_SiblingsFromTheSameStateBothStay) {
  for (const bool with_disk : {false, true}) {
    StackWorld& world = make(with_disk ? ram_and_disk(8 << 20, 64 << 20) : ram_tier(8 << 20), 2);
    const auto prompt = prompt_of(1, 200);
    const Answer first = ask(prompt);
    ask(prompt_of(2, 20));
    ask(prompt_of(3, 20));
    std::vector<InFlight> siblings;
    for (uint64_t i = 0; i < 2; ++i) {
      siblings.push_back(world.launch(next_prompt(prompt, first, 20 + i, 40), kGenerate));
    }
    run(siblings);
    ask(prompt_of(4, 20));
    ask(prompt_of(5, 20));
    if (with_disk) {
      world.shutdown();
      world.restart();
    }
    for (const InFlight& one : siblings) {
      expect_reused(248, with_disk ? Tier::disk : Tier::ram, next_prompt(one.prompt, one.answer, 8, 10));
    }
  }
}

// --- RAM-6

TEST_F(StackRam, RAM6_CheckpointsAtBorders) {
  for (const char* layout : {"sliding", "hybrid"}) {
    for (const bool restart : {false, true}) {
      StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 1, layout, 2);
      const auto prompt = prompt_of(1, 400);
      TierRequest request;
      request.borders = {270, 330};
      ask(prompt, request);
      const Tier tier = restart ? Tier::disk : Tier::ram;
      if (restart) {
        world.shutdown();
        world.restart();
      }
      expect_reused(330, tier, branch(prompt, 331, 2, 30));
      ask(prompt_of(3, 20));
      const Answer edited = ask(branch(prompt, 300, 4, 30));
      EXPECT_EQ(edited.placement.reused_tokens, 270u);
      EXPECT_EQ(to_string(edited.placement.cause), "no_checkpoint");
    }
  }
}

TEST_F(StackRam, RAM6_AnEditSomeWayBackReusesTheClosestCheckpointBeforeIt) {
  for (const char* layout : {"sliding", "hybrid"}) {
    for (const bool restart : {false, true}) {
      TierOptions tiers = ram_and_disk(8 << 20, 64 << 20);
      tiers.checkpoints_every_tokens = 32;
      tiers.checkpoints_max = 20;
      StackWorld& world = make(tiers, 1, layout);
      const auto prompt = prompt_of(1, 470);
      ask(prompt);
      ask(prompt_of(2, 20));
      if (restart) {
        world.shutdown();
        world.restart();
      }
      for (const uint32_t edit : {469u, 350u, 321u, 100u, 33u}) {
        const Answer answer = ask(branch(prompt, edit, edit, 10));
        EXPECT_EQ(answer.placement.reused_tokens, edit / 32 * 32) << layout << " edited at " << edit;
        ask(prompt_of(3, 20));
      }
    }
  }
}

TEST_F(StackRam, RAM6_SpreadCheckpointsWithoutAnyBorder) {
  for (const char* layout : {"sliding", "hybrid"}) {
    make(ram_tier(8 << 20), 1, layout);
    const auto prompt = prompt_of(1, 500);
    ask(prompt);
    const Answer edited = ask(branch(prompt, 300, 2, 30));
    EXPECT_GE(edited.placement.reused_tokens, 200u);
    EXPECT_LE(edited.placement.reused_tokens, 300u);
  }
}

TEST_F(StackRam, RAM6_WithoutCheckpointsNothingIsParked) {
  for (const char* layout : {"sliding", "hybrid"}) {
    TierOptions tiers = ram_and_disk(8 << 20, 64 << 20);
    tiers.checkpoints_max = 0;
    StackWorld& world = make(tiers, 1, layout);
    const auto prompt = prompt_of(1, 200);
    ask(prompt);
    ask(prompt_of(2, 100));
    EXPECT_EQ(world.stack().status().ram_images, 0u);
    EXPECT_EQ(skips("ram", "no_state"), 1);
    EXPECT_EQ(ask(prompt).placement.reused_tokens, 0u);
    world.shutdown();
    EXPECT_TRUE(files(".idx").empty());
  }
}

// Every park adds the state at its end; what is kept of them stays within the limit.
TEST_F(StackRam, RAM6_ManyShortTurnsKeepNoMoreThanTheLimit) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 1, "hybrid");
  TierRequest request;
  request.borders = {40};
  auto prompt = prompt_of(1, 60);
  for (uint64_t turn = 0; turn < 14; ++turn) {
    prompt = next_prompt(prompt, ask(prompt, request), turn, 12);
    ask(prompt_of(90, 30));
  }
  const uint32_t length = static_cast<uint32_t>(prompt.size()) - 12;
  const ConversationId id = conversation_of(length);
  world.shutdown();
  const auto manifest = read_published(world.files(), StackWorld::kFolder, id);
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  const auto& positions = manifest->head.resume_positions;
  EXPECT_LE(positions.size(), 7u);
  EXPECT_GE(positions.size(), 5u);
  EXPECT_EQ(positions.front(), 40u) << "the system prompt's end is kept longest";
  EXPECT_EQ(positions.back(), length);
}

// A state that is kept whole costs what its tokens cost, not what a full context would.
TEST_F(StackRam, RAM1_AWholeStateTakesNoMoreRoomThanItHasTokens) {
  StackWorldOptions options;
  options.slots = 1;
  options.whole = true;
  options.context = 2048;  // 2 MiB
  options.tiers = ram_tier(6 << 20);
  StackWorld& world = make(options);
  const Answer first = ask(prompt_of(0, 200));
  for (uint64_t i = 1; i < 8; ++i) ask(prompt_of(i, 200));
  EXPECT_EQ(world.stack().status().ram_images, 7u);
  EXPECT_LE(world.stack().status().ram_bytes, 7 * (300u << 10));
  expect_reused(204, Tier::ram, next_prompt(prompt_of(0, 200), first, 9, 10));
}

// What a slot reads will be parked: its buffers are made meanwhile, and the park makes none.
TEST_F(StackRam, RAM2_BuffersOfAParkAreMadeWhileThePromptIsRead) {
  CountingPages pages;
  StackWorldOptions options;
  options.slots = 1;
  options.layout = "attention";
  options.context = 2100;
  options.model = {{"tokens_per_block", "1024"}, {"layers", "8"}};
  options.tiers = ram_tier(64 << 20);
  options.pages = &pages;
  StackWorld& world = make(options);
  const uint64_t block = world.model().info().max_block_bytes[0];
  ASSERT_GE(block, 2u << 20) << "smaller ones come from the allocator";
  ASSERT_TRUE(world.ask(prompt_of(1, 1500), 1).failure.empty());
  EXPECT_EQ(pages.taken_bytes, 0u);
  world.stack().observe_prompt(1500, 0);
  EXPECT_EQ(pages.taken_bytes, 0u) << "no time was spent on reading";
  world.stack().observe_prompt(1500, 1'000'000'000);
  const uint64_t made = pages.taken_bytes;
  EXPECT_EQ(made, 2 * PinnedPool::class_bytes(block)) << "as many as the slot has blocks";
  world.stack().observe_prompt(1500, 1'000'000'000);
  EXPECT_EQ(pages.taken_bytes, made) << "and no more";
  ASSERT_TRUE(world.ask(prompt_of(2, 20), 1).failure.empty());
  EXPECT_EQ(world.stack().status().ram_images, 1u);
  EXPECT_LE(pages.taken_bytes, made) << "the park made none";
  world_.reset();
  EXPECT_EQ(pages.taken_bytes, 0u);
}

// Large buffers of all pools come from the source of pages that the stack was given.
TEST_F(StackRam, RAM1_LargeBuffersComeFromTheSystemsPages) {
  CountingPages pages;
  StackWorldOptions options;
  options.slots = 1;
  options.whole = true;  // one buffer holds the whole state
  options.context = 2600;
  options.tiers = ram_tier(64 << 20);
  options.pages = &pages;
  StackWorld& world = make(options);
  ASSERT_TRUE(world.ask(prompt_of(1, 2500), 1).failure.empty());
  ASSERT_TRUE(world.ask(prompt_of(2, 20), 1).failure.empty());
  EXPECT_EQ(world.stack().status().ram_images, 1u);
  EXPECT_GE(pages.taken_bytes, 2u << 20);
  world_.reset();
  EXPECT_EQ(pages.taken_bytes, 0u);
}

}  // namespace
}  // namespace strata::testing
