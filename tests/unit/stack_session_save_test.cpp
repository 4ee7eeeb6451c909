// Sessions saved by name, SES-1, SES-2, SES-4 to SES-6 and RAM-7: what a save leaves, whatever happens on the
// way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "core/folder_check.hpp"
#include "core/limits.hpp"
#include "tests/support/session_pair.hpp"
#include "tests/support/stepped_worker.hpp"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Phase = SessionView::Phase;

struct Shape {
  const char* layout;
  int stages;
  bool whole;
};

class SavedSessionShapes : public SessionPair, public ::testing::WithParamInterface<Shape> {
 protected:
  StackWorld& make_shape() {
    return make(session_options(GetParam().layout, GetParam().stages, GetParam().whole));
  }
};

TEST_P(SavedSessionShapes, SES6_AnySlotGoesOnExactlyInAnyOther) {
  make_shape();
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(1));
  const Outcome saved = save(1);
  ASSERT_TRUE(saved.done()) << saved.view.reason;
  EXPECT_EQ(saved.view.tokens, 304u);
  EXPECT_EQ(saved.view.file_bytes, world_->files().get(kFile).size());
  ask(prompt_of(2, 200), in_slot(1));
  const Outcome restored = restore(0);
  ASSERT_TRUE(restored.done()) << restored.view.reason;
  EXPECT_EQ(restored.view.tokens, 304u);
  EXPECT_EQ(restored.view.usable_tokens, 304u);
  EXPECT_EQ(restored.view.file_bytes, saved.view.file_bytes);
  const auto next = next_prompt(prompt, first, 3, 20);
  expect_reused(304, Tier::vram, next, in_slot(0));
}

TEST_P(SavedSessionShapes, SES6_ANewEngineGoesOnExactly) {
  make_shape();
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  world_->restart();
  const Outcome restored = restore(1);
  ASSERT_TRUE(restored.done()) << restored.view.reason;
  expect_reused(restored.view.usable_tokens, Tier::vram, next_prompt(prompt, first, 3, 20), in_slot(1));
  EXPECT_EQ(restored.view.usable_tokens, 304u);
}

TEST_P(SavedSessionShapes, SES5_ProgressComesAfterEachBlockAndReachesTheTotal) {
  make_shape();
  ask(prompt_of(1, 300), in_slot(0));
  for (const Outcome& outcome : {save(0), restore(1)}) {
    ASSERT_TRUE(outcome.done()) << outcome.view.reason;
    ASSERT_FALSE(outcome.moved.empty());
    EXPECT_TRUE(std::is_sorted(outcome.moved.begin(), outcome.moved.end()));
    EXPECT_EQ(outcome.moved.back(), outcome.view.total_bytes);
  }
}

TEST_P(SavedSessionShapes, SES7_TheFileIsWholeForWhoeverChecksIt) {
  make_shape();
  ask(prompt_of(1, 300), in_slot(0));
  ASSERT_TRUE(save(0).done());
  const auto manifest = read_stored_manifest(world_->files(), kSaved, "chat.sess");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_EQ(manifest->tokens.size(), 304u);
  EXPECT_EQ(manifest->head.stage_count, static_cast<uint32_t>(GetParam().stages));
}

INSTANTIATE_TEST_SUITE_P(All, SavedSessionShapes,
                         ::testing::Values(Shape{"attention", 1, false}, Shape{"attention", 2, false},
                                           Shape{"sliding", 1, false}, Shape{"hybrid", 2, false},
                                           Shape{"attention", 1, true}, Shape{"hybrid", 2, true}));

class SavedSession : public SessionPair {};

