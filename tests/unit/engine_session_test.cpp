// The engine process between READY and BYE: messages in, lines out, and the shutdown (DISK-7).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "engine/protocol/session_loop.hpp"
#include "tests/support/engine_bench.hpp"

namespace strata {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The output goes into memory; what was written is read back as events, so that every line is checked by the
// codec.
class Session : public ::testing::Test {
 protected:
  ~Session() override { close(file_); }

  void post(std::string_view line) {
    auto input = parse_input(line);
    ASSERT_TRUE(input.has_value());
    ASSERT_TRUE(mailbox_.post(std::move(*input)));
  }

  std::vector<std::string> run() {
    SessionLoop loop({engine_, tiers_, clock_, log_, metrics_, output_, mailbox_, 4096});
    loop.run();
    return written();
  }

  std::vector<std::string> written() {
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(file_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    std::vector<std::string> lines;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      lines.push_back(text.substr(begin, end - begin));
      EXPECT_TRUE(lines::decode_event(lines.back()).ok()) << lines.back();
      begin = end + 1;
    }
    return lines;
  }

  template <class E>
  std::vector<E> of(const std::vector<std::string>& text) {
    std::vector<E> found;
    for (const std::string& line : text) {
      auto event = lines::decode_event(line);
      if (event.ok() && std::holds_alternative<E>(*event)) found.push_back(std::get<E>(*event));
    }
    return found;
  }

  const int file_ = memfd_create("events", MFD_CLOEXEC);
  testing::ScriptedModel model_;
  testing::ScriptedTierStack tiers_{model_};
  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::RecordingLog log_;
  Metrics metrics_;
  EventWriter output_{file_};
  Engine engine_{{model_, tiers_, clock_, random_, log_, metrics_, output_}, {}};
  InputMailbox mailbox_{64};
};

TEST_F(Session, AnswersAndEndsWithBye) {
  post("GEN 1 max=2 tokens=1,2,3");
  ASSERT_TRUE(mailbox_.post(EndOfInput{}));
  const auto lines = run();
  const auto tokens = of<lines::TokenLine>(lines);
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens[0].token, 4);
  EXPECT_EQ(of<lines::Done>(lines).at(0).finish, lines::Finish::length);
  EXPECT_EQ(lines.back(), "BYE");
  EXPECT_TRUE(tiers_.shutdown_begun);
}

TEST_F(Session, QuitCancelsWhatRuns) {
  post("GEN 1 max=1000 tokens=1,2,3");
  post("QUIT");
  const auto lines = run();
  EXPECT_EQ(of<lines::Done>(lines).at(0).finish, lines::Finish::cancel);
  EXPECT_EQ(lines.back(), "BYE");
}

TEST_F(Session, ARequestAfterQuitIsRefused) {
  post("QUIT");
  post("GEN 5 max=1 tokens=1");
  const auto failed = of<lines::Failed>(run());
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].id, 5U);
}

TEST_F(Session, GarbageIsAnsweredAndHarmsNobody) {
  post("GEN 1 max=1 tokens=1,2");
  post("HELLO world");
  post("GEN 2 max=banana tokens=1");
  post("GEN 3 max=1 tokens=");
  post("GEN 4 max=1 nonsense=1 tokens=1");
  ASSERT_TRUE(mailbox_.post(EndOfInput{}));
  const auto lines = run();
  const auto failed = of<lines::Failed>(lines);
  ASSERT_EQ(failed.size(), 4U);
  EXPECT_FALSE(failed[0].id.has_value());
  EXPECT_EQ(failed[1].id, 2U);
  EXPECT_EQ(failed[2].id, 3U);
  EXPECT_EQ(failed[3].id, 4U);
  EXPECT_EQ(of<lines::Done>(lines).size(), 1U);
}

TEST_F(Session, StatusTellsSlotsTiersAndMetrics) {
  post("GEN 9 max=0 tokens=1,2,3");
  post("STATUS");
  ASSERT_TRUE(mailbox_.post(EndOfInput{}));
  const auto status = of<lines::StatusReport>(run());
  ASSERT_EQ(status.size(), 1U);
  EXPECT_THAT(status[0].json, HasSubstr(R"("slots":[{"id":0,"n_ctx":4096,"is_processing":false)"));
  EXPECT_THAT(status[0].json, HasSubstr(R"("ram":{"on":true,"bytes":0,"budget_bytes":1024,"images":0})"));
  EXPECT_THAT(status[0].json, HasSubstr(R"("off_reason":"no folder")"));
  EXPECT_THAT(status[0].json, HasSubstr("llamacpp:requests_deferred 1"));
}

TEST_F(Session, EraseEmptiesAnIdleSlotOnly) {
  model_.set_length(2, 77);
  post("ERASE slot=2");
  post("ERASE slot=99");
  post("QUIT");
  const auto lines = run();
  EXPECT_EQ(of<lines::Erased>(lines).at(0).tokens, 77U);
  EXPECT_EQ(of<lines::SlotError>(lines).at(0).kind, "invalid");
}

