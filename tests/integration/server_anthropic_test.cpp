// Anthropic's messages with a scripted engine: bodies, event order, errors (SRV-2).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kTools = R"(,"tools":[{"name":"look","input_schema":{"type":"object"}}])";

std::string message(const std::string& text, const std::string& extra = "") {
  return R"({"model":"m","max_tokens":100,"system":"Be brief.","messages":[{"role":"user","content":")" +
         text + "\"}]" + extra + "}";
}

class ServerAnthropic : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new ServerProcess({{"--chat", "1", "--ping-ms", "60", "--max-body-mib", "1"}, {}, true});
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static HttpAnswer ask(const std::string& text, const std::string& extra = "") {
    return server_->post("/v1/messages", message(text, extra), "anthropic-version: 2023-06-01\r\n");
  }
  static ServerProcess* server_;
};
ServerProcess* ServerAnthropic::server_ = nullptr;

TEST_F(ServerAnthropic, BodiesAreTheGoldenOnes) {
  expect_golden("anthropic_message.json", normalized(ask("@say(Hi)").body));
  expect_golden("anthropic_stream.txt", normalized(ask("@say(Hi)", R"(,"stream":true)").body));
}

TEST_F(ServerAnthropic, ToolCallsAreTheGoldenOnes) {
  const std::string say = R"(@say(<think>Hm</think>Ok<call>look {\"a\":1}</call>))";
  expect_golden("anthropic_tools.json", normalized(ask(say, kTools).body));
  expect_golden("anthropic_tools_stream.txt",
                normalized(ask(say, std::string(kTools) + R"(,"stream":true)").body));
}

TEST_F(ServerAnthropic, WhyItStoppedIsSaid) {
  EXPECT_THAT(ask("@say(one two)", R"(,"stop_sequences":["tw"])").body,
              HasSubstr(R"("stop_reason":"stop_sequence","stop_sequence":"tw")"));
  EXPECT_THAT(ask("@say(one<end>two)").body, HasSubstr(R"("stop_reason":"end_turn","stop_sequence":null)"));
  const HttpAnswer cut = server_->post(
      "/v1/messages", R"j({"max_tokens":2,"messages":[{"role":"user","content":"@say(abc)"}]})j");
  EXPECT_THAT(cut.body, HasSubstr(R"("stop_reason":"max_tokens")"));
}

TEST_F(ServerAnthropic, UsageCountsTheUncachedPart) {
  const HttpAnswer answer = ask("@say(Hi)");  // the engine says that half of it was there
  const size_t total = std::string("<system>\nBe brief.\n<user>\n@say(Hi)\n<assistant>\n").size();
  EXPECT_THAT(answer.body, HasSubstr("\"usage\":{\"input_tokens\":" + std::to_string(total - total / 2) +
                                     ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" +
                                     std::to_string(total / 2) + ",\"output_tokens\":2}"));
}

TEST_F(ServerAnthropic, TokensAreCountedWithoutTheEngine) {
  const HttpAnswer answer = server_->post("/v1/messages/count_tokens", message("abc"));
  const size_t total = std::string("<system>\nBe brief.\n<user>\nabc\n<assistant>\n").size();
  EXPECT_EQ(answer.body, "{\"input_tokens\":" + std::to_string(total) + "}");
}

// Lesson 20: clients time out during long reads.
TEST_F(ServerAnthropic, SilentStreamIsKeptAliveByPings) {
  HttpClient client(server_->port());
  const std::string body = message("@hold", R"(,"stream":true)");
  client.send(
      "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_THAT(client.read_until("\"text\":\"b\""), HasSubstr("message_start"));
  EXPECT_THAT(client.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n"), HasSubstr("event: ping"));
}

TEST_F(ServerAnthropic, ErrorsHaveItsShape) {
  const auto expect_error = [](const HttpAnswer& answer, int status, const std::string& type) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.body, StartsWith(R"({"type":"error","error":{"type":")" + type + "\""));
  };
  expect_error(server_->post("/v1/messages", "{"), 400, "invalid_request_error");
  expect_error(server_->post("/v1/messages", R"({"messages":[{"role":"king","content":"x"}]})"), 400,
               "invalid_request_error");
  expect_error(server_->post("/v1/messages", "{}", "Content-Type: text/plain\r\n"), 415,
               "invalid_request_error");
  expect_error(server_->post("/v1/messages", std::string(2u << 20, ' ')), 413, "request_too_large");
  expect_error(server_->get("/v1/messages"), 405, "invalid_request_error");
  expect_error(ask("@refuse(no)"), 500, "api_error");
  const HttpAnswer too_long = ask(std::string(5000, 'x'));
  expect_error(too_long, 400, "invalid_request_error");
  EXPECT_THAT(too_long.body, HasSubstr("prompt is too long: 50"));
}

TEST_F(ServerAnthropic, KeysAreTakenFromItsHeader) {
  const ServerProcess server({{"--api-key", "secret"}, {}, true});
  const HttpAnswer refused = server.post("/v1/messages", message("@say(x)"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.body, HasSubstr(R"("type":"authentication_error")"));
  EXPECT_EQ(server.post("/v1/messages", message("@say(x)"), "x-api-key: secret\r\n").status, 200);
}

TEST_F(ServerAnthropic, AnErrorInAStreamIsAnEvent) {
  const ServerProcess server({{"--chat", "1"}, {}, true});
  const HttpAnswer answer = server.post("/v1/messages", message("@die_mid", R"(,"stream":true)"));
  EXPECT_THAT(answer.body,
              HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""));
}

TEST_F(ServerAnthropic, PlainModelsServeTextAndRefuseTools) {
  const ServerProcess server;
  EXPECT_THAT(server.post("/v1/messages", message("@say(Hi)")).body,
              HasSubstr(R"("content":[{"type":"text","text":"Hi"}])"));
  EXPECT_EQ(server.post("/v1/messages", message("x", kTools)).status, 501);
  EXPECT_EQ(server
                .post("/v1/messages",
                      message("@say(Hi)", std::string(kTools) + R"(,"tool_choice":{"type":"none"})"))
                .status,
            200);
}

}  // namespace
}  // namespace strata::test
