// OpenAI's Responses API with a scripted engine: bodies, event order, what is refused (SRV-2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","name":"look","strict":false,"parameters":{"type":"object"}},{"type":"web_search"}])";

class ServerResponses : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ServerProcess({{"--chat", "1"}, {}, true}); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static HttpAnswer ask(const std::string& text, const std::string& extra = "") {
    return server_->post("/v1/responses",
                         R"({"model":"m","instructions":"Be brief.","input":")" + text + "\"" + extra + "}");
  }
  static ServerProcess* server_;
};
ServerProcess* ServerResponses::server_ = nullptr;

TEST_F(ServerResponses, BodiesAreTheGoldenOnes) {
  expect_golden("responses.json", normalized(ask("@say(Hi)").body));
  expect_golden("responses_stream.txt", normalized(ask("@say(Hi)", R"(,"stream":true)").body));
}

TEST_F(ServerResponses, ToolCallsAreTheGoldenOnes) {
  const std::string say = R"(@say(<think>Hm</think>Ok<call>look {\"a\":1}</call>))";
  expect_golden("responses_tools.json", normalized(ask(say, kTools).body));
  expect_golden("responses_tools_stream.txt",
                normalized(ask(say, std::string(kTools) + R"(,"stream":true)").body));
}

TEST_F(ServerResponses, ACutAnswerIsIncomplete) {
  const HttpAnswer answer = ask("@say(abc)", R"(,"stream":true,"max_output_tokens":2)");
  EXPECT_THAT(answer.body, HasSubstr("event: response.incomplete\n"));
  EXPECT_THAT(answer.body, HasSubstr(R"("incomplete_details":{"reason":"max_output_tokens"})"));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
}

TEST_F(ServerResponses, ConversationsOfAgentsAreTaken) {
  const HttpAnswer answer = server_->post("/v1/responses", R"j({"model":"m","input":[
    {"type":"message","id":"a","role":"developer","content":[{"type":"input_text","text":"D1"}]},
    {"type":"message","role":"developer","content":[{"type":"input_text","text":"D2"},{"type":"input_text","text":"D3"}]},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"U"}]},
    {"type":"reasoning","summary":[],"encrypted_content":"x"},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"A"}]},
    {"type":"function_call","call_id":"c1","name":"look","arguments":"{}"},
    {"type":"function_call","call_id":"c2","name":"look","arguments":"{}"},
    {"type":"function_call_output","call_id":"c1","output":"one"},
    {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"@say(ok)"}]}],
    "tool_choice":"auto","parallel_tool_calls":true,"reasoning":{"summary":"auto"},"store":false,
    "include":["reasoning.encrypted_content"],"prompt_cache_key":"k","client_metadata":{"a":"b"}})j");
  EXPECT_EQ(answer.status, 200) << answer.body;
  const size_t total = std::string(
                           "<system>\nD1\n\nD2D3\n<user>\nU\n<assistant>\nA<call>look {}</call><call>look "
                           "{}</call>\n<tool>\none\n<tool>\n@say(ok)\n<assistant>\n")
                           .size();
  EXPECT_THAT(answer.body,
              HasSubstr("\"usage\":{\"input_tokens\":" + std::to_string(total) +
                        ",\"input_tokens_details\":{\"cached_tokens\":" + std::to_string(total / 2) + "}"));
}

TEST_F(ServerResponses, WhatNeedsAStoreIsRefusedInWords) {
  for (const char* extra : {R"(,"previous_response_id":"resp_1")", R"(,"conversation":"c")",
                            R"(,"background":true)", R"(,"prompt":{"id":"p"})"}) {
    const HttpAnswer answer = ask("x", extra);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("answers are not stored"));
  }
  const HttpAnswer stored = server_->get("/v1/responses/resp_1");
  EXPECT_EQ(stored.status, 400);
  EXPECT_THAT(stored.body, HasSubstr("answers are not stored"));
}

TEST_F(ServerResponses, AnErrorInAStreamIsAFailedResponse) {
  const ServerProcess server({{"--chat", "1"}, {}, true});
  const HttpAnswer answer = server.post("/v1/responses", R"({"input":"@die_mid","stream":true})");
  EXPECT_THAT(answer.body, HasSubstr("event: response.failed\n"));
  EXPECT_THAT(answer.body,
              HasSubstr(R"("status":"failed","background":false,"error":{"code":"server_error")"));
  EXPECT_THAT(answer.body, Not(HasSubstr("response.completed")));
}

TEST_F(ServerResponses, AClientThatGoesAwayEndsItsRequest) {
  HttpClient client(server_->port());
  const std::string body = R"({"input":"@hold","stream":true})";
  client.send(
      "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_THAT(client.read_until("\"delta\":\"b\""), HasSubstr("response.created"));
  client.close();
  EXPECT_TRUE(server_->wait_for_journal("STOP "));
}

}  // namespace
}  // namespace strata::test