using ActionState = SessionView::State;
using ActionPhase = SessionView::Phase;

SessionView action_view(ActionState state, ActionPhase phase, std::vector<uint64_t> moved) {
  SessionView view;
  view.state = state;
  view.phase = phase;
  view.total_bytes = 100;
  view.moved_bytes = std::move(moved);
  view.file_bytes = 40 * (uint64_t{1} << 20);
  view.tokens = 12;
  view.usable_tokens = 11;
  view.duration_ns = 2'500'000;
  return view;
}

TEST_F(Session, SES_ASaveTellsItsProgressItsPhasesAndItsEnd) {
  tiers_.session_script = {action_view(ActionState::running, ActionPhase::moving, {}),
                           action_view(ActionState::running, ActionPhase::moving, {60, 80}),
                           action_view(ActionState::running, ActionPhase::flush, {100}),
                           action_view(ActionState::running, ActionPhase::publish, {}),
                           action_view(ActionState::done, ActionPhase::publish, {})};
  post("SAVE slot=3 /tmp/a b.sess");
  ASSERT_TRUE(mailbox_.post(EndOfInput{}));
  const auto lines = run();
  EXPECT_THAT(lines,
              ElementsAre("SESSION 0 100", "SESSION 60 100", "SESSION 80 100", "SESSION 100 100",
                          "SWAIT flush 70", "SWAIT publish 70", "SAVED 12 41943040 2.5", "DRAIN 0 0", "BYE"));
  ASSERT_EQ(tiers_.session_requests.size(), 1U);
  EXPECT_EQ(tiers_.session_requests[0].slot, 3);
  EXPECT_EQ(tiers_.session_requests[0].path, "/tmp/a b.sess");
}

TEST_F(Session, SES_ARestoreTellsItsCheckItsProgressAndItsEnd) {
  SessionView checking = action_view(ActionState::running, ActionPhase::validate, {});
  checking.total_bytes.reset();
  tiers_.session_script = {checking, action_view(ActionState::running, ActionPhase::moving, {}),
                           action_view(ActionState::running, ActionPhase::moving, {100}),
                           action_view(ActionState::done, ActionPhase::moving, {})};
  post("RESTORE x.sess");
  ASSERT_TRUE(mailbox_.post(EndOfInput{}));
  EXPECT_THAT(run(), ElementsAre("SWAIT validate 70", "SESSION 0 100", "SWAIT transfer 70", "SESSION 100 100",
                                 "RESTORED 12 11 41943040 2.5", "DRAIN 0 0", "BYE"));
}

TEST_F(Session, SES4_AFailedActionTellsItsKindAndTheNextOneRuns) {
  SessionView failed = action_view(ActionState::failed, ActionPhase::publish, {});
  failed.total_bytes.reset();
  failed.fault = SessionFault::io;
  failed.published = true;
  failed.reason = "folder";
  SessionView full = failed;
  full.fault = SessionFault::storage;
  full.published = false;
  full.phase = ActionPhase::moving;
  failed.phase = ActionPhase::moving;
  tiers_.session_script = {failed, full};
  model_.set_length(2, 77);
  post("SAVE /tmp/a");
  post("SAVE /tmp/b");
  post("RESTORE slot=44 /tmp/b");
  post("ERASE slot=2");
  ASSERT_TRUE(mailbox_.post(EndOfInput{}));
  EXPECT_THAT(run(), ElementsAre("SERR io 1 folder", "SERR storage 0 folder", "SERR invalid 0 no such slot",
                                 "ERASED 77", "DRAIN 0 0", "BYE"));
}

TEST_F(Session, SES3_ALostSlotEndsTheEngine) {
  SessionView lost = action_view(ActionState::fatal, ActionPhase::moving, {});
  lost.reason = "copy";
  tiers_.session_script = {lost};
  post("GEN 1 max=1000 tokens=1,2,3");
  post("RESTORE slot=1 /tmp/a");
  SessionLoop loop({engine_, tiers_, clock_, log_, metrics_, output_, mailbox_, 4096});
  EXPECT_FALSE(loop.run());
  const auto lines = written();
  EXPECT_THAT(lines, Contains("FATAL copy"));
  EXPECT_EQ(of<lines::Done>(lines).at(0).finish, lines::Finish::cancel);
  EXPECT_EQ(lines.back(), "BYE");
}

TEST_F(Session, QuitCancelsTheActionThatRunsAndRefusesThoseThatWait) {
  tiers_.session_script = {action_view(ActionState::running, ActionPhase::moving, {})};
  post("SAVE slot=0 /tmp/x");
  post("ERASE slot=0");
  post("QUIT");
  post("SAVE slot=0 /tmp/y");
  const auto errors = of<lines::SlotError>(run());
  ASSERT_EQ(errors.size(), 3U);
  EXPECT_EQ(errors[0].reason, "cancelled");
  EXPECT_EQ(errors[1].kind, "io");
  EXPECT_EQ(errors[2].reason, "the engine is shutting down");
  EXPECT_EQ(tiers_.session_requests.size(), 1U);
}