TEST_F(SavedSession, SES1_HiddenFileFlushedRenamedFolderFlushed) {
  make(session_options());
  ask(prompt_of(1, 40), in_slot(0));
  ASSERT_TRUE(save(0).done());
  const auto& made = world_->recorded_files().calls;
  EXPECT_EQ(made.front(), "sync folder") << "of the new folder's own name";
  world_->recorded_files().calls.clear();
  const Outcome saved = save(0);
  ASSERT_TRUE(saved.done()) << saved.view.reason;
  std::vector<std::string> calls;
  for (std::string call : world_->recorded_files().calls) {
    const size_t name = call.find(".strata-");
    if (name != std::string::npos)
      call.replace(name, std::string(".strata-0123456789abcdef.tmp").size(), "TMP");
    calls.push_back(std::move(call));
  }
  ASSERT_EQ(calls.size(), 12u);
  EXPECT_EQ(calls[0], "create TMP");
  EXPECT_THAT(calls[1], HasSubstr("allocate TMP 0+"));
  EXPECT_EQ(calls[2], "write TMP 0+4096");
  EXPECT_EQ(calls[3], "write TMP 4096+16384");
  EXPECT_EQ(calls[4], "write TMP 20480+16384");
  EXPECT_THAT(calls[5], HasSubstr("write TMP 36864+"));
  EXPECT_THAT(calls[8], HasSubstr("truncate TMP"));
  EXPECT_EQ(calls[9], "sync TMP");
  EXPECT_EQ(calls[10], "rename TMP chat.sess");
  EXPECT_EQ(calls[11], "sync folder");
  EXPECT_THAT(saved.phases, ElementsAre(Phase::moving, Phase::flush, Phase::publish));
}

TEST_F(SavedSession, SES1_AFailureAtAnyCallKeepsTheOldFileAndLeavesNothing) {
  make(session_options());
  FaultyFileSystem& faulty = world_->faulty_files();
  const auto prompt = prompt_of(1, 40);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const std::vector<std::byte> old = world_->files().get(kFile);
  faulty.set_plan({});
  ASSERT_TRUE(save(0).done());
  const uint64_t calls = faulty.calls(FileCall::any);
  ASSERT_GT(calls, 10u);
  for (const int os_errno : {ENOSPC, EIO, EACCES}) {
    for (uint64_t nth = 1; nth <= calls; ++nth) {
      SCOPED_TRACE(std::to_string(os_errno) + " at call " + std::to_string(nth));
      world_->files().put(kFile, old);
      faulty.set_plan({{FileCall::any, nth, os_errno}});
      const Outcome failed = save(0);
      ASSERT_EQ(faulty.faults(), 1u);
      EXPECT_EQ(failed.view.state, SessionView::State::failed);
      EXPECT_THAT(temporaries(), IsEmpty());
      EXPECT_EQ(world_->files().open_files(), 0u);
      EXPECT_EQ(failed.view.published, nth == calls) << "the folder is flushed last";
      if (nth == calls)
        EXPECT_EQ(failed.fault(), "io");
      else
        EXPECT_EQ(failed.fault(), os_errno == ENOSPC ? "storage" : "io");
      if (nth < calls) {
        EXPECT_EQ(world_->files().get(kFile), old);
      }
    }
  }
  faulty.set_plan({});
  ASSERT_TRUE(read_stored_manifest(world_->files(), kSaved, "chat.sess").ok());
  expect_reused(44, Tier::vram, next_prompt(prompt, first, 3, 20), in_slot(0));
}

TEST_F(SavedSession, SES1_AShortWriteOrADeadDiskKeepsTheOldFile) {
  make(session_options());
  ask(prompt_of(1, 40), in_slot(0));
  ASSERT_TRUE(save(0).done());
  const std::vector<std::byte> old = world_->files().get(kFile);
  FileFault cut{FileCall::write, 3, ENOSPC};
  cut.keep_bytes = 100;
  world_->faulty_files().set_plan({cut});
  EXPECT_EQ(save(0).fault(), "storage");
  EXPECT_EQ(world_->files().get(kFile), old);
  EXPECT_THAT(temporaries(), IsEmpty());
  FileFault dead{FileCall::sync_data, 1, EIO};
  world_->faulty_files().set_plan({dead});
  world_->recorded_files().calls.clear();
  EXPECT_EQ(save(0).fault(), "io");
  EXPECT_EQ(world_->faulty_files().calls(FileCall::sync_data), 1u) << "a failed flush is never tried again";
  EXPECT_EQ(world_->files().get(kFile), old);
}

