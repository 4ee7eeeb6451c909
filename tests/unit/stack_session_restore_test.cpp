// Sessions restored by name, SES-3 and SES-4: what is refused, when, and that the active session is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "core/folder_check.hpp"
#include "core/session_file.hpp"
#include "tests/support/session_pair.hpp"
#include "tests/support/stepped_worker.hpp"

namespace strata::testing {
namespace {

using ::testing::HasSubstr;

class RestoredSession : public SessionPair {
 protected:
  // A saved file of 304 tokens, and another conversation in slot 1.
  void save_one(const StackWorldOptions& options) {
    make(options);
    ask(prompt_of(1, 300), in_slot(0));
    ASSERT_TRUE(save(0).done());
    saved_ = world_->files().get(kFile);
    active_ = prompt_of(2, 200);
    active_answer_ = ask(active_, in_slot(1));
  }
  // Nothing reached the model, and the conversation in slot 1 is as it was.
  void expect_refused(const std::string& fault, const std::string& path = kFile) {
    const uint64_t imports = world_->faulty_model().calls(ModelCall::import_begin);
    const Outcome refused = restore(1, path);
    EXPECT_EQ(refused.view.state, SessionView::State::failed);
    EXPECT_EQ(refused.fault(), fault) << refused.view.reason;
    EXPECT_FALSE(refused.view.published);
    EXPECT_EQ(world_->faulty_model().calls(ModelCall::import_begin), imports) << "before any device write";
    EXPECT_EQ(world_->files().open_files(), 0u);
    EXPECT_EQ(world_->model().length(1), 204u);
    last_reason_ = refused.view.reason;
  }
  void expect_active_goes_on() {
    expect_reused(204, Tier::vram, next_prompt(active_, active_answer_, 3, 20), in_slot(1));
  }

