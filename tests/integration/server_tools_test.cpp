// Chat completions of a model with a chat format of its own: tools, reasoning, response formats, whole and
// streamed (SRV-2), with a scripted engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"look","description":"Looks","parameters":{"type":"object"}}}])";
constexpr const char* kAnswer =
    R"(@say(<think>Hm</think>Ok.<call>look {\"at\":1}</call><call>look {}</call>))";

class ServerTools : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ServerProcess({{"--chat", "1"}, {}, true}); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static ServerProcess* server_;
};
ServerProcess* ServerTools::server_ = nullptr;

TEST_F(ServerTools, WholeAnswerHasReasoningContentAndCalls) {
  const HttpAnswer answer = server_->chat(kAnswer, kTools);
  EXPECT_EQ(answer.status, 200) << answer.body;
  expect_golden("chat_tools.json", normalized(answer.body));
}

TEST_F(ServerTools, StreamedAnswerIsTheGoldenOne) {
  const HttpAnswer answer = server_->chat(
      kAnswer, std::string(kTools) + R"(,"stream":true,"stream_options":{"include_usage":true})");
  expect_golden("chat_tools_stream.txt", normalized(answer.body));
}

// What cannot be parsed is the request's fault, and never comes to the engine.
TEST_F(ServerTools, AGrammarThatCannotBeParsedIs400) {
  for (const char* path : {"/completion", "/v1/completions"}) {
    const HttpAnswer answer = server_->post(path, R"_({"prompt":"x","grammar":"root ::= ("})_");
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_THAT(answer.body, HasSubstr("grammar: a \\\"(\\\" is not closed"));
  }
  EXPECT_THAT(server_->journal(), Not(HasSubstr("root")));
  EXPECT_EQ(server_->post("/completion", R"_({"prompt":"@say(x)","grammar":"root ::= ()"})_").status, 200);
}

TEST_F(ServerTools, CallsAloneHaveNullContent) {
  const HttpAnswer answer = server_->chat("@say(<call>look {}</call>)", kTools);
  EXPECT_THAT(answer.body, HasSubstr(R"("content":null,"tool_calls":[{"id":"call_)"));
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"tool_calls")"));
}

TEST_F(ServerTools, OneCallWhereOnlyOneIsWanted) {
  for (const char* stream : {"", R"(,"stream":true)"}) {
    const HttpAnswer answer =
        server_->chat(kAnswer, std::string(kTools) + R"(,"parallel_tool_calls":false)" + stream);
    EXPECT_THAT(answer.body, HasSubstr("\"name\":\"look\""));
    EXPECT_EQ(answer.body.find("\"name\":\"look\""), answer.body.rfind("\"name\":\"look\"")) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"tool_calls")"));
  }
}

// A grammar of the client's own is held to in chats too; the format's goes first.
TEST_F(ServerTools, ChatsAreHeldToGrammars) {
  const HttpAnswer answer = server_->chat("@say(yes)", R"(,"grammar":"root ::= [a-z]*")");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(server_->journal(), HasSubstr(" grammar=root%20::="));
  EXPECT_EQ(server_->chat("@say(yes)", R"_(,"grammar":"root ::= (")_").status, 400);
}

TEST_F(ServerTools, ACallThatWasCutIsALengthEnd) {
  const HttpAnswer answer =
      server_->chat("@say(<call>look {}</call>)", std::string(kTools) + R"(,"max_tokens":12)");
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"length")"));
}

TEST_F(ServerTools, WithoutToolsTheTagsAreText) {
  const HttpAnswer answer = server_->chat("@say(<call>look {}</call>)");
  EXPECT_THAT(answer.body, HasSubstr(R"("content":"<call>look {}</call>")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"stop")"));
  const HttpAnswer declined =
      server_->chat("@say(<call>look {}</call>)", std::string(kTools) + R"(,"tool_choice":"none")");
  EXPECT_THAT(declined.body, Not(HasSubstr("tool_calls")));
}

TEST_F(ServerTools, GrammarsReachTheEngine) {
  (void)server_->chat("@say(x)", std::string(kTools) + R"(,"tool_choice":"required")");
  EXPECT_THAT(server_->journal(), HasSubstr(" grammar=call%20of%20look "));
  const std::string one = R"(,"tool_choice":{"type":"function","function":{"name":"look"}})";
  (void)server_->chat("@say(one)", kTools + one);
  EXPECT_THAT(server_->journal(), HasSubstr("grammar=call%20of%20look "));
  (void)server_->chat(
      "@say(x)",
      R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}})");
  EXPECT_THAT(server_->journal(), HasSubstr(R"( grammar=json%20{"type":"object"} )"));
}

TEST_F(ServerTools, StopStringsOfTheFormatEndTheAnswer) {
  const HttpAnswer answer = server_->chat("@say(one<end>two)");
  EXPECT_THAT(answer.body, HasSubstr(R"("content":"one")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"stop")"));
}

TEST_F(ServerTools, AnAnswerWithoutKnownFormIsStillAnAnswer) {
  EXPECT_THAT(server_->chat("@say(a<broken>)", kTools).body, HasSubstr(R"("content":"a<broken>")"));
}

TEST_F(ServerTools, WhatTheFormatRefusesIs400InItsWords) {
  const HttpAnswer answer =
      server_->post("/v1/chat/completions", R"({"messages":[{"role":"system","content":"x"}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("the template needs a message of the user"));
}

TEST_F(ServerTools, RolesThatNoTemplateKnowsAreRenamed) {
  const HttpAnswer answer = server_->post("/apply-template", R"({"messages":[
    {"role":"developer","content":"D"},{"role":"user","content":"U"}]})");
  EXPECT_EQ(answer.body, R"({"prompt":"<system>\nD\n<user>\nU\n<assistant>\n"})");
}

// RAM-6: borders are those of the rendered request, tools included; a beginning that the format refuses (the
// system prompt alone) has none.
TEST_F(ServerTools, BordersOfMessagesReachTheEngine) {
  (void)server_->post("/v1/chat/completions", R"j({"messages":[{"role":"system","content":"S"},
    {"role":"user","content":"A"},{"role":"assistant","content":"B"},{"role":"user","content":"@say(q)"}]})j");
  const std::string first = "<system>\nS\n<user>\nA\n<assistant>\nB\n";
  const std::string all = first + "<user>\n@say(q)\n";
  EXPECT_THAT(server_->journal(),
              HasSubstr("borders=" + std::to_string(first.size()) + "," + std::to_string(all.size()) + " "));
}

TEST_F(ServerTools, RequestsOfRecordedAgentsAreTaken) {
  const HttpAnswer answer = server_->post("/v1/chat/completions", R"j({"model":"mock","messages":[
    {"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"list"}]},
    {"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"bash","arguments":"{\"c\":1}"}}]},
    {"role":"tool","content":"a.txt","tool_call_id":"call_1"},
    {"role":"user","content":"@say(<call>bash {}</call>)"}],"stream":true,"stream_options":{"include_usage":true},
    "store":false,"max_completion_tokens":2048,"tools":[{"type":"function","function":{"name":"bash",
    "parameters":{"$schema":"x","type":"object","properties":{"t":{"maximum":9007199254740991}}},"strict":false}}]})j");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.body, HasSubstr(R"("function":{"name":"bash","arguments":"")"));
  EXPECT_THAT(answer.body, HasSubstr(R"("finish_reason":"tool_calls")"));
}

}  // namespace
}  // namespace strata::test
