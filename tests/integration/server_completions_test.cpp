// Completions over HTTP with a scripted engine: bodies, stream order, stop strings, UTF-8, progress, log
// probabilities.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServerCompletions : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ServerProcess({{"--ping-ms", "60"}, {}, true}); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static ServerProcess* server_;
};
ServerProcess* ServerCompletions::server_ = nullptr;

// SRV-2, OBS-1
TEST_F(ServerCompletions, WholeChatBodyIsTheGoldenOne) {
  const HttpAnswer answer = server_->chat("@say(Hi there)");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json; charset=utf-8");
  expect_golden("chat_completion.json", normalized(answer.body));
}

TEST_F(ServerCompletions, ChatStreamIsTheGoldenOne) {
  const HttpAnswer answer =
      server_->chat("@say(Hi)", R"(,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
  expect_golden("chat_stream.txt", normalized(answer.body));
}

TEST_F(ServerCompletions, StreamWithoutUsageHasTheTimingsOnItsLastChunk) {
  const auto events = events_of(server_->chat("@say(Hi)", R"(,"stream":true)").body);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_THAT(events[0], HasSubstr(R"("delta":{"role":"assistant","content":null})"));
  EXPECT_THAT(events[1], HasSubstr(R"("delta":{"content":"H"})"));
  EXPECT_THAT(events[3], HasSubstr(R"("delta":{},"logprobs":null,"finish_reason":"stop")"));
  EXPECT_THAT(events[3], HasSubstr(R"("cache_tier":"ram")"));
  EXPECT_EQ(events[4], "[DONE]");
  for (const std::string& event : events) EXPECT_THAT(event, Not(HasSubstr("\"usage\"")));
}

TEST_F(ServerCompletions, TextBodiesAreTheGoldenOnes) {
  const HttpAnswer whole =
      server_->post("/v1/completions", R"j({"prompt":"@say(abc)","logprobs":2,"max_tokens":2})j");
  expect_golden("text_completion.json", normalized(whole.body));
  const HttpAnswer stream = server_->post("/v1/completions", R"j({"prompt":["@say(ab)"],"stream":true})j");
  expect_golden("text_stream.txt", normalized(stream.body));
}

TEST_F(ServerCompletions, TokenPromptsAreTaken) {
  // "@say(z)"
  const HttpAnswer answer = server_->post("/v1/completions", R"({"prompt":[64,115,97,121,40,122,41]})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"("text":"z")"));
  EXPECT_EQ(server_->post("/v1/completions", R"({"prompt":[64,1000]})").status, 400);
}

TEST_F(ServerCompletions, StopStringEndsTheAnswerAcrossTokens) {
  const HttpAnswer whole = server_->chat("@say(one two three)", R"(,"stop":["wo t"])");
  EXPECT_THAT(whole.body, HasSubstr(R"("content":"one t")"));
  EXPECT_THAT(whole.body, HasSubstr(R"("finish_reason":"stop")"));
  const HttpAnswer stream = server_->chat("@say(one two three)", R"(,"stream":true,"stop":"two")");
  std::string text;
  for (const std::string& event : events_of(stream.body)) {
    const size_t at = event.find(R"("delta":{"content":")");
    if (at != std::string::npos) text += event.substr(at + 20, event.find('"', at + 20) - at - 20);
  }
  EXPECT_EQ(text, "one ");
}

TEST_F(ServerCompletions, StopStringAsksTheEngineToStop) {
  const HttpAnswer answer = server_->chat("@hold", R"(,"stop":"b")");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"("content":"a")"));
  EXPECT_TRUE(server_->wait_for_journal("STOP "));
}

TEST_F(ServerCompletions, ChunksNeverCutACharacter) {
  // "é€" and the first byte of a third character that never comes
  const auto events = events_of(server_->chat("@hex(c3a9e282ace2)", R"(,"stream":true)").body);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_THAT(events[1], HasSubstr("{\"content\":\"é\"}"));
  EXPECT_THAT(events[2], HasSubstr("{\"content\":\"€\"}"));
  EXPECT_THAT(events[3], HasSubstr("{\"content\":\"\xEF\xBF\xBD\"}"));
}

