// llama.cpp's /completion and /completions with a scripted engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServerNative : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new ServerProcess(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static ServerProcess* server_;
};
ServerProcess* ServerNative::server_ = nullptr;

TEST_F(ServerNative, BodiesAreTheGoldenOnes) {
  expect_golden("native_completion.json",
                server_->post("/completion", R"j({"prompt":"@say(abc)","n_predict":2,"n_probs":1})j").body);
  expect_golden("native_stream.txt",
                server_->post("/completions", R"j({"prompt":"@say(ab)","stream":true})j").body);
}

TEST_F(ServerNative, NothingToWriteOnlyFillsTheCache) {
  const HttpAnswer answer = server_->post("/completion", R"j({"prompt":"@say(abc)","n_predict":0})j");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"({"index":0,"content":"","tokens":[])"));
  EXPECT_THAT(answer.body, HasSubstr(R"("tokens_predicted":0,"tokens_evaluated":9,"tokens_cached":4)"));
  EXPECT_THAT(server_->journal(), ::testing::ContainsRegex("GEN [0-9]+ max=0 "));
}

TEST_F(ServerNative, WhyItStoppedIsSaid) {
  EXPECT_THAT(server_->post("/completion", R"j({"prompt":"@say(one two)","stop":["tw"]})j").body,
              HasSubstr(R"("stop_type":"word","stopping_word":"tw")"));
  EXPECT_THAT(server_->post("/completion", R"j({"prompt":"@say(one)"})j").body,
              HasSubstr(R"("stop_type":"eos","stopping_word":"")"));
}

TEST_F(ServerNative, OptionsAreHonoured) {
  const HttpAnswer answer = server_->post(
      "/completion",
      R"j({"prompt":"@say(x)","stream":true,"return_progress":true,"timings_per_token":true,"id_slot":1,"cache_prompt":false})j");
  const auto events = events_of(answer.body);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_THAT(events[0], HasSubstr(R"("prompt_progress":{"total":7)"));
  EXPECT_THAT(events[2], HasSubstr(R"("timings":{"cache_n":0)"));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(server_->journal(), HasSubstr(" slot=1 cache=0 "));
  EXPECT_THAT(server_->post("/completion", R"j({"prompt":"@say(x)","return_tokens":true})j").body,
              HasSubstr(R"("tokens":[120])"));
}

TEST_F(ServerNative, TheOtherFormKeepsItsPath) {
  EXPECT_THAT(server_->post("/v1/completions", R"j({"prompt":"@say(x)"})j").body,
              HasSubstr(R"("object":"text_completion")"));
}

}  // namespace
}  // namespace strata::test