TEST_F(SavedSession, SES1_AFolderThatCannotBeFlushedIsOnlyLogged) {
  make(session_options());
  ask(prompt_of(1, 40), in_slot(0));
  FileFault unable{FileCall::sync_directory, 1, EOPNOTSUPP};
  unable.and_later = true;
  world_->faulty_files().set_plan({unable});
  const Outcome saved = save(0);
  EXPECT_TRUE(saved.done()) << saved.view.reason;
  EXPECT_TRUE(world_->log().contains("strata: session: the folder of a saved file cannot be flushed"));
}

TEST_F(SavedSession, SES2_RoomForTheWholeFileAndTheFloorAlsoWhenReplacing) {
  StackWorldOptions options = session_options();
  options.tiers.session_min_free_bytes = limits::kMiB;
  make(options);
  ask(prompt_of(1, 300), in_slot(0));
  const Outcome fits = save(0);
  ASSERT_TRUE(fits.done()) << fits.view.reason;
  const std::vector<std::byte> old = world_->files().get(kFile);
  world_->files().set_capacity(world_->files().allocated_bytes() + limits::kMiB + fits.view.file_bytes / 2);
  const Outcome refused = save(0);
  EXPECT_EQ(refused.view.state, SessionView::State::failed);
  EXPECT_EQ(refused.fault(), "storage");
  EXPECT_THAT(refused.view.reason, HasSubstr("--session-min-free-mib"));
  EXPECT_THAT(refused.moved, IsEmpty()) << "nothing is copied before";
  EXPECT_EQ(world_->files().get(kFile), old);
  world_->files().set_capacity(world_->files().allocated_bytes() + 2 * limits::kMiB + fits.view.file_bytes);
  EXPECT_TRUE(save(0).done());
}

TEST_F(SavedSession, SES2_RamBelowTheFloorOrUnknownRefusesBeforeAnythingIsMade) {
  StackWorldOptions options = session_options();
  options.tiers.ram_min_free_bytes = limits::kGiB;
  make(options);
  ask(prompt_of(1, 300), in_slot(0));
  world_->memory().set_available(limits::kGiB);
  EXPECT_EQ(save(0).fault(), "memory");
  world_->memory().set_available(64 * limits::kGiB);
  world_->memory().set_unknown(true);
  EXPECT_EQ(save(0).fault(), "memory");
  EXPECT_THAT(world_->files().paths(), IsEmpty());
  world_->memory().set_unknown(false);
  ASSERT_TRUE(save(0).done());
  world_->memory().set_available(limits::kGiB);
  EXPECT_EQ(restore(1).fault(), "memory");
}

TEST_F(SavedSession, SES4_WhatCannotBeSavedIsInvalid) {
  make(session_options("hybrid"));
  EXPECT_EQ(save(0).fault(), "invalid") << "an empty slot";
  ask(prompt_of(1, 40), in_slot(0));
  for (const char* name :
       {"/saved/conv-0123456789abcdef.sess", "/saved/LOCK", "/saved/x.idx", "/saved/", "/a/b/c"})
    EXPECT_EQ(save(0, name).fault(), "invalid") << name;
  world_->files().add_symlink("/saved/link.sess");
  EXPECT_EQ(save(0, "/saved/link.sess").fault(), "invalid");
  EXPECT_FALSE(world_->stack().begin_session({Kind::save, 2, kFile}).ok()) << "no such slot";
  EXPECT_THAT(temporaries(), IsEmpty());
}

TEST_F(SavedSession, RAM6_WithoutCheckpointsAStateThatCannotBeCutIsNeitherSavedNorRestored) {
  StackWorldOptions options = session_options("hybrid");
  options.tiers.checkpoints_max = 0;
  make(options);
  ask(prompt_of(1, 40), in_slot(0));
  EXPECT_EQ(save(0).fault(), "invalid");
  EXPECT_EQ(restore(0).fault(), "invalid");
}

