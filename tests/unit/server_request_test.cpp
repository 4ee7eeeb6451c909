// Request bodies: what is taken, what is refused and how; prompts and their borders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/server/api_request.hpp"
#include "engine/server/engine_status.hpp"
#include "engine/server/prompt_builder.hpp"
#include "tests/support/byte_vocabulary.hpp"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string chat(const std::string& extra) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + extra + "}";
}

CompletionRequest parsed(const std::string& extra) {
  const auto request = parse_chat_completion(chat(extra));
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request.value_or(CompletionRequest());
}

TEST(ServerRequest, DefaultsAreGreedyCachedAndUnlimited) {
  const CompletionRequest request = parsed("");
  EXPECT_EQ(request.sampling, lines::SamplingParams());
  EXPECT_TRUE(request.cache_prompt);
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.max_tokens, std::nullopt);
  EXPECT_EQ(request.slot, kNoSlot);
}

TEST(ServerRequest, KeysAreRead) {
  const CompletionRequest request = parsed(
      R"(,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"presence_penalty":-1.5,)"
      R"("frequency_penalty":1,"repeat_penalty":1.1,"repeat_last_n":64,"stop":["a","b"],"stream":true,)"
      R"("stream_options":{"include_usage":true},"max_tokens":10,"id_slot":1,"cache_prompt":false,)"
      R"("ignore_eos":true,"return_progress":true,"timings_per_token":true,"logprobs":true,"top_logprobs":3,)"
      R"("n":1,"unknown_key":[1])");
  lines::SamplingParams sampling;
  sampling.temperature = 0.5;
  sampling.top_p = 0.9;
  sampling.top_k = 40;
  sampling.min_p = 0.1;
  sampling.seed = 7;
  sampling.presence_penalty = -1.5;
  sampling.frequency_penalty = 1;
  sampling.repeat_penalty = 1.1;
  sampling.repeat_last_n = 64;
  sampling.logprobs = 3;
  EXPECT_EQ(request.sampling, sampling);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_EQ(request.max_tokens, 10u);
  EXPECT_EQ(request.slot, 1);
  EXPECT_TRUE(request.stream && request.include_usage && request.return_progress &&
              request.timings_per_token);
  EXPECT_TRUE(request.ignore_eos && !request.cache_prompt);
}

TEST(ServerRequest, NullsAndMinusOneMeanAbsent) {
  const CompletionRequest request = parsed(
      R"(,"temperature":null,"max_tokens":null,"stop":null,"stream":null,"seed":-1,"top_k":-1,"max_completion_tokens":-1,"tools":null)");
  EXPECT_EQ(request.sampling, lines::SamplingParams());
  EXPECT_EQ(request.max_tokens, std::nullopt);
}

struct Refusal {
  const char* extra;
  int status;
  const char* named;
};
class ServerRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(ServerRefusals, NameTheKey) {
  const auto request = parse_chat_completion(chat(GetParam().extra));
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().status, GetParam().status) << request.error().message;
  EXPECT_THAT(request.error().message, HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, ServerRefusals,
    testing::Values(
        Refusal{R"(,"temperature":"hot")", 400, "\"temperature\" must be a number"},
        Refusal{R"(,"temperature":true)", 400, "temperature"},
        Refusal{R"(,"temperature":-1)", 400, "temperature"},
        Refusal{R"(,"temperature":1e400)", 400, "temperature"}, Refusal{R"(,"top_p":2)", 400, "top_p"},
        Refusal{R"(,"max_tokens":"5")", 400, "\"max_tokens\" must be an integer"},
        Refusal{R"(,"max_tokens":1.5)", 400, "max_tokens"}, Refusal{R"(,"max_tokens":-2)", 400, "max_tokens"},
        Refusal{R"(,"max_tokens":99999999999999999999)", 400, "max_tokens"},
        Refusal{R"(,"stream":1)", 400, "stream"}, Refusal{R"(,"stream":"yes")", 400, "stream"},
        Refusal{R"(,"stream_options":true)", 400, "stream_options"},
        Refusal{R"(,"stream_options":{"include_usage":1})", 400, "stream_options.include_usage"},
        Refusal{R"(,"stop":5)", 400, "stop"}, Refusal{R"(,"stop":[""])", 400, "stop"},
        Refusal{R"(,"stop":[1])", 400, "stop"}, Refusal{R"(,"seed":1.5)", 400, "seed"},
        Refusal{R"(,"n":2)", 400, "\"n\" must be 1"}, Refusal{R"(,"n":"1")", 400, "\"n\""},
        Refusal{R"(,"id_slot":-2)", 400, "id_slot"}, Refusal{R"(,"id_slot":"0")", 400, "id_slot"},
        Refusal{R"(,"model":5)", 400, "model"}, Refusal{R"(,"cache_prompt":0)", 400, "cache_prompt"},
        Refusal{R"(,"logprobs":3)", 400, "logprobs"}, Refusal{R"(,"top_logprobs":3)", 400, "top_logprobs"},
        Refusal{R"(,"logprobs":true,"top_logprobs":21)", 400, "top_logprobs"},
        Refusal{R"(,"echo":true)", 400, "echo"}, Refusal{R"(,"tools":{})", 400, "tools"},
        Refusal{R"(,"tool_choice":5)", 400, "tool_choice"},
        Refusal{R"(,"tools":[{"type":"function"}])", 501, "tools"},
        Refusal{R"(,"tools":[{"type":"function"}],"tool_choice":"auto")", 501, "tools"},
        Refusal{R"(,"functions":[{}])", 501, "functions"},
        Refusal{R"(,"response_format":{"type":"json_object"})", 501, "response_format"},
        Refusal{R"(,"response_format":{})", 400, "response_format.type"},
        Refusal{R"(,"response_format":"json")", 400, "response_format"},
        Refusal{R"(,"logit_bias":{"1":2})", 501, "logit_bias"},
        Refusal{R"(,"grammar":"root")", 501, "grammar"}));

