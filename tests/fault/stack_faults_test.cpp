// Fails the first, second, third … operation of intake, fetch, park, spill, publish and evict, until a pass
// comes through clean. Whatever fails: answers are exact (invariant 1), nothing aborts, every published index
// is whole (invariant 4, B-6), what was published before is still there, and a request fails only where the
// model itself cannot go on.
#include <gtest/gtest.h>

#include "core/manifest.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

struct Kind {
  const char* layout;
  int stages;
};

constexpr uint64_t kMostOperations = 5000;

class StackFaults : public StackPair, public ::testing::WithParamInterface<Kind> {
 protected:
  StackFaults() { request_.borders = {64}; }

  // Three conversations with a common system prompt, stored by an earlier run.
  void store(const TierOptions& tiers) {
    make(tiers, 2, GetParam().layout, GetParam().stages);
    stored_.clear();
    failures_ = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      const auto prompt = followed_by(system_, 10 + i, 24);
      stored_.push_back(next_prompt(prompt, ask(prompt, request_), 20 + i, 12));
    }
    world_->shutdown();
  }
  // A request while things fail. Its answer, if it has one, is right.
  void ask_and_survive(const std::vector<Token>& prompt) {
    const Answer answer = world_->ask(prompt, kGenerate, request_);
    if (!answer.failure.empty()) {
      ++failures_;
      return;
    }
    EXPECT_EQ(answer, expected(prompt))
        << "reused " << answer.placement.reused_tokens << " from " << to_string(answer.placement.tier);
  }
  // Goes on with everything that is stored, switches to new conversations and back.
  void live() {
    for (const auto& prompt : stored_) ask_and_survive(prompt);
    for (uint64_t i = 0; i < 2; ++i) ask_and_survive(prompt_of(40 + i, 90));
    ask_and_survive(next_of(0));
    ask_and_survive(branch(stored_[1], 70, 51, 20));
    world_->shutdown();
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
  [[nodiscard]] std::vector<Token> next_of(size_t i) {
    return next_prompt(stored_[i], expected(stored_[i]), 50 + i, 12);
  }
  // In its first state or in a later one.
  void expect_everything_is_there() {
    world_->restart();
    for (size_t i = 0; i < stored_.size(); ++i) {
      const auto next = next_of(i);
      EXPECT_GE(ask(next_prompt(next, expected(next), 60, 5), request_).placement.reused_tokens,
                stored_[i].size() - 12);
    }
  }
  [[nodiscard]] bool give_up(const std::string& what) const {
    if (!HasFailure()) return false;
    ADD_FAILURE() << what;
    return true;
  }

  const std::vector<Token> system_ = prompt_of(1, 64);
  std::vector<std::vector<Token>> stored_;
  TierRequest request_;
  int failures_ = 0;
};

// --- files

class StackFileFaults : public StackFaults {
 protected:
  void fail_each(FileCall call, int os_errno, bool and_later, uint64_t stride = 1) {
    for (uint64_t nth = 1; nth < kMostOperations; nth += stride) {
      store(ram_and_disk(300 << 10, 64 << 20));
      world_->faulty_files().set_plan({{call, nth, os_errno, and_later}});
      if (world_->try_restart().ok()) {
        live();
      } else {
        EXPECT_FALSE(world_->opened.error().message.empty());
      }
      const bool clean = world_->faulty_files().faults() == 0;
      world_->faulty_files().set_plan({});
      EXPECT_EQ(failures_, 0) << "a disk's fault is never a request's";
      expect_published_is_whole();
      expect_everything_is_there();
      world_->settle();
      EXPECT_LE(world_->files().open_files(), 1u) << "the lock";
      if (give_up("file call " + std::to_string(static_cast<int>(call)) + " number " + std::to_string(nth)))
        return;
      if (clean) return;
    }
    ADD_FAILURE() << "no pass came through clean";
  }
};

TEST_P(StackFileFaults, EachCallFailsOnceWithEIO) { fail_each(FileCall::any, EIO, false); }
TEST_P(StackFileFaults, EachSpaceTakingCallFailsWithENOSPC) {
  fail_each(FileCall::allocate, ENOSPC, false);
  fail_each(FileCall::write, ENOSPC, false);
}
TEST_P(StackFileFaults, FromACallOnEveryCallFails) { fail_each(FileCall::any, EIO, true, 7); }
TEST_P(StackFileFaults, FromACallOnTheDiskIsFull) {
  fail_each(FileCall::write, ENOSPC, true, 5);
  fail_each(FileCall::allocate, ENOSPC, true, 2);
}
TEST_P(StackFileFaults, FromACallOnNothingCanBeReadOrRemoved) {
  fail_each(FileCall::read, EIO, true, 7);
  fail_each(FileCall::unlink, EACCES, true);
  fail_each(FileCall::sync_directory, EIO, true);
}