  std::vector<std::byte> saved_;
  std::vector<Token> active_;
  Answer active_answer_;
  std::string last_reason_;
};

TEST_F(RestoredSession, SES3_EveryFlippedByteIsFoundBeforeTheModelIsAsked) {
  save_one(session_options("hybrid"));
  const auto manifest = read_stored_manifest(world_->files(), kSaved, "chat.sess");
  ASSERT_TRUE(manifest.ok());
  std::vector<uint64_t> places = {0, 9, 13, 17, 25, 41, 57, 73, 77, 81, 100, 4095};
  for (const ManifestPart& part : manifest->parts) places.push_back(part.offset + part.length / 2);
  const uint64_t end = saved_.size();
  for (uint64_t at = manifest->head.files[0].needed_length; at < end; at += 97) places.push_back(at);
  for (const uint64_t back : {1, 20, 30, 40, 60, 64}) places.push_back(end - back);
  for (const uint64_t place : places) {
    SCOPED_TRACE("byte " + std::to_string(place));
    world_->files().put(kFile, saved_);
    world_->files().flip_byte(kFile, place);
    expect_refused("invalid");
  }
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES3_CutForeignLinkedOrMissingFilesAreRefused) {
  save_one(session_options());
  for (const uint64_t length : {uint64_t{0}, uint64_t{7}, uint64_t{4096}, uint64_t{4100}, saved_.size() / 2,
                                saved_.size() - 64, saved_.size() - 1}) {
    SCOPED_TRACE("cut to " + std::to_string(length));
    world_->files().put(kFile, saved_);
    world_->files().cut(kFile, length);
    expect_refused("invalid");
  }
  world_->files().put(kFile, std::string(10'000, 'x'));
  expect_refused("invalid");
  std::vector<std::byte> longer = saved_;
  longer.push_back(std::byte{0});
  world_->files().put(kFile, longer);
  expect_refused("invalid");
  expect_refused("invalid", "/saved/none.sess");
  world_->files().add_symlink("/saved/link.sess");
  expect_refused("invalid", "/saved/link.sess");
  world_->files().put("/saved/twice.sess", saved_);
  world_->files().add_hard_link("/saved/second.sess", "/saved/twice.sess");
  expect_refused("invalid", "/saved/twice.sess");
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES3_AnotherModelOrConfigurationIsRefusedByName) {
  save_one(session_options());
  const std::vector<std::byte> of_this = saved_;
  StackWorldOptions other = session_options();
  other.model_identity = 2;
  save_one(other);
  world_->files().put("/saved/other.sess", of_this);
  expect_refused("invalid", "/saved/other.sess");
  EXPECT_THAT(last_reason_, HasSubstr("model"));
  save_one(session_options("sliding"));
  world_->files().put("/saved/other.sess", of_this);
  expect_refused("invalid", "/saved/other.sess");
  EXPECT_THAT(last_reason_, HasSubstr("layout"));
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES3_MoreThanThisSessionCanHoldIsRefused) {
  save_one(session_options());
  const std::vector<std::byte> long_one = saved_;
  StackWorldOptions small = session_options();
  small.context = 256;
  make(small);
  active_ = prompt_of(2, 200);
  active_answer_ = ask(active_, in_slot(1));
  world_->files().put("/long.sess", long_one);
  expect_refused("invalid", "/long.sess");
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES3_AFileThatIsNotSelfContainedOrIsBoundToARunIsRefused) {
  save_one(session_options());
  for (const uint32_t flags :
       {0u, kSessionSelfContained | kSessionEphemeral, kSessionSelfContained | kSessionEncrypted}) {
    std::vector<std::byte> changed = saved_;
    auto header = decode_session_header(std::span(changed).first(4096));
    ASSERT_TRUE(header.ok());
    header->flags = flags;
    const SessionHeaderBytes bytes = encode_session_header(*header);
    std::copy(bytes.begin(), bytes.end(), changed.begin());
    world_->files().put(kFile, changed);
    expect_refused("invalid");
  }
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES4_AFailingDiskIsIo) {
  save_one(session_options());
  FaultyFileSystem& faulty = world_->faulty_files();
  for (const FileCall call : {FileCall::open, FileCall::info, FileCall::read}) {
    faulty.set_plan({{call, 1, EIO}});
    expect_refused("io");
  }
  faulty.set_plan({{FileCall::read, 6, EIO}});
  expect_refused("io");
  faulty.set_plan({});
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES3_AFileThatChangesAfterTheCheckIsFoundOnTheWay) {
  save_one(session_options());
  FaultyFileSystem& faulty = world_->faulty_files();
  faulty.set_plan({});
  ASSERT_TRUE(world_->stack().begin_session({Kind::restore, 0, kFile}).ok());
  const uint64_t checked = faulty.calls(FileCall::read);
  ASSERT_TRUE(finish().done());
  const uint64_t all = faulty.calls(FileCall::read);
  ASSERT_GT(all, checked + 5);
  FileFault flip{FileCall::read, all - 2};
  flip.flip_at = 5;
  faulty.set_plan({flip});
  const Outcome refused = restore(1);
  EXPECT_EQ(faulty.faults(), 1u);
  EXPECT_EQ(refused.view.state, SessionView::State::failed);
  EXPECT_EQ(refused.fault(), "invalid") << refused.view.reason;
  faulty.set_plan({});
  expect_active_goes_on();
}

TEST_F(RestoredSession, SES3_AFailedTransferIsUndoneWhereImportsAreStaged) {
  save_one(session_options("hybrid"));
  for (const ModelFault& fault :
       {ModelFault{ModelCall::import_begin, 1}, ModelFault{ModelCall::import_block, 1},
        ModelFault{ModelCall::import_block, 9}, ModelFault{ModelCall::import_checkpoint, 1},
        ModelFault{ModelCall::import_commit, 1}}) {
    world_->faulty_model().set_fault(fault);
    const Outcome failed = restore(1);
    EXPECT_EQ(failed.view.state, SessionView::State::failed);
    EXPECT_EQ(failed.fault(), "io") << failed.view.reason;
    EXPECT_EQ(world_->model().length(1), 204u);
  }
  world_->faulty_model().set_fault({});
  expect_active_goes_on();
  EXPECT_TRUE(restore(1).done()) << "and it can be tried again";
}

TEST_F(RestoredSession, SES3_WithoutStagedImportsAFailedTransferIsFatal) {
  StackWorldOptions options = session_options();
  options.staged_import = false;
  save_one(options);
  world_->faulty_model().set_fault({ModelCall::import_begin, 1});
  EXPECT_EQ(restore(1).view.state, SessionView::State::failed) << "nothing was touched";
  world_->faulty_model().set_fault({ModelCall::import_block, 3});
  const Outcome lost = restore(1);
  EXPECT_EQ(lost.view.state, SessionView::State::fatal);
  EXPECT_NE(lost.view.reason, "");
  EXPECT_EQ(world_->model().length(1), 0u);
}

TEST_F(RestoredSession, SES3_WhatTheSlotHeldIsParkedWhenItGivesWay) {
  StackWorldOptions options = session_options();
  options.tiers.ram_budget_bytes = 64 << 20;
  save_one(options);
  ASSERT_TRUE(restore(1).done());
  expect_reused(204, Tier::ram, next_prompt(active_, active_answer_, 3, 20), in_slot(0));
}

TEST_F(RestoredSession, SES3_ARestoredStateDoesNotReplaceWhatTheConversationBecameSince) {
  StackWorldOptions options = session_options();
  options.tiers.ram_budget_bytes = 64 << 20;
  make(options);
  const auto prompt = prompt_of(1, 200);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const auto next = next_prompt(prompt, first, 3, 100);
  const Answer second = ask(next, in_slot(0));
  ASSERT_TRUE(restore(0).done());
  const auto other = next_prompt(prompt, first, 4, 50);
  expect_reused(204, Tier::vram, other, in_slot(0));
  expect_reused(static_cast<uint32_t>(next.size()) + 4, Tier::ram, next_prompt(next, second, 5, 20),
                in_slot(0));
}

TEST_F(RestoredSession, RAM6_EarlierCheckpointsComeBackWithTheFile) {
  StackWorldOptions options = session_options("hybrid");
  options.tiers.ram_budget_bytes = 64 << 20;
  options.tiers.checkpoints_every_tokens = 64;
  make(options);
  const auto prompt = prompt_of(1, 300);
  ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const auto positions = read_stored_manifest(world_->files(), kSaved, "chat.sess")->head.resume_positions;
  ASSERT_GE(positions.size(), 3u);
  world_->restart();
  ASSERT_TRUE(restore(0).done());
  const uint32_t position = positions[positions.size() - 2];
  const Answer answer = ask(branch(prompt, position + 10, 9, 20), in_slot(0));
  EXPECT_EQ(answer.placement.reused_tokens, position);
}

TEST_F(RestoredSession, SES3_ASessionOfAFullContextSaysWhatIsUsable) {
  for (const char* layout : {"attention", "hybrid"}) {
    SCOPED_TRACE(layout);
    StackWorldOptions options = session_options(layout);
    make(options);
    ask(prompt_of(1, 508), in_slot(0));
    ASSERT_TRUE(save(0).done());
    const Outcome restored = restore(1);
    ASSERT_TRUE(restored.done()) << restored.view.reason;
    EXPECT_EQ(restored.view.tokens, 512u);
    EXPECT_EQ(restored.view.usable_tokens, std::string(layout) == "attention" ? 510u : 0u);
  }
}

TEST_F(RestoredSession, SES6_OtherSlotsGoOnWhileAFileIsChecked) {
  SteppedWorker worker;
  StackWorldOptions options = session_options();
  make(options);
  const auto prompt = prompt_of(1, 300);
  const Answer first = ask(prompt, in_slot(0));
  ASSERT_TRUE(save(0).done());
  const std::vector<std::byte> saved = world_->files().get(kFile);
  options.worker = &worker;
  make(options);
  world_->files().put("/chat.sess", saved);
  ASSERT_TRUE(world_->stack().begin_session({Kind::restore, 0, "/chat.sess"}).ok());
  ask(prompt_of(2, 200), in_slot(1));
  EXPECT_FALSE(over());
  const auto next = next_prompt(prompt, first, 3, 20);
  const RequestId waits = world_->begin(next, in_slot(0));
  Outcome outcome;
  while (!over()) {
    (void)worker.run_one();
    world_->step();
    look(outcome);
  }
  ASSERT_TRUE(finish(outcome).done());
  ASSERT_TRUE(world_->place(waits));
  EXPECT_EQ(world_->stack().placement(waits).reused_tokens, 304u) << "what waited goes on from the file";
  expect_exact(world_->answer(waits, next, kGenerate), next);
  world_->end(waits);
  world_.reset();
}

TEST_F(RestoredSession, SES6_AnEraseWaitsItsTurnAndEmptiesTheSlot) {
  save_one(session_options());
  const Outcome erased = act(Kind::erase, 1, "");
  EXPECT_TRUE(erased.done());
  EXPECT_EQ(erased.view.tokens, 204u);
  EXPECT_EQ(world_->model().length(1), 0u);
  ASSERT_TRUE(world_->stack().begin_session({Kind::erase, 0, ""}).ok());
  EXPECT_FALSE(world_->stack().begin_session({Kind::erase, 1, ""}).ok()) << "one at a time";
  EXPECT_EQ(finish().view.tokens, 304u);
}

}  // namespace
}  // namespace strata::testing
