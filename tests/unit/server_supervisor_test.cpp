// The supervisor stepped by hand: a process that records what it is told, a clock that is set (SRV-1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/server/supervisor.hpp"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

class SetClock final : public Clock {
 public:
  uint64_t monotonic_ns() override { return now; }
  uint64_t wall_ns() override { return now; }
  uint64_t now = 1000 * kSecond;
};

class QuietLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class FakeProcess final : public EngineProcess {
 public:
  Status start() override {
    if (fail_next_start) return make_error(ErrorCode::unavailable, "no such program");
    ++starts;
    sent.clear();
    return {};
  }
  void send(std::string line) override { sent.push_back(std::move(line)); }
  void kill() override { ++kills; }

  bool fail_next_start = false;
  int starts = 0;
  int kills = 0;
  std::vector<std::string> sent;
};

// Writes down what happened as short words.
class Sink final : public RequestSink {
 public:
  void on_resume(const lines::Resume&) override { said.emplace_back("resume"); }
  void on_progress(const lines::PromptProgress&) override { said.emplace_back("progress"); }
  void on_token(const lines::TokenLine&) override { said.emplace_back("token"); }
  void on_logprobs(const lines::LogProbs&) override { said.emplace_back("logprobs"); }
  void on_done(const lines::Done&) override { said.emplace_back("done"); }
  void on_refused(const std::string&) override { said.emplace_back("refused"); }
  void on_lost(const ApiError& error) override {
    said.push_back("lost " + std::to_string(error.status));
    reason = error.message;
  }
  std::vector<std::string> said;
  std::string reason;
};

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() : supervisor_(process_, clock_, log_, {}) {}

  void be_ready() {
    ASSERT_TRUE(supervisor_.start().ok());
    say("INFO engine=1.0 model=x");
    say("READY 100 2");
    ASSERT_TRUE(supervisor_.ready());
  }
  void say(const std::string& line) { process_.on_line(line); }
  void end() { process_.on_end("ended by signal 9"); }
  void pass(uint64_t seconds) {
    clock_.now += seconds * kSecond;
    supervisor_.tick();
  }
  std::shared_ptr<Sink> ask(uint32_t max_tokens = 4, bool logprobs = false) {
    auto sink = std::make_shared<Sink>();
    lines::Generate request;
    request.max_tokens = max_tokens;
    request.tokens = {1, 2, 3, 4};
    if (logprobs) request.sampling.logprobs = 0;
    const auto id = supervisor_.generate(std::move(request), sink);
    if (!id) sink->on_lost(id.error());
    return sink;
  }
  std::string done(uint64_t id) {
    return "DONE " + std::to_string(id) +
           " finish=stop prompt=4 reused=0 read=4 prompt_ms=1 generated=1 decode_ms=1 tier=none reason=new "
           "slot=0 "
           "cache_ms=0";
  }

  SetClock clock_;
  QuietLog log_;
  FakeProcess process_;
  Supervisor supervisor_;
};

TEST_F(SupervisorTest, RequestRunsFromGenToDone) {
  be_ready();
  const auto sink = ask();
  EXPECT_THAT(process_.sent, ElementsAre("GEN 1 max=4 tokens=1,2,3,4"));
  say("RESUME 1 0 none 0 0");
  say("PP 1 4 4 10");
  say("T 1 7");
  say(done(1));
  EXPECT_THAT(sink->said, ElementsAre("resume", "progress", "token", "done"));
  EXPECT_EQ(process_.kills, 0);
  EXPECT_EQ(supervisor_.info("engine"), "1.0");
}

TEST_F(SupervisorTest, LoadingAnswers503UntilTheFirstReady) {
  ASSERT_TRUE(supervisor_.start().ok());
  EXPECT_THAT(ask()->said, ElementsAre("lost 503"));
  EXPECT_TRUE(supervisor_.loading());
}