TEST_F(SavedSession, SES3_ADeviceThatFailsDuringASaveHarmsNobody) {
  make(session_options());
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const std::vector<std::byte> old = world_->files().get(kFile);
  for (const uint64_t nth : {1u, 7u, 19u}) {
    world_->faulty_model().set_fault({ModelCall::export_block, nth});
    EXPECT_EQ(save(0).fault(), "io");
    EXPECT_EQ(world_->files().get(kFile), old);
    EXPECT_THAT(temporaries(), IsEmpty());
  }
  world_->faulty_model().set_fault({});
  expect_reused(304, Tier::vram, next_prompt(prompt, first, 3, 20), in_slot(0));
}

TEST_F(SavedSession, SES3_WhateverTheDeviceRefusesTheSlotGoesOn) {
  make(session_options("hybrid"));
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const std::vector<std::byte> old = world_->files().get(kFile);
  std::vector<DeviceFaults> plans(4);
  plans[0].fail_record_at = 1;
  plans[1].fail_finish_at = 1;
  plans[2].fail_finish_at = 3;
  plans[3].fail_finish_at = 2;
  plans[3].late_answers = 5;
  for (const DeviceFaults& plan : plans) {
    for (const Kind kind : {Kind::save, Kind::restore}) {
      world_->faulty_device().set_faults(plan);
      const Outcome failed = act(kind, 0);
      if (world_->faulty_device().injected() == 0) continue;
      EXPECT_EQ(failed.view.state, SessionView::State::failed);
      EXPECT_EQ(failed.fault(), "io") << failed.view.reason;
      EXPECT_EQ(world_->files().get(kFile), old);
      EXPECT_THAT(temporaries(), IsEmpty());
      world_->faulty_device().set_faults({});
      world_->step(50);  // the device gives the buffers back
    }
  }
  world_->faulty_device().set_faults({});
  EXPECT_EQ(world_->model().length(0), 304u);
  expect_reused(304, Tier::vram, next_prompt(prompt, first, 3, 20), in_slot(0));
}

TEST_F(SavedSession, SES6_OtherSlotsGoOnWhileTheDiskIsSlowAndLaterRequestsOfTheSlotWait) {
  SteppedWorker worker;
  StackWorldOptions options = session_options();
  options.worker = &worker;
  make(options);
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(world_->stack().begin_session({Kind::save, 0, kFile}).ok());
  ask(prompt_of(2, 200), in_slot(1));
  EXPECT_FALSE(over());
  const auto next = next_prompt(prompt, first, 3, 20);
  const RequestId waits = world_->begin(next, in_slot(0));
  for (int i = 0; i < 50; ++i) world_->step();
  EXPECT_EQ(world_->stack().state(waits), RequestState::waiting);
  Outcome outcome;
  while (!over()) {
    (void)worker.run_one();
    world_->step();
    look(outcome);
  }
  outcome = finish(outcome);
  ASSERT_TRUE(outcome.done()) << outcome.view.reason;
  ASSERT_TRUE(world_->place(waits));
  expect_exact(world_->answer(waits, next, kGenerate), next);
  world_->end(waits);
  EXPECT_EQ(read_stored_manifest(world_->files(), kSaved, "chat.sess")->tokens.size(), 304u);
  world_.reset();
}

TEST_F(SavedSession, SES6_AnActionWaitsForRequestsThatCameBefore) {
  make(session_options());
  const auto prompt = prompt_of(1, 100);
  const RequestId earlier = world_->begin(prompt, in_slot(0));
  ASSERT_TRUE(world_->stack().begin_session({Kind::save, 0, kFile}).ok());
  ASSERT_TRUE(world_->place(earlier));
  expect_exact(world_->answer(earlier, prompt, kGenerate), prompt);
  EXPECT_EQ(world_->stack().session()->state, SessionView::State::waiting);
  world_->end(earlier);
  const Outcome saved = finish();
  ASSERT_TRUE(saved.done()) << saved.view.reason;
  EXPECT_EQ(saved.view.tokens, 104u);
}