TEST_F(ServerCompletions, LengthIsTheReasonWhenTokensRunOut) {
  const HttpAnswer answer = server_->chat("@say(abcdef)", R"(,"max_tokens":5,"max_completion_tokens":3)");
  EXPECT_THAT(answer.body, HasSubstr(R"("content":"abc")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"length")"));
}

TEST_F(ServerCompletions, ProgressIsSentWhereItIsAskedFor) {
  const auto events = events_of(server_->chat("@say(x)", R"(,"stream":true,"return_progress":true)").body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_THAT(events[1], HasSubstr(R"("prompt_progress":{"total":)"));
  EXPECT_THAT(events[2], HasSubstr(R"("time_ms":20)"));
}

TEST_F(ServerCompletions, TimingsPerToken) {
  const auto events = events_of(server_->chat("@say(x)", R"(,"stream":true,"timings_per_token":true)").body);
  EXPECT_THAT(events.at(1), HasSubstr(R"("timings":{"cache_n":)"));
}

TEST_F(ServerCompletions, ChatLogprobs) {
  const HttpAnswer answer = server_->chat("@say(x)", R"(,"logprobs":true,"top_logprobs":1)");
  EXPECT_THAT(
      answer.body,
      HasSubstr(R"("content":[{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[{"token":"a")"));
}

TEST_F(ServerCompletions, CacheAndSlotOptionsReachTheEngine) {
  EXPECT_THAT(server_->chat("@say(x)", R"(,"cache_prompt":false,"id_slot":1,"ignore_eos":true)").body,
              HasSubstr(R"("cached_tokens":0)"));
  EXPECT_THAT(server_->journal(), HasSubstr(" slot=1 cache=0 ignore_end=1 "));
}

// RAM-6: the end of the system prompt, and the end of the user's message.
TEST_F(ServerCompletions, BordersOfMessagesReachTheEngine) {
  (void)server_->chat("@say(border)");
  const std::string system = "<system>\nBe brief.\n";
  const std::string all = system + "<user>\n@say(border)\n";
  EXPECT_THAT(server_->journal(),
              HasSubstr("borders=" + std::to_string(system.size()) + "," + std::to_string(all.size()) + " "));
}

// Lesson 20: clients time out during long reads.
TEST_F(ServerCompletions, SilentStreamIsKeptAliveByComments) {
  HttpClient client(server_->port());
  const std::string body = chat_body("@wait", R"(,"stream":true)");
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_THAT(client.read_until(":\n\n\r\n"), HasSubstr("text/event-stream"));
  EXPECT_THAT(client.read_until(":\n\n\r\n"), HasSubstr(":\n\n"));
}

TEST_F(ServerCompletions, MessagesOfAgentsAreTaken) {
  const HttpAnswer answer = server_->post("/v1/chat/completions", R"j({"model":"mock","messages":[
    {"role":"developer","content":[{"type":"text","text":"You are"},{"type":"text","text":" an agent."}]},
    {"role":"user","content":[{"type":"text","text":"list"}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"bash","arguments":"{\"c\":1}"}}]},
    {"role":"tool","tool_call_id":"call_1","content":"a.txt"},
    {"role":"user","content":"@say(ok)"}],
    "tools":[{"type":"function","function":{"name":"bash"}}],"tool_choice":"none","store":false,"max_completion_tokens":2048})j");
  EXPECT_EQ(answer.status, 200) << answer.body;
  const HttpAnswer rendered = server_->post("/apply-template", R"({"messages":[
    {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"c","content":"x"}]})");
  EXPECT_EQ(
      rendered.body,
      R"({"prompt":"<assistant>\n<tool_call>{\"name\":\"bash\",\"arguments\":\"{}\"}</tool_call>\n<tool>\nx\n<assistant>\n"})");
}

TEST_F(ServerCompletions, TextTools) {
  EXPECT_EQ(server_->post("/tokenize", R"({"content":"hé"})").body, R"({"tokens":[104,195,169]})");
  EXPECT_EQ(server_->post("/tokenize", R"({"content":"é","with_pieces":true})").body,
            R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
  EXPECT_EQ(server_->post("/detokenize", R"({"tokens":[104,105]})").body, R"({"content":"hi"})");
  EXPECT_EQ(server_->post("/detokenize", R"({"tokens":[1000]})").status, 400);
}

}  // namespace
}  // namespace strata::test