TEST_F(SupervisorTest, FirstEngineThatCannotStartIsReported) {
  std::string reason;
  supervisor_.on_start_failed = [&](const std::string& why) { reason = why; };
  ASSERT_TRUE(supervisor_.start().ok());
  say("ERR - folder is in use");
  process_.on_end("exited with status 1");
  EXPECT_EQ(reason, "folder is in use");
  EXPECT_THAT(log_.lines, IsEmpty()) << "who started it says it, once";
}

TEST_F(SupervisorTest, ReadinessIsToldOnceHoweverManyEnginesFollow) {
  int told = 0;
  supervisor_.on_first_ready = [&] { ++told; };
  ASSERT_TRUE(supervisor_.start().ok());
  EXPECT_EQ(told, 0);
  say("READY 100 2");
  EXPECT_EQ(told, 1);
  end();
  ask();
  say("READY 100 2");
  EXPECT_EQ(told, 1);
}

// Every line that is not in the protocol, or not allowed now, ends the engine.
class OutOfProtocol : public SupervisorTest, public testing::WithParamInterface<const char*> {};

TEST_P(OutOfProtocol, EndsTheEngineAndAnswers500) {
  be_ready();
  const auto sink = ask(2);
  say(GetParam());
  EXPECT_EQ(process_.kills, 1) << GetParam();
  EXPECT_THAT(sink->said, testing::Contains("lost 500"));
  EXPECT_THAT(sink->reason, HasSubstr("out of protocol"));
  const size_t said = sink->said.size();
  say("T 1 5");  // what it still says is not heard
  EXPECT_EQ(sink->said.size(), said);
}

INSTANTIATE_TEST_SUITE_P(Lines, OutOfProtocol,
                         testing::Values("", "HELLO", "T 1", "T 1 -5", "T 1 5 6", "T 99 5", "t 1 5",
                                         "READY 100 2", "INFO a=b", "RESUME 1 4 ram 1 0", "PP 1 5 4 1",
                                         "PP 1 4 99 1", "LP 1 5 -0.5", "SAVED 1 1 1", "RESTORED 1 1 1 1",
                                         "ERASED 1", "SERR io 0 x", "SESSION 0 1", "STATUS {}", "SESSIONS []",
                                         "OK FORGET 1", "ERR - late", "SWAIT nap 5", "SWAIT flush 0",
                                         "DRAIN 2 1", "T 1 \xff"));

TEST_F(SupervisorTest, MoreTokensThanAskedForEndTheEngine) {
  be_ready();
  const auto sink = ask(1);
  say("T 1 5");
  EXPECT_EQ(process_.kills, 0);
  say("T 1 5");
  EXPECT_EQ(process_.kills, 1);
}

TEST_F(SupervisorTest, LogprobsBelongToTheTokenBefore) {
  be_ready();
  const auto sink = ask(4, true);
  say("T 1 5");
  say("LP 1 5 -0.5");
  EXPECT_THAT(sink->said, ElementsAre("token", "logprobs"));
  say("T 1 6");
  say("T 1 7");
  EXPECT_EQ(process_.kills, 1);
}

TEST_F(SupervisorTest, NextRequestStartsANewEngineAndWaitsForIt) {
  be_ready();
  const auto first = ask();
  say("RESUME 1 0 none 0 0");
  end();
  EXPECT_THAT(first->said, ElementsAre("resume", "lost 500"));
  EXPECT_EQ(process_.starts, 1) << "nobody has asked yet";
  const auto second = ask();
  EXPECT_EQ(process_.starts, 2);
  EXPECT_THAT(second->said, IsEmpty());
  EXPECT_THAT(process_.sent, IsEmpty());
  say("READY 100 2");
  EXPECT_THAT(process_.sent, ElementsAre("GEN 2 max=4 tokens=1,2,3,4"));
  say(done(2));
  EXPECT_THAT(second->said, ElementsAre("done"));
  EXPECT_EQ(supervisor_.restarts(), 1u);
}

TEST_F(SupervisorTest, RequestsThatComeWhileItIsBeingEndedWaitForTheNext) {
  be_ready();
  const auto first = ask();
  say("HELLO");
  const auto second = ask();
  EXPECT_THAT(second->said, IsEmpty());
  end();
  EXPECT_EQ(process_.starts, 2);
  say("READY 100 2");
  say(done(2));
  EXPECT_THAT(second->said, ElementsAre("done"));
}