TEST(ServerRequest, ToolsThatAreNotWantedAreNoObstacle) {
  EXPECT_TRUE(parse_chat_completion(chat(R"(,"tools":[],"tool_choice":"auto")")));
  EXPECT_TRUE(parse_chat_completion(chat(R"(,"tools":[{"type":"function"}],"tool_choice":"none")")));
  EXPECT_TRUE(parse_chat_completion(chat(R"(,"response_format":{"type":"text"})")));
}

TEST(ServerRequest, MalformedBodiesAre400) {
  std::string deep = R"({"messages":[{"role":"user","content":"x"}],"x":)";
  for (int i = 0; i < 100; ++i) deep += '[';
  for (int i = 0; i < 100; ++i) deep += ']';
  deep += '}';
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("5"), std::string("{\"a\":1}}"),
        std::string("{'a':1}"), std::string("{\"messages\":\"\xFF\"}"), deep}) {
    const auto request = parse_chat_completion(body);
    ASSERT_FALSE(request) << body;
    EXPECT_EQ(request.error().status, 400) << body;
  }
}

TEST(ServerRequest, BadMessagesAre400AndNamed) {
  const std::pair<const char*, const char*> table[] = {
      {R"({})", "\"messages\" is missing"},
      {R"({"messages":[]})", "\"messages\" is empty"},
      {R"({"messages":"hi"})", "\"messages\" must be an array"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[{"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "\"messages[0].content\" is missing"},
      {R"({"messages":[{"role":"king","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[5]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
       "reads text only"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"id":"a"}]}]})",
       "messages[0].tool_calls[0].function"},
      {R"({"messages":[{"role":"assistant","tool_calls":5}]})", "messages[0].tool_calls"},
  };
  for (const auto& [body, named] : table) {
    const auto request = parse_chat_completion(body);
    ASSERT_FALSE(request) << body;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_THAT(request.error().message, HasSubstr(named)) << body;
  }
}

TEST(ServerRequest, TextPrompts) {
  EXPECT_EQ(parse_text_completion(R"({"prompt":"a"})")->prompt, "a");
  EXPECT_EQ(parse_text_completion(R"({"prompt":["a"]})")->prompt, "a");
  EXPECT_THAT(*parse_text_completion(R"({"prompt":[1,2]})")->prompt_tokens, ElementsAre(1, 2));
  for (const char* body :
       {R"({})", R"({"prompt":5})", R"({"prompt":[]})", R"({"prompt":["a","b"]})", R"({"prompt":[1,"a"]})",
        R"({"prompt":[-1]})", R"({"prompt":[1.5]})", R"({"prompt":[99999999999]})", R"({"prompt":[[1]]})"})
    EXPECT_FALSE(parse_text_completion(body)) << body;
}

// ---- prompts

TEST(ServerPrompt, BordersLieBeforeUserMessagesAndAtTheEnds) {
  test::ByteVocabulary model;
  CompletionRequest request;
  request.chat = true;
  request.messages = {{"system", "S"}, {"user", "A"}, {"assistant", "B"}, {"user", "C"}};
  const auto prompt = build_prompt(model, request);
  ASSERT_TRUE(prompt);
  const std::string system = "<system>\nS\n";
  const std::string first = system + "<user>\nA\n<assistant>\nB\n";
  const std::string all = first + "<user>\nC\n";
  EXPECT_THAT(prompt->borders, ElementsAre(system.size(), first.size(), all.size()));
  EXPECT_EQ(prompt->tokens.size(), (all + "<assistant>\n").size());
}

TEST(ServerPrompt, LongConversationsKeepTheFirstAndTheLastBorders) {
  test::ByteVocabulary model;
  CompletionRequest request;
  request.chat = true;
  request.messages = {{"system", "S"}};
  for (int i = 0; i < 200; ++i) {
    request.messages.push_back({"user", "u"});
    request.messages.push_back({"assistant", "a"});
  }
  const auto prompt = build_prompt(model, request);
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->borders.size(), kMaxBorders);
  EXPECT_EQ(prompt->borders.front(), std::string("<system>\nS\n").size());
  EXPECT_EQ(prompt->borders.back(), prompt->tokens.size() - std::string("<assistant>\n").size());
}

