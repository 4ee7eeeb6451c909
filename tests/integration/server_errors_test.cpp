// The error table of docs/http-api.md row by row, limits, hosts, keys, origins and the status routes
// (SRV-2, SRV-3), against a running server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class ServerErrors : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new ServerProcess(
        {{"--max-body-mib", "1", "--header-timeout-ms", "300", "--body-timeout-ms", "300"}, {}, true});
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static HttpAnswer raw(const std::string& bytes) {
    HttpClient client(server_->port());
    client.send(bytes);
    return client.read_answer();
  }
  static void expect_error(const HttpAnswer& answer, int status, const std::string& type) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.body, StartsWith("{\"error\":{\"code\":" + std::to_string(status) + ","));
    EXPECT_THAT(answer.body, HasSubstr("\"type\":\"" + type + "\""));
  }
  static ServerProcess* server_;
};
ServerProcess* ServerErrors::server_ = nullptr;

TEST_F(ServerErrors, MalformedJsonAndWrongTypesAre400) {
  for (const char* body : {"", "{", "[]", "\"x\"", R"({"messages":5})",
                           R"({"messages":[{"role":"user","content":"x"}],"stream":"yes"})"})
    expect_error(server_->post("/v1/chat/completions", body), 400, "invalid_request_error");
  expect_error(server_->chat("x", R"(,"id_slot":2)"), 400, "invalid_request_error");
}

TEST_F(ServerErrors, ToolsWithoutAToolFormatAre501) {
  expect_error(server_->chat("x", R"(,"tools":[{"type":"function","function":{"name":"f"}}])"), 501,
               "not_supported_error");
}

TEST_F(ServerErrors, PromptBeyondTheContextIsRefusedWithoutTheEngine) {
  const HttpAnswer answer = server_->chat("too-long " + std::string(5000, 'x'));
  expect_error(answer, 400, "exceed_context_size_error");
  EXPECT_THAT(answer.body, HasSubstr(R"("n_ctx":4096)"));
  EXPECT_THAT(answer.body, HasSubstr(R"("n_prompt_tokens":50)"));
  EXPECT_EQ(server_->post("/v1/completions", "{\"prompt\":\"" + std::string(4096, 'y') + "\"}").status, 400);
  EXPECT_EQ(server_->post("/v1/completions", "{\"prompt\":\"" + std::string(4095, 'y') + "\"}").status, 200);
  EXPECT_THAT(server_->journal(), HasSubstr(" max=1 ")) << "cut to what the context leaves";
}

TEST_F(ServerErrors, UnknownPathIs404AndWrongMethod405) {
  expect_error(server_->get("/nothing"), 404, "not_found_error");
  expect_error(server_->get("/slots/0/1"), 404, "not_found_error");
  const HttpAnswer answer = server_->get("/v1/chat/completions");
  expect_error(answer, 405, "invalid_request_error");
  EXPECT_EQ(answer.headers.at("allow"), "POST, OPTIONS");
  expect_error(server_->post("/health", "{}"), 405, "invalid_request_error");
}

TEST_F(ServerErrors, BodyThatIsNotJsonIs415) {
  const std::string body = chat_body("x");
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data"})
    expect_error(server_->post("/v1/chat/completions", body, std::string("Content-Type: ") + type + "\r\n"),
                 415, "invalid_request_error");
  for (const char* type :
       {"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"})
    EXPECT_EQ(
        server_->post("/v1/chat/completions", body, std::string("Content-Type: ") + type + "\r\n").status,
        200);
}

TEST_F(ServerErrors, BodyOverTheLimitIs413) {
  const std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  expect_error(raw(head + "Content-Length: 1048577\r\n\r\n{"), 413, "invalid_request_error");
  std::string chunked = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 17; ++i) chunked += "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  expect_error(raw(chunked + "0\r\n\r\n"), 413, "invalid_request_error");
}