TEST_F(SupervisorTest, RequestThatHadNotBegunIsTriedOnceMore) {
  be_ready();
  const auto begun = ask();
  const auto waiting = ask();
  const auto given_up = ask();
  supervisor_.stop(3);
  say("RESUME 1 0 none 0 0");
  end();
  EXPECT_THAT(given_up->said, ElementsAre("lost 500"));
  EXPECT_THAT(begun->said, ElementsAre("resume", "lost 500"));
  EXPECT_THAT(waiting->said, IsEmpty());
  EXPECT_EQ(process_.starts, 2);
  say("READY 100 2");
  EXPECT_THAT(process_.sent, ElementsAre("GEN 2 max=4 tokens=1,2,3,4"));
  end();
  EXPECT_THAT(waiting->said, ElementsAre("lost 500")) << "it may be what ends the engine";
  EXPECT_EQ(process_.starts, 2);
}

TEST_F(SupervisorTest, FailuresInARowAreSpacedOut) {
  be_ready();
  for (int i = 1; i <= 3; ++i) {
    const auto sink = ask();
    EXPECT_EQ(process_.starts, i);
    if (i > 1) say("READY 100 2");
    say("RESUME " + std::to_string(i) + " 0 none 0 0");
    end();
    EXPECT_THAT(sink->said, ElementsAre("resume", "lost 500"));
  }
  EXPECT_THAT(ask()->said, ElementsAre("lost 503"));
  EXPECT_EQ(process_.starts, 3);
  pass(2);
  const auto later = ask();
  EXPECT_THAT(later->said, IsEmpty());
  EXPECT_EQ(process_.starts, 4);
  say("READY 100 2");
  say(done(4));
  end();
  EXPECT_THAT(ask()->said, IsEmpty()) << "a finished request ends the row";
}

TEST_F(SupervisorTest, RestartThatFailsAnswersWhoWaits) {
  be_ready();
  end();
  const auto sink = ask();
  say("ERR - no memory");
  process_.on_end("exited with status 1");
  EXPECT_THAT(sink->said, ElementsAre("lost 500"));
  EXPECT_EQ(sink->reason, "no memory");
}

TEST_F(SupervisorTest, ProgramThatIsGoneIsAnError) {
  be_ready();
  end();
  process_.fail_next_start = true;
  const auto sink = ask();
  EXPECT_THAT(sink->said, ElementsAre("lost 500"));
  EXPECT_EQ(sink->reason, "no such program");
}