// A tokenizer that joins across the border: the tokens of the piece are not those of the whole.
class JoiningVocabulary final : public Model {
 public:
  const ModelInfo& info() const override { return inner_.info(); }
  Result<std::vector<IdentityField>> identity_fields() override { return inner_.identity_fields(); }
  Result<std::vector<ModelFile>> files() override { return inner_.files(); }
  Result<std::vector<Token>> tokenize(std::string_view text, bool, bool) override {
    std::vector<Token> tokens;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool pair = text.substr(i, 2) == "\n<";
      tokens.push_back(pair ? 200 : static_cast<unsigned char>(text[i]));
      i += pair ? 1 : 0;
    }
    return tokens;
  }
  Result<std::string> detokenize(std::span<const Token> tokens) override { return inner_.detokenize(tokens); }
  bool is_end_of_generation(Token token) const override { return inner_.is_end_of_generation(token); }
  std::string chat_template() const override { return inner_.chat_template(); }
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages, bool prompt) override {
    return inner_.apply_chat_template(messages, prompt);
  }
  Status decode(std::span<const BatchItem> b, std::vector<std::span<const float>>& l) override {
    return inner_.decode(b, l);
  }
  uint32_t length(SlotId s) const override { return inner_.length(s); }
  Status truncate(SlotId s, uint32_t t) override { return inner_.truncate(s, t); }
  Status clear(SlotId s) override { return inner_.clear(s); }
  uint64_t block_bytes(StageId s, uint32_t c) const override { return inner_.block_bytes(s, c); }
  Status export_block(SlotId s, StageId t, uint32_t f, uint32_t c, std::span<std::byte> to,
                      DeviceStream d) override {
    return inner_.export_block(s, t, f, c, to, d);
  }
  Result<uint64_t> export_checkpoint(SlotId s, StageId t, std::span<std::byte> to, DeviceStream d) override {
    return inner_.export_checkpoint(s, t, to, d);
  }
  Result<ImportId> import_begin(SlotId s, std::span<const Token> t) override {
    return inner_.import_begin(s, t);
  }
  Status import_block(ImportId i, StageId s, uint32_t f, uint32_t c, std::span<const std::byte> b,
                      DeviceStream d) override {
    return inner_.import_block(i, s, f, c, b, d);
  }
  Status import_checkpoint(ImportId i, StageId s, uint32_t p, std::span<const std::byte> b,
                           DeviceStream d) override {
    return inner_.import_checkpoint(i, s, p, b, d);
  }
  Status import_commit(ImportId i) override { return inner_.import_commit(i); }
  void import_abort(ImportId i) override { inner_.import_abort(i); }

 private:
  test::ByteVocabulary inner_;
};

// Whoever rewrites the user's message still shares the tokens before (RAM-6).
TEST(ServerPrompt, BordersThatATokenStraddlesMoveBeforeIt) {
  JoiningVocabulary model;
  CompletionRequest request;
  request.chat = true;
  request.messages = {{"system", "S"}, {"user", "A"}, {"assistant", "B"}, {"user", "C"}};
  const auto prompt = build_prompt(model, request);
  ASSERT_TRUE(prompt);
  const size_t system = std::string("<system>\nS").size();
  const size_t user = std::string("\n<user>\nA").size() - 1;  // "\n<" is one token
  const size_t assistant = std::string("\n<assistant>\nB").size() - 1;
  EXPECT_THAT(prompt->borders, ElementsAre(system, system + user + assistant, system + 2 * user + assistant));
  request.messages.back() = {"user", "another"};
  const auto rewritten = build_prompt(model, request);
  ASSERT_TRUE(rewritten);
  EXPECT_TRUE(std::equal(prompt->tokens.begin(), prompt->tokens.begin() + prompt->borders[1],
                         rewritten->tokens.begin()));
}

TEST(ServerPrompt, EmptyAndForeignTokensAreRefused) {
  test::ByteVocabulary model;
  CompletionRequest request;
  EXPECT_EQ(build_prompt(model, request).error().status, 400);
  request.prompt_tokens = std::vector<Token>{1, 257};
  EXPECT_EQ(build_prompt(model, request).error().status, 400);
}

// ---- the engine's status

TEST(ServerEngineStatus, IsTakenApart) {
  const auto status = parse_engine_status(
      R"({"slots":[{"id":1,"n_ctx":64,"is_processing":true,"conversation":"ab","tokens":5,"id_task":7,"n_prompt_tokens":9}],)"
      R"("tiers":{"ram":{"bytes":1}},"metrics":"x 1\n"})");
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(status->slots.size(), 1u);
  EXPECT_EQ(status->slots[0].task, 7u);
  EXPECT_EQ(status->slots[0].prompt_tokens, 9u);
  EXPECT_EQ(status->tiers, R"({"ram":{"bytes":1}})");
  EXPECT_EQ(status->metrics, "x 1\n");
  for (const char* bad :
       {"", "[]", R"({"slots":5})", R"({"slots":[5]})", R"({"slots":[{"id":"x"}]})", R"({"metrics":5})"})
    EXPECT_FALSE(parse_engine_status(bad).ok()) << bad;
}

}  // namespace
}  // namespace strata