// The same with budgets so small that conversations are evicted all the time: published is whole at the end.
TEST_P(StackFileFaults, EvictionsFail) {
  uint64_t last = 0;
  for (uint64_t nth = 1; nth < kMostOperations; nth += 3) {
    store(ram_and_disk(260 << 10, 400 << 10));
    const uint64_t budget = 400 << 10;
    world_->after_step = [&](StackWorld& world) { ASSERT_LE(world.stack().status().disk_bytes, budget); };
    world_->faulty_files().set_plan({{FileCall::any, nth, EIO, false}});
    if (world_->try_restart().ok()) {
      for (uint64_t i = 0; i < 5; ++i) ask_and_survive(prompt_of(60 + i, 110));
      live();
    }
    const bool clean = world_->faulty_files().faults() == 0;
    world_->faulty_files().set_plan({});
    EXPECT_EQ(failures_, 0);
    // An evicted conversation whose index cannot be removed is refused by the next start.
    if (!world_->log().contains(".idx: Input/output error")) expect_published_is_whole();
    world_->restart();
    expect_published_is_whole();
    for (const auto& prompt : stored_) ask(prompt, request_);
    last = nth;
    if (give_up("call number " + std::to_string(nth)) || clean) break;
  }
  EXPECT_LT(last + 3, kMostOperations);
}

// --- model and device

class StackModelFaults : public StackFaults {
 protected:
  // Some of these calls leave no way to go on: then the request says so, and the next one is served.
  void fail_each(ModelCall call, bool request_may_fail, bool and_later = false) {
    for (uint64_t at = 1; at < kMostOperations; at += and_later ? 5 : 1) {
      store(ram_and_disk(300 << 10, 64 << 20));
      world_->restart();
      ModelFault fault;
      fault.call = call;
      fault.at = at;
      fault.from_then_on = and_later;
      world_->faulty_model().set_fault(fault);
      live();
      const bool clean = world_->faulty_model().injected() == 0;
      EXPECT_LE(failures_, request_may_fail ? 1 : 0);
      world_->faulty_model().set_fault({});
      expect_published_is_whole();
      expect_everything_is_there();
      if (give_up("model call " + std::to_string(static_cast<int>(call)) + " number " + std::to_string(at)))
        return;
      if (clean) return;
    }
    ADD_FAILURE() << "no pass came through clean";
  }
  void fail_each(uint64_t DeviceFaults::*which, bool and_later) {
    for (uint64_t at = 1; at < kMostOperations; at += and_later ? 5 : 1) {
      store(ram_and_disk(300 << 10, 64 << 20));
      world_->restart();
      DeviceFaults faults;
      faults.*which = at;
      faults.fail_from_then_on = and_later;
      world_->faulty_device().set_faults(faults);
      live();
      const bool clean = world_->faulty_device().injected() == 0;
      EXPECT_EQ(failures_, 0);
      world_->faulty_device().set_faults({});
      expect_published_is_whole();
      expect_everything_is_there();
      if (give_up("device call number " + std::to_string(at)) || clean) return;
    }
    ADD_FAILURE() << "no pass came through clean";
  }
};

TEST_P(StackModelFaults, ExportsFail) {
  fail_each(ModelCall::export_block, false);
  if (std::string(GetParam().layout) != "attention") fail_each(ModelCall::export_checkpoint, false);
  fail_each(ModelCall::export_block, false, true);
}
TEST_P(StackModelFaults, ImportsFail) {
  fail_each(ModelCall::import_begin, false);
  fail_each(ModelCall::import_block, false);
  if (std::string(GetParam().layout) != "attention") fail_each(ModelCall::import_checkpoint, false);
  fail_each(ModelCall::import_commit, false);
  fail_each(ModelCall::import_block, false, true);
}
TEST_P(StackModelFaults, TheSlotCannotBeClearedOrCut) {
  fail_each(ModelCall::clear, true);
  fail_each(ModelCall::truncate, true);
}
TEST_P(StackModelFaults, EventsFail) {
  for (const bool and_later : {false, true}) {
    fail_each(&DeviceFaults::fail_record_at, and_later);
    fail_each(&DeviceFaults::fail_finish_at, and_later);
  }
}
TEST_P(StackModelFaults, MemoryCannotBeRegistered) { fail_each(&DeviceFaults::fail_register_at, true); }

constexpr Kind kKinds[] = {{"attention", 1}, {"sliding", 1}, {"hybrid", 2}};
const auto kName = [](const auto& kind) {
  return std::string(kind.param.layout) + std::to_string(kind.param.stages);
};
INSTANTIATE_TEST_SUITE_P(Layouts, StackFileFaults, ::testing::ValuesIn(kKinds), kName);
INSTANTIATE_TEST_SUITE_P(Layouts, StackModelFaults, ::testing::ValuesIn(kKinds), kName);

}  // namespace
}  // namespace strata::testing