TEST_F(SupervisorTest, SilenceWithARequestOpenEndsTheEngine) {
  be_ready();
  pass(10'000);
  EXPECT_EQ(process_.kills, 0) << "silence without a request is fine";
  const auto sink = ask();
  pass(299);
  say("PP 1 1 4 1");
  pass(299);
  EXPECT_EQ(process_.kills, 0) << "progress counts";
  pass(2);
  EXPECT_EQ(process_.kills, 1);
  EXPECT_THAT(sink->reason, HasSubstr("silent for 300 s"));
}

TEST_F(SupervisorTest, AnnouncedWaitIsAllowedUntilTheNextLine) {
  be_ready();
  (void)ask();
  say("SWAIT transfer 100");
  pass(399);
  EXPECT_EQ(process_.kills, 0);
  say("PP 1 1 4 1");
  pass(301);
  EXPECT_EQ(process_.kills, 1);
}

TEST_F(SupervisorTest, StatusAnswersDoNotHideARequestThatStandsStill) {
  be_ready();
  (void)ask();
  for (int i = 0; i < 31 && process_.kills == 0; ++i) {
    supervisor_.status([](const std::optional<std::string>&) {});
    say("STATUS {}");
    pass(10);
  }
  EXPECT_EQ(process_.kills, 1);
}

TEST_F(SupervisorTest, StatusIsAskedOnceForAll) {
  be_ready();
  std::vector<std::string> answers;
  const auto take = [&](const std::optional<std::string>& json) { answers.push_back(json.value_or("none")); };
  supervisor_.status(take);
  supervisor_.status(take);
  EXPECT_THAT(process_.sent, ElementsAre("STATUS"));
  say("STATUS {\"a\":1}");
  EXPECT_THAT(answers, ElementsAre("{\"a\":1}", "{\"a\":1}"));
  supervisor_.status(take);
  pass(11);
  EXPECT_EQ(answers.back(), "none");
}

TEST_F(SupervisorTest, SlotActionsGoOneByOne) {
  be_ready();
  std::vector<std::string> answers;
  const auto take = [&](const SlotOutcome& outcome) {
    if (const auto* erased = std::get_if<lines::Erased>(&outcome))
      answers.push_back(std::to_string(erased->tokens));
    if (const auto* failed = std::get_if<lines::SlotError>(&outcome)) answers.push_back(failed->kind);
    if (const auto* error = std::get_if<ApiError>(&outcome)) answers.push_back(error->kind);
  };
  EXPECT_TRUE(supervisor_.slot_action({lines::SlotActionKind::erase, 0, ""}, take));
  EXPECT_TRUE(supervisor_.slot_action({lines::SlotActionKind::save, 1, "/x/a b"}, take));
  EXPECT_TRUE(supervisor_.slot_action({lines::SlotActionKind::erase, 1, ""}, take));
  EXPECT_EQ(process_.sent.size(), 1u);
  say("ERASED 7");
  EXPECT_EQ(process_.sent.back(), "SAVE slot=1 /x/a b");
  say("SESSION 0 10");
  say("SERR storage 0 full");
  say("SAVED 1 1 1");  // an erase is open, not a save
  EXPECT_EQ(process_.kills, 1);
  EXPECT_THAT(answers, ElementsAre("7", "storage", "io"));
}

TEST_F(SupervisorTest, ASlotActionThatNobodyWaitsForIsNotBegun) {
  be_ready();
  int answers = 0;
  const auto take = [&](const SlotOutcome&) { ++answers; };
  const auto begun = supervisor_.slot_action({lines::SlotActionKind::erase, 0, ""}, take);
  const auto waiting = supervisor_.slot_action({lines::SlotActionKind::erase, 1, ""}, take);
  ASSERT_TRUE(begun && waiting);
  supervisor_.abandon_action(*begun);
  supervisor_.abandon_action(*waiting);
  supervisor_.abandon_action(99);
  say("ERASED 7");
  EXPECT_EQ(answers, 1) << "the engine had that one";
  EXPECT_THAT(process_.sent, ElementsAre("ERASE slot=0"));
  EXPECT_EQ(process_.kills, 0);
}

// The watchdog takes each of them for progress, so they must be some.
TEST_F(SupervisorTest, ProgressOfASessionFileGoesForwardOnly) {
  for (const char* lines : {"SESSION 5 9", "SESSION 0 9"}) {
    SCOPED_TRACE(lines);
    QuietLog log;
    FakeProcess process;
    Supervisor supervisor(process, clock_, log, {});
    ASSERT_TRUE(supervisor.start().ok());
    process.on_line("READY 100 2");
    std::vector<std::string> kinds;
    const auto id =
        supervisor.slot_action({lines::SlotActionKind::restore, 0, "/x/a"}, [&](const SlotOutcome& outcome) {
          if (const auto* error = std::get_if<ApiError>(&outcome)) kinds.push_back(error->kind);
        });
    ASSERT_TRUE(id);
    process.on_line("SESSION 5 9");
    process.on_line(lines);
    const bool back = std::string_view(lines) == "SESSION 0 9";
    EXPECT_EQ(process.kills, back ? 1 : 0);
    EXPECT_EQ(kinds, back ? std::vector<std::string>{"io"} : std::vector<std::string>{});
  }
}

TEST_F(SupervisorTest, AnErasedSlotHasNoProgress) {
  be_ready();
  ASSERT_TRUE(supervisor_.slot_action({lines::SlotActionKind::erase, 0, ""}, [](const SlotOutcome&) {}));
  say("SESSION 0 1");
  EXPECT_EQ(process_.kills, 1);
}

TEST_F(SupervisorTest, ASilentSlotActionEndsTheEngineAndSessionLinesKeepIt) {
  be_ready();
  ASSERT_TRUE(supervisor_.slot_action({lines::SlotActionKind::save, 0, "/x/a"}, [](const SlotOutcome&) {}));
  pass(299);
  say("SESSION 0 9");
  pass(299);
  say("SWAIT flush 100");
  pass(399);
  EXPECT_EQ(process_.kills, 0);
  pass(2);
  EXPECT_EQ(process_.kills, 1);
}

// SES-3: the slot is lost with the engine; the next request has a new one.
TEST_F(SupervisorTest, FatalDuringARestoreIsFollowedByANewEngine) {
  be_ready();
  std::vector<int> statuses;
  const auto take = [&](const SlotOutcome& outcome) {
    if (const auto* error = std::get_if<ApiError>(&outcome)) statuses.push_back(error->status);
  };
  ASSERT_TRUE(supervisor_.slot_action({lines::SlotActionKind::restore, 0, "/x/a"}, take));
  say("SESSION 0 9");
  say("FATAL the device failed in the middle of a transfer");
  EXPECT_THAT(statuses, ElementsAre(500));
  end();
  EXPECT_EQ(process_.starts, 1);
  ASSERT_TRUE(supervisor_.slot_action({lines::SlotActionKind::restore, 0, "/x/a"}, take));
  EXPECT_EQ(process_.starts, 2);
  say("READY 100 2");
  EXPECT_THAT(process_.sent, ElementsAre("RESTORE slot=0 /x/a"));
  say("RESTORED 3 3 9 1");
  EXPECT_THAT(statuses, ElementsAre(500));
}

// It still has to write what it holds for others; what it says about lost requests is nobody's any more.
TEST_F(SupervisorTest, AnEngineMayEndInOrderAfterFatal) {
  be_ready();
  const auto lost = ask();
  ASSERT_TRUE(
      supervisor_.slot_action({lines::SlotActionKind::restore, 0, "/x/a"}, [](const SlotOutcome&) {}));
  say("FATAL the device failed");
  const auto waiting = ask();
  say(done(1));
  say("T 1 7");
  say("SERR io 0 the engine is shutting down");
  say("DRAIN 1 2");
  say("BYE");
  EXPECT_EQ(process_.kills, 0);
  EXPECT_THAT(lost->said, ElementsAre("lost 500"));
  EXPECT_THAT(waiting->said, IsEmpty());
  end();
  EXPECT_EQ(process_.starts, 2);
  say("READY 100 2");
  EXPECT_THAT(process_.sent, ElementsAre("GEN 2 max=4 tokens=1,2,3,4"));
}

TEST_F(SupervisorTest, AnEngineThatDoesNotEndAfterFatalIsKilled) {
  be_ready();
  ASSERT_TRUE(
      supervisor_.slot_action({lines::SlotActionKind::restore, 0, "/x/a"}, [](const SlotOutcome&) {}));
  say("FATAL the device failed");
  pass(20);
  EXPECT_EQ(process_.kills, 0);
  pass(1);
  EXPECT_EQ(process_.kills, 1);
}

// Or a file that ends every engine would be tried without a pause.
TEST_F(SupervisorTest, FatalCountsAsAFailureAlthoughTheEndIsInOrder) {
  be_ready();
  const auto restore = [this] {
    return supervisor_.slot_action({lines::SlotActionKind::restore, 0, "/x/a"}, [](const SlotOutcome&) {});
  };
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(restore());
    if (supervisor_.starting()) say("READY 100 2");
    say("FATAL the device failed");
    say("BYE");
    end();
  }
  const auto refused = restore();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 503);
  EXPECT_GT(refused.error().retry_after_s, 0u);
}

