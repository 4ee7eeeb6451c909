// Several requests at once (design 2.6: a step machine over all active requests): forks from slots that are
// busy, more requests than slots, requests given up in any state. Every answer is held against a world
// without a cache (invariant 1).
#include <gtest/gtest.h>

#include <set>

#include "core/limits.hpp"
#include "tests/support/stack_pair.hpp"

namespace strata::testing {
namespace {

class StackCrowd : public StackPair {
 protected:
  void step_until_serving(InFlight& request) {
    for (int i = 0; i < 10'000 && !request.serving && !request.done; ++i) {
      world_->step();
      world_->move(request);
    }
    EXPECT_TRUE(request.serving);
  }
  void expect_all_idle() {
    for (const SlotStatus& slot : world_->stack().status().slots) EXPECT_FALSE(slot.request.has_value());
  }
};

constexpr const char* kLayouts[] = {"attention", "sliding", "hybrid"};

// Sub-agents start while the main agent is answering, and reuse what its slot holds.
TEST_F(StackCrowd, RAM5_SubAgentsForkFromABusySlot) {
  for (const char* layout : kLayouts) {
    StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 4, layout, 2);
    const auto system = prompt_of(1, 200);
    TierRequest request;
    request.borders = {200};
    std::vector<InFlight> all;
    all.push_back(world.launch(followed_by(system, 2, 40), 30, request));
    step_until_serving(all[0]);
    for (int i = 0; i < 12; ++i) {  // the prompt is read, the answer is on its way
      world.step();
      world.move(all[0]);
    }
    EXPECT_FALSE(all[0].done);
    for (uint64_t i = 0; i < 6; ++i) all.push_back(world.launch(followed_by(system, 10 + i, 30), 5, request));
    run(all);
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_GE(all[i].answer.placement.reused_tokens, 200u) << layout << " " << i;
    }
    expect_all_idle();
  }
}

// The same prompt twice at once, and a third time while both answer.
TEST_F(StackCrowd, RAM3_TheSamePromptSeveralTimesAtOnce) {
  for (const char* layout : kLayouts) {
    StackWorld& world = make(ram_tier(8 << 20), 3, layout);
    const auto prompt = prompt_of(1, 120);
    std::vector<InFlight> all;
    for (int i = 0; i < 3; ++i) all.push_back(world.launch(prompt, 6));
    run(all);
    const auto next = next_prompt(prompt, all[0].answer, 5, 10);
    all.clear();
    for (int i = 0; i < 5; ++i) all.push_back(world.launch(next, 4));
    run(all);
  }
}

TEST_F(StackCrowd, SRV_MoreRequestsThanSlots) {
  for (const char* layout : kLayouts) {
    StackWorld& world = make(ram_and_disk(700 << 10, 4 << 20), 2, layout);
    std::vector<InFlight> all;
    for (uint64_t i = 0; i < 9; ++i) all.push_back(world.launch(prompt_of(i, 100), 4));
    run(all);
    std::vector<InFlight> more;
    for (uint64_t i = 0; i < 9; ++i) {
      more.push_back(world.launch(next_prompt(all[i].prompt, all[i].answer, 20 + i, 10), 4));
    }
    run(more);
    expect_all_idle();
  }
}

// More restores at once than the model stages imports: they take turns, and nobody reads again for it.
TEST_F(StackCrowd, B4_MoreRestoresThanStagedImports) {
  for (const bool from_disk : {false, true}) {
    StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 5);
    ASSERT_LT(world.model().info().staged_imports, 5u);
    std::vector<InFlight> first;
    for (uint64_t i = 0; i < 10; ++i) first.push_back(world.launch(prompt_of(i, 300), 4));
    run(first);
    if (from_disk) {
      world.shutdown();
      world.restart();
    }
    std::vector<InFlight> second;
    for (uint64_t i = 0; i < 5; ++i) {
      second.push_back(world.launch(next_prompt(first[i].prompt, first[i].answer, 50 + i, 10), 4));
    }
    run(second);
    for (const InFlight& one : second) {
      EXPECT_EQ(one.answer.placement.reused_tokens, 304u) << to_string(one.answer.placement.cause);
    }
  }
}