TEST_F(SavedSession, SES1_ACancelledSaveRemovesOnlyItsOwnFile) {
  SteppedWorker worker;
  StackWorldOptions options = session_options();
  options.worker = &worker;
  make(options);
  world_->files().put("/saved-other", "text");
  ask(prompt_of(1, 300), in_slot(0));
  ASSERT_TRUE(world_->stack().begin_session({Kind::save, 0, kFile}).ok());
  for (int i = 0; i < 6; ++i) {
    (void)worker.run_one();
    world_->step();
  }
  ASSERT_EQ(temporaries().size(), 1u);
  world_->stack().cancel_session();
  while (!over()) {
    (void)worker.run_one();
    world_->step();
  }
  EXPECT_EQ(finish().fault(), "io");
  EXPECT_THAT(world_->files().paths(), ElementsAre("/saved-other"));
  world_.reset();
}

TEST_F(SavedSession, SES5_AnEngineThatEndsDuringASaveLeavesTheOldFile) {
  SteppedWorker worker;
  StackWorldOptions options = session_options();
  options.worker = &worker;
  make(options);
  ask(prompt_of(1, 300), in_slot(0));
  ASSERT_TRUE(world_->stack().begin_session({Kind::save, 0, kFile}).ok());
  for (int i = 0; i < 6; ++i) {
    (void)worker.run_one();
    world_->step();
  }
  world_->halt();
  EXPECT_THAT(temporaries(), IsEmpty());
  EXPECT_EQ(world_->files().open_files(), 0u);
}

// --- RAM-7

class ReclaimingSave : public SessionPair {
 protected:
  static constexpr uint64_t kFloor = limits::kGiB;

  // From the least recently used on: one conversation that is on the disk too (212 tokens), two in RAM only
  // (220, 228), one on the disk too (204), and what the slot goes on with, in RAM only (264).
  void fill(bool reclaim) {
    StackWorldOptions options = session_options();
    options.tiers = ram_and_disk(256 * limits::kMiB, 256 * limits::kMiB);
    options.tiers.write_policy = WritePolicy::through;
    options.tiers.ram_min_free_bytes = kFloor;
    options.tiers.session_min_free_bytes = 0;
    options.tiers.session_save_reclaim = reclaim;
    make(options);
    ask(prompt_of(1, 200), in_slot(0));
    ask(prompt_of(2, 208), in_slot(0));
    world_->settle();
    FileFault full{FileCall::write, 1, EIO};
    full.and_later = true;
    world_->faulty_files().set_plan({full});
    ask(prompt_of(3, 216), in_slot(0));
    world_->step(20);
    ask(prompt_of(4, 224), in_slot(0));
    world_->step(20);
    expect_reused(160, Tier::ram, branch(prompt_of(1, 200), 160, 5, 100), in_slot(0));
    world_->settle();
    world_->faulty_files().set_plan({});
  }
  [[nodiscard]] std::vector<uint32_t> lengths_in_ram() const {
    std::vector<uint32_t> lengths;
    for (const StoredConversation& stored : world_->stack().conversations())
      if (stored.ram_bytes > 0) lengths.push_back(stored.tokens);
    std::sort(lengths.begin(), lengths.end());
    return lengths;
  }
};

TEST_F(ReclaimingSave, RAM7_WithoutTheOptionItFailsAndNothingIsFreed) {
  fill(false);
  ASSERT_THAT(lengths_in_ram(), ElementsAre(204, 212, 220, 228, 264));
  world_->memory().set_available(kFloor);
  EXPECT_EQ(save(0).fault(), "memory");
  EXPECT_THAT(lengths_in_ram(), ElementsAre(204, 212, 220, 228, 264));
}

TEST_F(ReclaimingSave, RAM7_CopiesOfWhatIsOnTheDiskGoFirstThenTheOldestOneByOne) {
  fill(true);
  world_->memory().set_available(kFloor);
  std::vector<std::vector<uint32_t>> seen;
  world_->memory().on_probe = [&](MemoryState&) {
    if (seen.empty() || seen.back() != lengths_in_ram()) seen.push_back(lengths_in_ram());
  };
  const Outcome failed = save(0);
  world_->memory().on_probe = {};
  EXPECT_EQ(failed.fault(), "memory") << "it never was enough";
  EXPECT_THAT(seen,
              ElementsAre(ElementsAre(204, 212, 220, 228, 264), ElementsAre(204, 220, 228, 264),
                          ElementsAre(220, 228, 264), ElementsAre(228, 264), ElementsAre(264), IsEmpty()))
      << "and it was looked at again after each";
}

