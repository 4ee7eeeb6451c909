// The server and its engine over time: loading, death, nonsense, silence, clients that leave, shutdown
// (SRV-1, DISK-7).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;

void send_chat(HttpClient& client, const std::string& message, const std::string& extra = "") {
  const std::string body = chat_body(message, extra);
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(ServerLifecycle, EverythingButHealthAnswers503WhileLoading) {
  const ServerProcess server({{}, {"--start-after", "{folder}/go"}, false});
  for (const char* path : {"/health", "/v1/models", "/props", "/slots", "/metrics"}) {
    const HttpAnswer answer = server.get(path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_THAT(answer.body, HasSubstr(R"("message":"Loading model","type":"unavailable_error")"));
  }
  EXPECT_EQ(server.chat("x").status, 503);
  std::ofstream(server.folder() + "/go") << "x";
  EXPECT_TRUE(eventually([&] { return server.get("/health").status == 200; }));
  EXPECT_EQ(server.chat("@say(x)").status, 200);
}

// OBS-2
TEST(ServerLifecycle, TierThatCannotWorkIsSaidInHealth) {
  const ServerProcess server({{}, {"--disk-off", "the folder is full"}, true});
  EXPECT_EQ(server.get("/health").body,
            R"({"status":"ok","warnings":["the disk tier is off: the folder is full"]})");
}

TEST(ServerLifecycle, EngineThatCannotStartEndsTheServerWithItsReason) {
  ServerProcess server({{}, {"--fail-start", "the folder is in use"}, false});
  EXPECT_EQ(server.wait_exit(), 1);
  EXPECT_EQ(count(server.log(), "the folder is in use"), 1u) << "one line, not two";
  EXPECT_THAT(server.log(), Not(HasSubstr("engine ended")));
}

TEST(ServerLifecycle, AddressInUseIsOneClearLine) {
  const ServerProcess first;
  ServerProcess second({{"--port", std::to_string(first.port())}, {}, false});
  EXPECT_EQ(second.wait_exit(), 1);
  EXPECT_THAT(second.log(), HasSubstr("cannot listen on 127.0.0.1:" + std::to_string(first.port())));
}

TEST(ServerLifecycle, DeathAnswers500AndTheNextRequestWorks) {
  const ServerProcess server;
  const HttpAnswer answer = server.chat("@die");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("the engine exited with status 3"));
  EXPECT_EQ(count(server.journal(), "START"), 1u) << "nobody has asked since";
  EXPECT_THAT(server.get("/health").body, HasSubstr("the next request starts it again"));
  EXPECT_EQ(server.chat("@say(again)").status, 200);
  EXPECT_EQ(count(server.journal(), "START"), 2u);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("strata_engine_restarts_total 1\n"));
}

TEST(ServerLifecycle, DeathInTheMiddleOfAStreamIsSaidInTheStream) {
  const ServerProcess server;
  const HttpAnswer answer = server.chat("@die_mid", R"(,"stream":true)");
  const auto events = events_of(answer.body);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_THAT(events[2], HasSubstr(R"({"content":"b"})"));
  EXPECT_THAT(events[3], HasSubstr(R"({"error":{"code":500)"));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
}

TEST(ServerLifecycle, OthersAreLostWithItOrGoOnWithTheNext) {
  const ServerProcess server;
  HttpClient begun(server.port());
  HttpClient waiting(server.port());
  send_chat(begun, "@hold");
  EXPECT_TRUE(server.wait_for_journal("GEN 1 "));
  send_chat(waiting, "@wait");
  EXPECT_TRUE(server.wait_for_journal("GEN 2 "));
  EXPECT_EQ(server.chat("@die").status, 500);
  EXPECT_EQ(begun.read_answer().status, 500);
  EXPECT_TRUE(eventually([&] { return count(server.journal(), "GEN 2 ") == 2; })) << "it had not begun";
}

TEST(ServerLifecycle, RequestThatEndsEveryEngineIsTriedTwiceOnly) {
  const ServerProcess server;
  EXPECT_EQ(server.chat("@die_early").status, 500);
  EXPECT_EQ(count(server.journal(), "START"), 2u);
  EXPECT_EQ(server.chat("@say(x)").status, 200);
}

TEST(ServerLifecycle, NonsenseEndsTheEngine) {
  const ServerProcess server;
  for (const char* line : {"@raw(HELLO)", "@raw(T 999 1)", "@raw(SAVED 1 1 1)", "@too_many"}) {
    const HttpAnswer answer = server.chat(line, R"(,"max_tokens":2)");
    EXPECT_EQ(answer.status, 500) << line;
    EXPECT_THAT(answer.body, HasSubstr("out of protocol")) << line;
    EXPECT_EQ(server.chat("@say(ok)").status, 200) << line;
  }
  EXPECT_EQ(server.chat("@fatal(device lost)").status, 500);
  EXPECT_EQ(server.chat("@say(ok)").status, 200);
}