// What a slot held is going away while a restore into it is under way: nobody may start from it any more.
TEST_F(StackCrowd, RAM5_NoForkFromASlotThatIsBeingFilled) {
  for (const char* layout : kLayouts) {
    for (int wait = 0; wait < 12; ++wait) {
      StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20), 2, layout);
      TierRequest request;
      request.borders = {150};
      const auto held = prompt_of(1, 200);
      const auto stored = prompt_of(2, 300);
      request.slot = 0;
      const Answer first = ask(stored, request);
      ask(held, request);
      std::vector<InFlight> all;
      all.push_back(world.launch(next_prompt(stored, first, 4, 10), 4, request));  // into the slot of `held`
      world.step(wait);
      request.slot = 1;
      all.push_back(world.launch(branch(held, 180, 5, 20), 4, request));
      run(all);
    }
  }
}

// A part that a slot shares with a stored conversation gets its RAM copy again while somebody else restores
// that conversation from the disk: bytes that are not there yet are not taken for the part's.
TEST_F(StackCrowd, B2_ASharedPartIsInRamOnlyWhenItsBytesAre) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    StackWorldOptions options;
    options.slots = 2;
    options.seed = seed;
    options.tiers = ram_and_disk(420 << 10, 64 << 20);
    StackWorld& world = make(options);
    const auto prompt = prompt_of(1, 256);
    const Answer first = ask(prompt);
    world.shutdown();
    world.restart();
    TierRequest zero, one;
    zero.slot = 0;
    one.slot = 1;
    const auto next = next_prompt(prompt, first, 3, 20);
    const Answer second = ask(next, zero);                              // slot 0 inherits the parts
    for (uint64_t i = 0; i < 3; ++i) ask(prompt_of(20 + i, 200), one);  // their copies make room
    std::vector<InFlight> all;
    all.push_back(world.launch(prompt_of(30, 30), 4, zero));  // parks slot 0
    all.push_back(world.launch(branch(prompt, 256 - 16, 31 + seed, 20), 4, one));
    run(all);
    EXPECT_EQ(second.tokens.size(), kGenerate);
  }
}

// One request streams a conversation from the disk while another one keeps it in RAM: what was read is
// checked all the same (invariant 5), and both come to an end.
TEST_F(StackCrowd, B4_StreamedWhileSomebodyElseKeepsIt) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    StackWorldOptions options;
    options.slots = 2;
    options.seed = seed;
    options.tiers = ram_and_disk(8 << 20, 64 << 20);
    StackWorld& world = make(options);
    const auto prompt = prompt_of(1, 400);
    const Answer first = ask(prompt);
    world.shutdown();
    world.restart();
    const bool damaged = seed % 3 == 0;
    if (damaged) world.files().flip_byte(file(".sess"), 4096 + 20 * 16384 + 9);
    TierRequest once;
    once.keep = false;
    std::vector<InFlight> all;
    all.push_back(world.launch(next_prompt(prompt, first, 3, 10), 4, once));
    world.step(static_cast<int>(seed % 4));
    all.push_back(world.launch(next_prompt(prompt, first, 4, 10), 4));
    run(all);
    for (const InFlight& one : all) {
      EXPECT_EQ(one.answer.placement.reused_tokens == 404u, !damaged);
    }
  }
}

// The device answers late: copies out of a slot take many steps, and the slot's own request goes on after
// them.
TEST_F(StackCrowd, RAM2_ASlowDeviceMixesNothing) {
  for (const char* layout : kLayouts) {
    StackWorld& world = make(ram_and_disk(900 << 10, 4 << 20), 3, layout, 2);
    DeviceFaults late;
    late.late_answers = 7;
    world.faulty_device().set_faults(late);
    const auto system = prompt_of(1, 96);
    TierRequest request;
    request.borders = {96};
    std::vector<std::vector<Token>> agents;
    for (uint64_t i = 0; i < 7; ++i) agents.push_back(followed_by(system, 10 + i, 40));
    for (uint64_t turn = 0; turn < 3; ++turn) {
      std::vector<InFlight> all;
      for (const auto& prompt : agents) all.push_back(world.launch(prompt, 4, request));
      run(all);
      for (size_t i = 0; i < agents.size(); ++i) {
        agents[i] = next_prompt(all[i].prompt, all[i].answer, 100 * turn + i, 12);
      }
    }
  }
}