TEST_F(Session, StoredConversationsAreListedPinnedAndForgotten) {
  tiers_.stored.push_back({ConversationId{0xABC}, 12, 100, 200, 1, 2, false, "main"});
  post("SESSIONS");
  post("PIN 0000000000000abc 1");
  post("FORGET 0000000000000abc");
  post("FORGET 0000000000000abc");
  post("QUIT");
  const auto lines = run();
  EXPECT_THAT(of<lines::Sessions>(lines).at(0).json, HasSubstr(R"("id":"0000000000000abc","tokens":12)"));
  EXPECT_EQ(of<lines::Acknowledged>(lines).size(), 2U);
  EXPECT_EQ(of<lines::SlotError>(lines).size(), 1U);
}

// DISK-7: the shutdown reports its progress and how much it moved.
TEST_F(Session, DrainsBeforeBye) {
  tiers_.drain_script = {{0, 100, 0, false}, {0, 100, 0, false}, {50, 100, 1, false}};
  tiers_.drain = {100, 100, 2, true};
  post("QUIT");
  const auto lines = run();
  const auto drains = of<lines::Drain>(lines);
  ASSERT_GE(drains.size(), 2U);
  EXPECT_EQ(drains.back().done, 100U);
  EXPECT_EQ(lines.back(), "BYE");
  EXPECT_TRUE(log_.contains("strata: shutdown: 2 conversations"));
}

TEST_F(Session, TerminationDrainsWithoutLinesNobodyAskedFor) {
  tiers_.drain_script = {{0, 100, 0, false}, {50, 100, 1, false}};
  tiers_.drain = {100, 100, 2, true};
  ASSERT_TRUE(mailbox_.post(Terminate{}));
  const auto lines = run();
  EXPECT_TRUE(of<lines::Drain>(lines).empty());
  EXPECT_TRUE(tiers_.drain_script.empty()) << "the writes were waited for";
}

// A server in the same process group sends QUIT after the signal reached both: that must not cut the writes
// short.
TEST_F(Session, QuitAfterTerminationStillWaitsForTheWrites) {
  tiers_.drain_script.assign(5, {0, 100, 0, false});
  tiers_.drain = {100, 100, 2, true};
  ASSERT_TRUE(mailbox_.post(Terminate{}));
  post("QUIT");
  run();
  EXPECT_TRUE(tiers_.drain_script.empty());
}

TEST_F(Session, ASecondTerminationEndsTheWaiting) {
  tiers_.drain = {0, 100, 0, false};  // never finishes
  ASSERT_TRUE(mailbox_.post(Terminate{}));
  std::thread later([this] {
    while (!log_.contains("waiting")) std::this_thread::yield();
    mailbox_.post(Terminate{});
  });
  tiers_.on_step = [this] {
    if (tiers_.shutdown_begun && !log_.contains("waiting")) log_.write(LogLevel::info, "waiting");
  };
  run();
  later.join();
  EXPECT_TRUE(log_.contains("ended before all was written"));
}

TEST_F(Session, AnOutputNobodyReadsEndsTheSession) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  close(pipe_ends[0]);
  signal(SIGPIPE, SIG_IGN);
  EventWriter output(pipe_ends[1]);
  Engine engine({model_, tiers_, clock_, random_, log_, metrics_, output}, {});
  post("GEN 1 max=1000000 tokens=1,2,3");
  SessionLoop loop({engine, tiers_, clock_, log_, metrics_, output, mailbox_, 4096});
  loop.run();
  EXPECT_TRUE(output.closed());
  EXPECT_TRUE(tiers_.shutdown_begun);
  close(pipe_ends[1]);
}

TEST(CommandReading, LinesInPiecesTheEndAndTheId) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  InputMailbox mailbox(4);
  CommandReader reader(pipe_ends[0], -1, mailbox);
  for (const std::string piece : {"GEN 1 max=1 to", "kens=5\nSTOP 1\n\nGEN 7 nonsense\n", "QUIT"})
    ASSERT_EQ(write(pipe_ends[1], piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
  close(pipe_ends[1]);
  std::vector<Input> inputs;
  while (inputs.empty() || !std::holds_alternative<EndOfInput>(inputs.back())) {
    mailbox.wait(std::chrono::seconds(10));
    for (Input& input : mailbox.take_all()) inputs.push_back(std::move(input));
  }
  ASSERT_EQ(inputs.size(), 5U);
  EXPECT_EQ(std::get<lines::Generate>(std::get<lines::Command>(inputs[0])).tokens, std::vector<Token>{5});
  EXPECT_EQ(std::get<lines::Stop>(std::get<lines::Command>(inputs[1])).id, 1U);
  EXPECT_EQ(std::get<BadLine>(inputs[2]).id, 7U);
  EXPECT_TRUE(std::holds_alternative<lines::Quit>(std::get<lines::Command>(inputs[3])));
  close(pipe_ends[0]);
}

}  // namespace
}  // namespace strata