TEST_F(ReclaimingSave, RAM7_StopsAsSoonAsThereIsEnough) {
  fill(true);
  world_->memory().set_available(kFloor);
  world_->memory().on_probe = [&](MemoryState& state) {
    if (lengths_in_ram().size() == 3) state.available_bytes = 2 * kFloor;
  };
  const Outcome saved = save(0);
  EXPECT_TRUE(saved.done()) << saved.view.reason;
  EXPECT_THAT(lengths_in_ram(), ElementsAre(220, 228, 264));
  EXPECT_TRUE(world_->log().contains("strata: session: freed memory for a save in"));
}

TEST_F(ReclaimingSave, RAM7_CheckpointsGoFromTheBackWhenNothingElseIsLeft) {
  StackWorldOptions options = session_options("hybrid");
  options.tiers = ram_tier(256 * limits::kMiB);
  options.tiers.ram_min_free_bytes = kFloor;
  options.tiers.session_min_free_bytes = 0;
  options.tiers.session_save_reclaim = true;
  options.tiers.checkpoints_every_tokens = 64;
  make(options);
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const auto all = read_stored_manifest(world_->files(), kSaved, "chat.sess")->head.resume_positions;
  ASSERT_GE(all.size(), 4u);
  world_->memory().set_available(kFloor);
  const uint64_t held = world_->stack().status().ram_bytes;
  world_->memory().on_probe = [&](MemoryState& state) {
    if (world_->stack().status().ram_bytes < held) state.available_bytes = 2 * kFloor;
  };
  const Outcome saved = save(0);
  world_->memory().on_probe = {};
  ASSERT_TRUE(saved.done()) << saved.view.reason;
  auto expected_left = all;
  expected_left.erase(expected_left.end() - 2);  // the last but the live state
  EXPECT_EQ(read_stored_manifest(world_->files(), kSaved, "chat.sess")->head.resume_positions, expected_left);
  expect_reused(304, Tier::vram, next_prompt(prompt, first, 3, 20), in_slot(0));
}

// --- parts from wherever they live

TEST_F(SavedSession, SES5_PartsComeFromTheSlotFromRamAndFromTheDisk) {
  make(hybrid_in_disk_mode());
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ask(prompt_of(2, 100), in_slot(0));
  const auto next = next_prompt(prompt, first, 3, 20);
  const Answer second = expect_reused(304, Tier::disk, next, in_slot(0));
  const Outcome saved = save(0);
  ASSERT_TRUE(saved.done()) << saved.view.reason;
  const auto manifest = read_stored_manifest(world_->files(), kSaved, "chat.sess");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_GT(manifest->head.resume_positions.size(), 2u);
  ASSERT_TRUE(restore(1).done());
  expect_reused(static_cast<uint32_t>(next.size()) + 4, Tier::vram, next_prompt(next, second, 5, 9),
                in_slot(1));
}

TEST_F(SavedSession, SES5_ACheckpointThatCannotBeReadAnyMoreIsLeftOut) {
  make(hybrid_in_disk_mode());
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ask(prompt_of(2, 100), in_slot(0));
  const auto next = next_prompt(prompt, first, 3, 20);
  expect_reused(304, Tier::disk, next, in_slot(0));
  world_->settle();
  for (const std::string& path : files(".sess")) world_->files().cut(path, 4096);
  const Outcome saved = save(0);
  ASSERT_TRUE(saved.done()) << saved.view.reason;
  EXPECT_EQ(saved.moved.back(), saved.view.total_bytes);
  const auto manifest = read_stored_manifest(world_->files(), kSaved, "chat.sess");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  EXPECT_GT(manifest->head.resume_positions.front(), 304u) << "of what came since only";
  EXPECT_EQ(manifest->head.resume_positions.back(), next.size() + 4);
  EXPECT_TRUE(restore(1).done());
}

}  // namespace
}  // namespace strata::testing