TEST_F(StackCrowd, SRV_TheSlotThatARequestNamesIsTheOneItGets) {
  for (const char* layout : kLayouts) {
    StackWorld& world = make(ram_tier(8 << 20), 3, layout);
    const auto prompt = prompt_of(1, 100);
    TierRequest request;
    request.slot = 0;
    const Answer first = ask(prompt, request);
    EXPECT_EQ(first.placement.slot, 0);
    request.slot = 2;  // what slot 0 holds is shared with it
    const auto next = next_prompt(prompt, first, 2, 10);
    EXPECT_EQ(expect_reused(104, Tier::ram, next, request).placement.slot, 2);
    // A busy slot is waited for, though others are idle.
    std::vector<InFlight> all;
    all.push_back(world.launch(prompt_of(5, 100), 20, request));
    step_until_serving(all[0]);
    all.push_back(world.launch(prompt_of(6, 100), 4, request));
    for (int i = 0; i < 5; ++i) world.step();
    EXPECT_EQ(world.stack().state(all[1].id), RequestState::waiting);
    run(all);
    EXPECT_EQ(all[1].answer.placement.slot, 2);
  }
}

// --- given up

struct Scene {
  const char* name;
  const char* layout;
};

class StackGivenUp : public StackCrowd, public ::testing::WithParamInterface<Scene> {
 protected:
  // One conversation on disk, not read yet; two in the slots, one of which is answering.
  void prepare() {
    TierOptions tiers = ram_and_disk(8 << 20, 64 << 20);
    world_ = nullptr;
    StackWorld& world = make(tiers, 2, GetParam().layout, 2);
    request.borders = {260};
    first = ask(stored, request);
    world.shutdown();
    world.restart();
    ask(idle, request);
    busy = world.launch(answering, 200, request);
    step_until_serving(busy);
    for (int i = 0; i < 14; ++i) {
      world.step();
      world.move(busy);
    }
    EXPECT_FALSE(busy.done);
  }
  [[nodiscard]] std::vector<Token> wanted() const {
    const std::string name = GetParam().name;
    if (name == "FromDisk") return next_prompt(stored, first, 7, 10);
    if (name == "Fork") return branch(answering, 290, 8, 10);
    return prompt_of(9, 120);
  }

  const std::vector<Token> stored = prompt_of(1, 300);
  const std::vector<Token> idle = prompt_of(2, 150);
  const std::vector<Token> answering = prompt_of(3, 300);
  TierRequest request;
  Answer first;
  InFlight busy;
};

TEST_P(StackGivenUp, InAnyStateTheWorldGoesOnExactly) {
  std::set<RequestState> seen;
  for (int steps = 0; steps < 60; steps += steps < 25 ? 1 : 5) {
    prepare();
    StackWorld& world = *world_;
    const RequestId id = world.begin(wanted(), request);
    for (int i = 0; i < steps; ++i) world.step();
    const RequestState state = world.stack().state(id);
    seen.insert(state);
    world.stack().finish(id);
    std::vector<InFlight> all{busy};
    all[0].generate = static_cast<uint32_t>(all[0].answer.tokens.size()) + 3;
    run(all);
    world.settle();
    expect_all_idle();
    ask(wanted(), request);
    EXPECT_GE(ask(next_prompt(stored, first, 6, 5), request).placement.reused_tokens, 304u);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "given up after " << steps << " steps, in state " << static_cast<int>(state);
      return;
    }
    if (state == RequestState::serving) break;
  }
  EXPECT_TRUE(seen.contains(RequestState::waiting));
  EXPECT_TRUE(seen.contains(RequestState::serving));
}