TEST_F(SupervisorTest, AnotherSlotsTokensDoNotUseUpAnActionsAllowance) {
  be_ready();
  (void)ask();
  ASSERT_TRUE(supervisor_.slot_action({lines::SlotActionKind::save, 1, "/x/a"}, [](const SlotOutcome&) {}));
  say("SWAIT flush 100");
  say("T 1 7");
  say(done(1));
  pass(399);
  EXPECT_EQ(process_.kills, 0);
  say("SAVED 3 9 1");
  EXPECT_EQ(process_.kills, 0);
}

TEST_F(SupervisorTest, AnActionThatQuitCutsShortIsAnsweredAsARequestIs) {
  be_ready();
  std::vector<int> statuses;
  ASSERT_TRUE(
      supervisor_.slot_action({lines::SlotActionKind::save, 0, "/x/a"}, [&](const SlotOutcome& outcome) {
        if (const auto* error = std::get_if<ApiError>(&outcome)) statuses.push_back(error->status);
      }));
  supervisor_.shut_down();
  say("SERR io 0 the engine is shutting down");
  EXPECT_THAT(statuses, ElementsAre(503));
}

TEST_F(SupervisorTest, FatalLosesWhatIsOpen) {
  be_ready();
  const auto sink = ask();
  say("FATAL transfer failed");
  EXPECT_THAT(sink->said, ElementsAre("lost 500"));
  EXPECT_THAT(sink->reason, HasSubstr("transfer failed"));
}