TEST_F(ServerErrors, ChunkedBodiesAreRead) {
  const std::string body = chat_body("@say(ok)");
  char size[16];
  std::snprintf(size, sizeof(size), "%zx", body.size() - 10);
  const HttpAnswer answer =
      raw("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Transfer-Encoding: chunked\r\n\r\na\r\n" +
          body.substr(0, 10) + "\r\n" + size + "\r\n" + body.substr(10) + "\r\n0\r\n\r\n");
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(ServerErrors, HeaderOverTheLimitIs431) {
  expect_error(
      raw("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + std::string(40'000, 'x') + "\r\n\r\n"), 431,
      "invalid_request_error");
  std::string many = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  for (int i = 0; i < 5000; ++i) many += "X-" + std::to_string(i) + ": y\r\n";
  expect_error(raw(many + "\r\n"), 431, "invalid_request_error");
}

TEST_F(ServerErrors, WhatIsNotHttpIs400) {
  for (const char* bytes :
       {"HELLO\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n", "GET /health HTTP/1.1\r\nHost localhost\r\n\r\n",
        "GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"})
    expect_error(raw(bytes), 400, "invalid_request_error");
}

TEST_F(ServerErrors, SlowHeadersAndBodiesAre408) {
  expect_error(raw("GET /health HTTP/1.1\r\nHost:"), 408, "invalid_request_error");
  expect_error(raw("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                   "Content-Length: 100\r\n\r\n{"),
               408, "invalid_request_error");
}

TEST_F(ServerErrors, ExpectationIsAnsweredBeforeTheBody) {
  HttpClient client(server_->port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 100 Continue"));
  client.send(R"({"content":"x"})");
  EXPECT_EQ(client.read_answer().body, R"({"tokens":[120]})");
}

TEST_F(ServerErrors, ConnectionsAreKept) {
  HttpClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.get("/health").status, 200);
    EXPECT_EQ(client.post("/v1/chat/completions", chat_body("@say(x)", R"(,"stream":true)")).status, 200);
    EXPECT_EQ(client.get("/nothing").status, 404) << "a refusal without a body keeps it too";
  }
  client.send(
      "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /props HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.read_answer().body, HasSubstr("ok"));
  EXPECT_THAT(client.read_answer().body, HasSubstr("total_slots")) << "pipelined";
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_answer().headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(ServerErrors, OldClientsGetAnUnchunkedStream) {
  HttpClient client(server_->port());
  const std::string body = chat_body("@say(x)", R"(,"stream":true)");
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string answer = client.read_until("data: [DONE]\n\n");
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(client.closed_by_server());
}

TEST_F(ServerErrors, HeadHasNoBody) {
  HttpClient client(server_->port());
  client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpAnswer answer = client.read_answer(true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-length"), "15");
  EXPECT_EQ(client.get("/health").body, R"({"status":"ok"})");
}

TEST_F(ServerErrors, ForeignHostsAndPagesAreRefused) {
  expect_error(raw("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403, "permission_error");
  EXPECT_EQ(raw("GET /health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n").status, 200);
  const std::string options = "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n";
  expect_error(raw(options + "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n"),
               403, "permission_error");
  const HttpAnswer own = raw(options + "Origin: http://localhost\r\n\r\n");
  EXPECT_EQ(own.status, 204);
  EXPECT_EQ(own.headers.at("allow"), "POST, OPTIONS");
}

TEST_F(ServerErrors, EngineRefusalIsAnErrorAndGoesOn) {
  const HttpAnswer answer = server_->chat("@refuse(no slot left)", R"(,"stream":true)");
  expect_error(answer, 500, "server_error");
  EXPECT_THAT(answer.body, HasSubstr("no slot left"));
  EXPECT_EQ(server_->chat("@say(x)").status, 200);
}

TEST_F(ServerErrors, StatusRoutes) {
  expect_golden("models.json", normalized(server_->get("/v1/models").body));
  EXPECT_THAT(server_->get("/v1/models/bytes").body, HasSubstr(R"({"id":"bytes","object":"model")"));
  expect_error(server_->get("/v1/models/gpt-x"), 404, "not_found_error");
  EXPECT_EQ(server_->chat("@say(x)", R"(,"model":"gpt-x")").status, 200) << "nobody named this one";
  expect_golden("props.json", server_->get("/props").body);
  expect_golden("slots.json", server_->get("/slots").body);
  EXPECT_THAT(server_->get("/status").body, HasSubstr(R"("tiers":{"ram":{"on":true,"bytes":1}})"));
  const HttpAnswer metrics = server_->get("/metrics");
  EXPECT_THAT(metrics.headers.at("content-type"), StartsWith("text/plain; version=0.0.4"));
  for (const char* line : {"strata_x 1\n", "llamacpp:requests_processing 0\n",
                           "llamacpp:requests_deferred 0\n", "strata_engine_up 1\n"})
    EXPECT_THAT(metrics.body, HasSubstr(line));
  EXPECT_THAT(server_->get("/").body, HasSubstr("/metrics"));
  EXPECT_EQ(server_->get("/v1/health").body, R"({"status":"ok"})");
}

TEST_F(ServerErrors, BusySlotsAreShown) {
  HttpClient first(server_->port());
  HttpClient second(server_->port());
  const std::string body = chat_body("@hold", R"(,"stream":true,"max_tokens":9)");
  for (HttpClient* client : {&first, &second}) {
    client->send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_THAT(client->read_until("\"b\""), HasSubstr("200 OK"));
  }
  EXPECT_THAT(server_->get("/slots").body,
              HasSubstr(R"("next_token":[{"has_next_token":true,"n_remain":7,"n_decoded":2}])"));
  expect_error(server_->get("/slots?fail_on_no_slot=1"), 503, "unavailable_error");
  EXPECT_THAT(server_->get("/metrics").body, HasSubstr("llamacpp:requests_processing 2\n"));
  first.close();
  second.close();
  EXPECT_TRUE(eventually([] { return server_->get("/slots?fail_on_no_slot=1").status == 200; }));
}

TEST(ServerWithKeys, PublicRoutesOnlyWithoutOne) {
  const ServerProcess server({{"--api-key", "one", "--api-key", "two"}, {}, true});
  for (const char* path : {"/health", "/v1/health", "/v1/models", "/models", "/"})
    EXPECT_EQ(server.get(path).status, 200) << path;
  for (const char* path : {"/props", "/slots", "/metrics", "/status", "/nothing"}) {
    const HttpAnswer answer = server.get(path);
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_THAT(answer.body, HasSubstr("authentication_error"));
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
  }
  EXPECT_EQ(server.get("/props", "Authorization: Bearer one\r\n").status, 200);
  EXPECT_EQ(server.get("/props", "X-Api-Key: two\r\n").status, 200);
  EXPECT_EQ(server.get("/props", "X-Api-Key: three\r\n").status, 401);
  EXPECT_EQ(server.post("/v1/chat/completions", chat_body("x")).status, 401);
}

// One model answers to every name, unless it was given one.
TEST(ServerWithAnAlias, OtherNamesAre404) {
  const ServerProcess server({{"--alias", "mine"}, {}, true});
  for (const char* name : {"mine", "bytes", ""})
    EXPECT_EQ(server.chat("@say(x)", std::string(R"(,"model":")") + name + "\"").status, 200) << name;
  const HttpAnswer answer = server.chat("@say(x)", R"(,"model":"gpt-x")");
  EXPECT_EQ(answer.status, 404);
  EXPECT_THAT(answer.body, HasSubstr(R"(the model \"gpt-x\" does not exist; this server has \"mine\")"));
  EXPECT_THAT(answer.body, HasSubstr("not_found_error"));
  EXPECT_THAT(
      server
          .post("/v1/messages", R"({"model":"x","max_tokens":1,"messages":[{"role":"user","content":"y"}]})")
          .body,
      HasSubstr(R"("type":"not_found_error")"));
  EXPECT_THAT(server.get("/v1/models/mine").body, HasSubstr(R"({"id":"mine","object":"model")"));
}

TEST(ServerWithFewConnections, MoreOfThemAreTurnedAway) {
  const ServerProcess server({{"--max-connections", "2"}, {}, true});
  HttpClient one(server.port());
  HttpClient two(server.port());
  EXPECT_EQ(one.get("/health").status, 200);
  EXPECT_EQ(two.get("/health").status, 200);
  HttpClient three(server.port());
  EXPECT_EQ(three.read_answer().status, 503);
  one.close();
  EXPECT_TRUE(eventually([&] { return server.get("/health").status == 200; }));
}

}  // namespace
}  // namespace strata::test
