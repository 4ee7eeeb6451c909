// The engine's process port with real processes (shell one-liners).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

#include "engine/server/child_process.hpp"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kLineLimit = 100;

class ServerChildProcess : public testing::Test {
 protected:
  static void SetUpTestSuite() { ::signal(SIGPIPE, SIG_IGN); }
  // Runs the script until it has ended; what it said and how it ended are left in lines_ and end_.
  void run(const std::string& script, const std::vector<std::string>& to_send = {}) {
    ChildProcess child(io_, {"/bin/sh", "-c", script}, kLineLimit);
    child.on_line = [&](std::string_view line) {
      lines_.emplace_back(line);
      if (line == "kill me") child.kill();
    };
    child.on_end = [&](const std::string& how) { end_ += how; };
    ASSERT_TRUE(child.start().ok());
    for (const std::string& line : to_send) child.send(line);
    io_.restart();
    io_.run();
  }

  boost::asio::io_context io_;
  std::vector<std::string> lines_;
  std::string end_;
};

TEST_F(ServerChildProcess, LinesGoBothWays) {
  run("read a; read b; echo \"$b $a\"; echo two; exit 3", {"one", "zero"});
  EXPECT_THAT(lines_, ElementsAre("zero one", "two"));
  EXPECT_EQ(end_, "exited with status 3");
}

TEST_F(ServerChildProcess, PiecesOfALineAreJoinedAndAnUnfinishedOneIsNoLine) {
  run("printf a; sleep 0.05; printf 'b\\nrest'");
  EXPECT_THAT(lines_, ElementsAre("ab"));
}

TEST_F(ServerChildProcess, ALineAboveTheLimitEndsIt) {
  run("printf '%0100d\\n' 1; printf '%0101d\\n' 1; exec sleep 100");
  EXPECT_THAT(lines_, ElementsAre(testing::SizeIs(100)));
  EXPECT_EQ(end_, "sent a line that is too long");
}

TEST_F(ServerChildProcess, ItCanBeKilledFromItsOwnLine) {
  run("echo 'kill me'; exec sleep 100");
  EXPECT_EQ(end_, "ended by signal 9");
}

TEST_F(ServerChildProcess, OneThatDoesNotReadIsNoObstacle) {
  run("exit 0", std::vector<std::string>(1000, std::string(1000, 'x')));
  EXPECT_EQ(end_, "exited with status 0");
}

TEST_F(ServerChildProcess, ProgramThatIsNotThereIsAnError) {
  ChildProcess child(io_, {"/nowhere/strata"}, kLineLimit);
  const Status started = child.start();
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::not_found);
  EXPECT_THAT(started.error().message, testing::HasSubstr("/nowhere/strata"));
  EXPECT_FALSE(ChildProcess(io_, {}, kLineLimit).start().ok());
}

TEST_F(ServerChildProcess, ItCanBeStartedAgain) {
  ChildProcess child(io_, {"/bin/sh", "-c", "echo $$"}, kLineLimit);
  child.on_line = [&](std::string_view line) { lines_.emplace_back(line); };
  child.on_end = [&](const std::string&) {
    if (lines_.size() == 1) {
      EXPECT_TRUE(child.start().ok());
    }
  };
  ASSERT_TRUE(child.start().ok());
  io_.run();
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_NE(lines_[0], lines_[1]);
}

TEST_F(ServerChildProcess, WhatStillRunsEndsWithTheObject) {
  {
    ChildProcess child(io_, {"/bin/sh", "-c", "exec sleep 100"}, kLineLimit);
    child.on_end = [&](const std::string& how) { end_ += how; };
    ASSERT_TRUE(child.start().ok());
  }
  io_.run();
  EXPECT_THAT(end_, IsEmpty());
}

}  // namespace
}  // namespace strata