TEST_F(SupervisorTest, RefusedRequestLeavesTheEngineAlone) {
  be_ready();
  const auto sink = ask();
  say("ERR 1 no slot");
  EXPECT_THAT(sink->said, ElementsAre("refused"));
  EXPECT_EQ(process_.kills, 0);
}

TEST_F(SupervisorTest, StopReachesTheEngineOnceSent) {
  be_ready();
  (void)ask();
  supervisor_.stop(1);
  supervisor_.stop(77);
  EXPECT_EQ(process_.sent.back(), "STOP 1");
  say(done(1));
  end();
  const auto waiting = ask();
  supervisor_.stop(2);
  say("READY 100 2");
  EXPECT_THAT(process_.sent, IsEmpty()) << "a request that was given up before it was sent";
}

// DISK-7
TEST_F(SupervisorTest, ShutdownIsCleanAfterBye) {
  be_ready();
  std::optional<bool> clean;
  supervisor_.on_stopped = [&](bool value) { clean = value; };
  supervisor_.shut_down();
  EXPECT_EQ(process_.sent.back(), "QUIT");
  EXPECT_THAT(ask()->said, ElementsAre("lost 503"));
  say("DRAIN 1 2");
  say("DRAIN 2 2");
  say("BYE");
  process_.on_end("exited with status 0");
  EXPECT_EQ(clean, true);
}

TEST_F(SupervisorTest, ShutdownThatTakesTooLongIsCut) {
  be_ready();
  std::optional<bool> clean;
  supervisor_.on_stopped = [&](bool value) { clean = value; };
  supervisor_.shut_down();
  pass(19);
  EXPECT_EQ(process_.kills, 0);
  pass(2);
  EXPECT_EQ(process_.kills, 1);
  end();
  EXPECT_EQ(clean, false);
}

// A signal to the process group reaches the engine too, and maybe first.
TEST_F(SupervisorTest, EngineThatLeavesByItselfIsNotEnded) {
  be_ready();
  const auto sink = ask();
  say("DRAIN 0 10");
  EXPECT_THAT(sink->said, ElementsAre("lost 500"));
  std::optional<bool> clean;
  supervisor_.on_stopped = [&](bool value) { clean = value; };
  supervisor_.shut_down();
  EXPECT_EQ(process_.sent.size(), 1u) << "no QUIT: it is on its way out";
  say("DRAIN 10 10");
  say("BYE");
  process_.on_end("exited with status 0");
  EXPECT_EQ(process_.kills, 0);
  EXPECT_EQ(clean, true);
}

}  // namespace
}  // namespace strata