// Waiting for a slot, with none to be had.
TEST_F(StackCrowd, GivenUpWhileWaiting) {
  StackWorld& world = make(ram_tier(8 << 20), 1);
  std::vector<InFlight> all;
  all.push_back(world.launch(prompt_of(1, 100), 30));
  step_until_serving(all[0]);
  const RequestId id = world.begin(prompt_of(2, 100));
  world.step(3);
  EXPECT_EQ(world.stack().state(id), RequestState::waiting);
  world.stack().finish(id);
  world.step();
  all.push_back(world.launch(prompt_of(3, 100), 4));
  run(all);
  EXPECT_EQ(world.stack().status().ram_images, 1u);
}

INSTANTIATE_TEST_SUITE_P(Scenes, StackGivenUp,
                         ::testing::Values(Scene{"FromDisk", "attention"}, Scene{"FromDisk", "hybrid"},
                                           Scene{"Fork", "attention"}, Scene{"Fork", "sliding"},
                                           Scene{"Fresh", "attention"}, Scene{"Fresh", "hybrid"}),
                         [](const auto& scene) {
                           return std::string(scene.param.name) + scene.param.layout;
                         });

// --- admission

TEST_F(StackCrowd, SRV_WhatCannotBeAdmittedIsRefusedAndNothingElseIsTouched) {
  StackWorld& world = make(ram_tier(8 << 20), 1);
  const auto refused = [&](TierRequest request) {
    request.id = 1'000'000;
    const Status status = world.stack().admit(std::move(request));
    EXPECT_FALSE(status.ok());
    return status.ok() ? ErrorCode::internal : status.error().code;
  };
  TierRequest request;
  EXPECT_EQ(refused(request), ErrorCode::invalid) << "empty";
  request.tokens = prompt_of(1, 512);
  EXPECT_EQ(refused(request), ErrorCode::exhausted) << "as long as the context";
  request.tokens = {5, -1, 7};
  EXPECT_EQ(refused(request), ErrorCode::invalid);
  request.tokens = {static_cast<Token>(world.model().info().vocabulary)};
  EXPECT_EQ(refused(request), ErrorCode::invalid);
  request.tokens = {65};
  request.slot = 1;
  EXPECT_EQ(refused(request), ErrorCode::invalid);
  request.slot = -1;
  EXPECT_EQ(refused(request), ErrorCode::invalid);
  std::vector<RequestId> waiting;
  for (uint32_t i = 0; i < limits::kMaxQueuedRequests; ++i) waiting.push_back(world.begin({65, 66}));
  request.slot.reset();
  EXPECT_EQ(refused(request), ErrorCode::exhausted);
  for (const RequestId id : waiting) world.stack().finish(id);
  world.step();
  expect_all_idle();
  ask(prompt_of(1, 511 - kGenerate));
}

// A request's id may be used again as soon as it was finished, also while its transfer is still being undone.
TEST_F(StackCrowd, SRV_AnIdCanBeUsedAgainAtOnce) {
  StackWorld& world = make(ram_tier(8 << 20), 2);
  const auto prompt = prompt_of(1, 300);
  ask(prompt);
  ask(prompt_of(2, 100));
  ask(prompt_of(3, 100));
  TierRequest request;
  request.id = 777;
  request.tokens = prompt;
  ASSERT_TRUE(world.stack().admit(request).ok());
  for (int i = 0; i < 3; ++i) world.step();
  world.stack().finish(777);
  request.tokens = prompt_of(4, 100);
  ASSERT_TRUE(world.stack().admit(request).ok());
  world.settle();
  ASSERT_EQ(world.stack().state(777), RequestState::serving);
  const SlotId slot = world.stack().placement(777).slot;
  EXPECT_EQ(world.stack().status().slots[static_cast<size_t>(slot)].request, 777u);
  world.stack().finish(777);
  world.step();
  expect_all_idle();
}

}  // namespace
}  // namespace strata::testing