TEST(ServerLifecycle, SilentEngineIsEnded) {
  const ServerProcess server({{"--silence-s", "1"}, {}, true});
  const HttpAnswer answer = server.chat("@silent");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("silent for 1 s"));
  EXPECT_EQ(server.chat("@slow(1500)").status, 200) << "an announced wait is no silence";
}

TEST(ServerLifecycle, EngineThatKeepsDyingIsNotStartedInALoop) {
  const ServerProcess server;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server.chat("@die").status, 500);
  const HttpAnswer answer = server.chat("@say(x)");
  EXPECT_EQ(answer.status, 503);
  EXPECT_TRUE(answer.headers.contains("retry-after"));
  EXPECT_TRUE(eventually([&] { return server.chat("@say(x)").status == 200; }));
}

// Lesson 20: what was read stays in the slot; the request is ended, not the engine.
TEST(ServerLifecycle, ClientThatLeavesStopsItsRequest) {
  const ServerProcess server;
  {
    HttpClient streaming(server.port());
    send_chat(streaming, "@hold", R"(,"stream":true)");
    EXPECT_THAT(streaming.read_until("\"b\""), HasSubstr("200 OK"));
  }
  EXPECT_TRUE(server.wait_for_journal("STOP 1\n"));
  {
    HttpClient waiting(server.port());
    send_chat(waiting, "@wait");
    EXPECT_TRUE(server.wait_for_journal("GEN 2 "));
  }
  EXPECT_TRUE(server.wait_for_journal("STOP 2\n"));
  {
    HttpClient pipelining(server.port());
    send_chat(pipelining, "@wait");
    EXPECT_TRUE(server.wait_for_journal("GEN 3 "));
    pipelining.send("GET /health HTTP/1.1\r\n");
  }
  EXPECT_TRUE(server.wait_for_journal("STOP 3\n"));
  EXPECT_EQ(server.chat("@say(x)").status, 200);
  EXPECT_EQ(count(server.journal(), "START"), 1u);
}

TEST(ServerLifecycle, TermDrainsAndEndsInOrder) {
  ServerProcess server({{}, {"--drains", "3"}, true});
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_exit(), 0);
  EXPECT_THAT(server.journal(), HasSubstr("QUIT\nBYE\n"));
  EXPECT_THAT(server.log(), HasSubstr("conversations are moved to disk: 3 of 3"));
}

TEST(ServerLifecycle, TermAnswersWhatIsOpen) {
  ServerProcess server;
  HttpClient whole(server.port());
  HttpClient stream(server.port());
  send_chat(whole, "@wait");
  send_chat(stream, "@hold", R"(,"stream":true)");
  EXPECT_THAT(stream.read_until("\"b\""), HasSubstr("200 OK"));
  EXPECT_TRUE(server.wait_for_journal("GEN 2 "));
  server.signal(SIGTERM);
  EXPECT_EQ(whole.read_answer().status, 503);
  EXPECT_THAT(stream.read_until("0\r\n\r\n"), HasSubstr(R"({"error":{"code":503)"));
  EXPECT_EQ(server.wait_exit(), 0);
}

TEST(ServerLifecycle, EngineThatDoesNotQuitIsCut) {
  ServerProcess server({{"--drain-s", "1"}, {"--ignore-quit", "1"}, true});
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait_exit(), 1);
  EXPECT_THAT(server.log(), HasSubstr("did not end within 1 s"));
}

TEST(ServerLifecycle, SecondCtrlCEndsAtOnce) {
  ServerProcess server({{"--persist", "1"}, {"--ignore-quit", "1"}, true});
  server.signal(SIGINT);
  EXPECT_TRUE(server.wait_for_log("once more ends at once"));
  EXPECT_TRUE(server.wait_for_journal("QUIT\n"));
  server.signal(SIGINT);
  EXPECT_EQ(server.wait_exit(), 130);
}

TEST(ServerLifecycle, EngineSeesTheEndOfItsInputWhenTheServerDies) {
  ServerProcess server;
  server.signal(SIGKILL);
  EXPECT_EQ(server.wait_exit(), -SIGKILL);
  EXPECT_TRUE(server.wait_for_journal("EOF\n"));
}

}  // namespace
}  // namespace strata::test
