// What llama.cpp's models do beside the suite that every model passes: the traps of their state, files that
// are no models, chat formats and grammars (design of the plugin: docs/model-llama.md). Skipped with the
// reason where the plugin or the tiny models are not there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/model_world.hpp"
#include "tests/support/temporary_folder.hpp"

namespace strata::testing {
namespace {

std::string tiny(const std::string& name) {
  for (const std::string& file : llama_models().files)
    if (file.ends_with("/tiny-" + name + ".gguf")) return file;
  return {};
}

class ModelLlama : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!llama_models().why_not.empty()) GTEST_SKIP() << llama_models().why_not;
    loaded_ = plugins_.registry.load(installed_plugin(llama_models().plugin_file)).ok();
    ASSERT_TRUE(loaded_);
    device_ = std::move(*plugins_.registry.make_device("host", {}));
  }
  Result<std::unique_ptr<Model>> make(const std::string& file, PluginOptions more = {}) {
    PluginOptions options = tiny_llama(file, "auto").model;
    for (auto& [key, value] : more) options[key] = value;
    return plugins_.registry.make_model("llama", options, *device_);
  }
  Result<std::unique_ptr<Model>> vocabulary(const std::string& file) {
    return plugins_.registry.make_vocabulary("llama", {{"path", file}});
  }
  // One line that names the file or option, and no model.
  void expect_refused(const Result<std::unique_ptr<Model>>& model, const std::string& names) {
    ASSERT_FALSE(model.ok()) << names;
    EXPECT_NE(model.error().message.find(names), std::string::npos) << model.error().message;
    EXPECT_EQ(model.error().message.find('\n'), std::string::npos) << model.error().message;
  }

  PluginWorld plugins_;
  std::unique_ptr<Device> device_;
  bool loaded_ = false;
};

TEST_F(ModelLlama, AFileThatIsNoModelIsOneClearError) {
  const TemporaryFolder folder;
  const std::string text = folder.path() + "/text.gguf";
  std::ofstream(text) << "no model at all";
  expect_refused(make(text), "text.gguf: not a GGUF file");
  expect_refused(vocabulary(text), "text.gguf: not a GGUF file");
  expect_refused(make(folder.path() + "/missing.gguf"), "missing.gguf: No such file");
  expect_refused(make(""), "option path");
}

TEST_F(ModelLlama, ACutFileIsOneClearErrorWhereverItWasCut) {
  const TemporaryFolder folder;
  const std::string whole = tiny("llama");
  const auto size = std::filesystem::file_size(whole);
  for (const uintmax_t kept : {uintmax_t{4}, uintmax_t{100}, size / 100, size / 2, size - 64}) {
    const std::string cut = folder.path() + "/cut.gguf";
    std::filesystem::copy_file(whole, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::permissions(cut, std::filesystem::perms::owner_all);
    std::filesystem::resize_file(cut, kept);
    expect_refused(make(cut), "cut.gguf");
  }
}

TEST_F(ModelLlama, WrongOptionsAreNamed) {
  const std::string file = tiny("llama");
  expect_refused(make(file, {{"cache_type_k", "q9"}}), "option cache_type_k: \"q9\" is none of");
  expect_refused(make(file, {{"state_granularity", "half"}}), "option state_granularity");
  expect_refused(make(file, {{"flash_attn", "maybe"}}), "option flash_attn");
  expect_refused(make(file, {{"threads", "many"}}), "option threads");
  expect_refused(make(file, {{"flash_attn", "off"}, {"cache_type_v", "q8_0"}}), "option cache_type_v");
  expect_refused(make(file, {{"lora", tiny("qwen3")}}), "adapter ");
  expect_refused(make(file, {{"context", "16000000"}}), "see --context");
}

// Trap 2: beyond what was trained the library would end the process.
TEST_F(ModelLlama, LearnedPositionsCapTheContext) {
  const auto model = make(tiny("gpt2"), {{"context", "1024"}});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->info().context_tokens, 256U);
  const std::vector<Token> tokens = some_tokens(1, 257);
  std::vector<std::span<const float>> logits;
  const BatchItem item{0, 0, tokens, true};
  const Status status = (*model)->decode({&item, 1}, logits);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::invalid);
}

// Trap 1: the library says yes although the window before the cut is gone.
TEST_F(ModelLlama, ASlidingWindowIsNotCutWhereItsTokensAreGone) {
  ModelWorldOptions options = tiny_llama(tiny("gemma3"), "auto");
  options.model["context"] = "2048";
  options.model["ubatch"] = "16";
  options.model["slots"] = "1";
  ModelWorld world(options);
  const std::vector<Token> prompt = some_tokens(1, 1500);  // the window's cache goes round
  world.read(0, prompt);
  const Status cut = world.model().truncate(0, 700);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::unsupported);
  EXPECT_EQ(world.model().length(0), 1500U);
}

TEST_F(ModelLlama, EveryKindOfStateIsKeptAsItCanBe) {
  for (const char* name : {"llama", "qwen3", "deepseek2", "gpt2"}) {
    const auto model = make(tiny(name));
    ASSERT_TRUE(model.ok()) << name << model.error().message;
    EXPECT_TRUE((*model)->info().state_in_blocks && (*model)->info().can_truncate) << name;
    EXPECT_FALSE((*model)->info().needs_checkpoints) << name;
  }
  for (const char* name : {"gemma3", "gpt-oss", "lfm2", "qwen35", "nemotron_h"}) {
    const auto model = make(tiny(name));
    ASSERT_TRUE(model.ok()) << name << model.error().message;
    EXPECT_TRUE((*model)->info().state_in_blocks && (*model)->info().needs_checkpoints) << name;
  }
  const auto recurrent = make(tiny("mamba2"));
  ASSERT_TRUE(recurrent.ok());
  EXPECT_FALSE((*recurrent)->info().state_in_blocks);
}

// Trap 5.
TEST_F(ModelLlama, WhateverChangesTheBytesChangesTheIdentity) {
  const std::string file = tiny("llama");
  const auto fields = [&](PluginOptions more) {
    const auto model = make(file, std::move(more));
    EXPECT_TRUE(model.ok());
    return (*model)->identity_fields().value_or(std::vector<IdentityField>());
  };
  const auto plain = fields({});
  EXPECT_EQ(fields({{"threads", "2"}, {"slots", "2"}, {"context", "128"}}), plain);
  EXPECT_NE(fields({{"cache_type_k", "q8_0"}}), plain);
  EXPECT_NE(fields({{"flash_attn", "off"}}), plain);
  EXPECT_NE(fields({{"state_granularity", "whole"}}), plain);
  const auto model = make(file);
  const auto files = (*model)->files();
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 1U);
  EXPECT_EQ((*files)[0].role, "model");
  EXPECT_EQ((*files)[0].path, file);
}

TEST_F(ModelLlama, ADamagedBlockIsRefusedOrHarmlessAndNoSlotChanges) {
  ModelWorld world(tiny_llama(tiny("llama"), "auto"));
  const std::vector<Token> prompt = some_tokens(1, 64);
  world.read(0, prompt);
  world.read(1, prompt);
  StoredState state = world.store(0, prompt);
  for (std::byte& byte : std::span(state.blocks[0][1]).first(64)) byte ^= std::byte{0xff};
  EXPECT_FALSE(world.restore(1, state).ok());
  EXPECT_EQ(world.model().length(1), 64U);
}

TEST_F(ModelLlama, TheVocabularyAloneTokenizesAndFormatsChat) {
  const auto model = vocabulary(tiny("llama"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE((*model)->info().chat);
  EXPECT_FALSE((*model)->decode({}, *std::make_unique<std::vector<std::span<const float>>>()).ok());
  const auto chat = (*model)->chat_format(R"({"messages":[{"role":"user","content":"hello there"}]})");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_NE(chat->prompt.find("hello there"), std::string::npos);
  EXPECT_TRUE(chat->grammar.empty());
  const auto answer = (*model)->chat_parse(chat->parser, "hi", true);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_NE(answer->find(R"("content":"hi")"), std::string::npos) << *answer;
}

TEST_F(ModelLlama, AChatRequestThatMakesNoSenseIsTheClientsFault) {
  const auto model = vocabulary(tiny("llama"));
  ASSERT_TRUE(model.ok());
  for (
      const char* request :
      {"", "[]", "{", R"({"messages":[]})", R"({"messages":[{"role":"user"}]})",
       R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"yaml"}})",
       R"({"messages":[{"role":"user","content":"x"}],"tools":[],"tool_choice":{"function":{"name":"f"}}})"}) {
    const auto chat = (*model)->chat_format(request);
    ASSERT_FALSE(chat.ok()) << request;
    EXPECT_EQ(chat.error().code, ErrorCode::invalid) << request << ": " << chat.error().message;
  }
}

// The tiny models' tokens are no text, so a real one; it comes with tools/install_deps models.
class ModelLlamaReal : public ModelLlama {
 protected:
  void SetUp() override {
    ModelLlama::SetUp();
    if (IsSkipped()) return;
    file_ = real_llama_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (file_.empty()) GTEST_SKIP() << "tools/install_deps models brings SmolLM2";
  }
  std::string answer(Model& model, const ChatPrompt& chat, uint32_t most) {
    const auto prompt = model.tokenize(chat.prompt, true, true);
    std::string grammar;
    for (const char c : chat.grammar) {
      if (c == '"' || c == '\\') grammar += '\\';
      grammar += c;
    }
    const auto sampler = model.make_sampler("{\"grammar\":\"" + grammar + "\"}");
    EXPECT_TRUE(sampler.ok()) << sampler.error().message;
    std::vector<std::span<const float>> logits;
    std::vector<Token> next = *prompt;
    std::vector<Token> said;
    while (said.size() < most) {
      const BatchItem item{0, model.length(0), next, true};
      EXPECT_TRUE(model.decode({&item, 1}, logits).ok());
      const Token token = (*sampler)->sample(0).value_or(-1);
      if (model.is_end_of_generation(token)) break;
      EXPECT_TRUE((*sampler)->accept(token, true).ok());
      said.push_back(token);
      next = {token};
    }
    return model.detokenize(said).value_or("");
  }
  std::string file_;
};

TEST_F(ModelLlamaReal, ASchemaForcesJsonAndARequiredToolIsCalled) {
  auto made = plugins_.registry.make_model(
      "llama", {{"path", file_}, {"slots", "1"}, {"threads", "1"}, {"context", "1024"}}, *device_);
  ASSERT_TRUE(made.ok()) << made.error().message;
  Model& model = **made;
  const auto schema = model.chat_format(
      R"({"messages":[{"role":"user","content":"Where is Paris?"}],"response_format":{"type":"json_schema",)"
      R"("json_schema":{"schema":{"type":"object","properties":{"big":{"type":"boolean"}},"required":["big"],)"
      R"("additionalProperties":false}}}})");
  ASSERT_TRUE(schema.ok()) << schema.error().message;
  ASSERT_FALSE(schema->grammar.empty());
  const std::string json = answer(model, *schema, 64);
  EXPECT_EQ(json.find_first_not_of(" \n"), json.find('{')) << json;
  EXPECT_NE(json.find("\"big\""), std::string::npos) << json;
  ASSERT_TRUE(model.clear(0).ok());
  const auto tool = model.chat_format(
      R"({"messages":[{"role":"user","content":"What is the time in Rome?"}],"tool_choice":"required","tools":[)"
      R"({"type":"function","function":{"name":"clock","parameters":{"type":"object","properties":{"city":)"
      R"({"type":"string","maxLength":12}},"required":["city"]}}}]})");
  ASSERT_TRUE(tool.ok()) << tool.error().message;
  const std::string call = answer(model, *tool, 256);
  const auto message = model.chat_parse(tool->parser, call, true);
  ASSERT_TRUE(message.ok()) << message.error().message << ": " << call;
  EXPECT_NE(message->find("tool_calls"), std::string::npos) << *message;
  EXPECT_NE(message->find("clock"), std::string::npos) << *message;
}

// Parsers are kept between calls: those of answers that are written at the same time must not mix.
TEST_F(ModelLlamaReal, AnswersThatAreWrittenTogetherAreReadByTheirOwnParsers) {
  const auto model = vocabulary(file_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<std::string> parsers;
  for (int i = 0; i < 40; ++i) {
    const std::string tool = R"({"type":"function","function":{"name":"tool)" + std::to_string(i) +
                             R"(","parameters":{"type":"object","properties":{}}}})";
    const auto chat = (*model)->chat_format(R"({"messages":[{"role":"user","content":"x"}],"tools":[)" +
                                            (i % 4 == 0 ? "" : tool) + "]}");
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    parsers.push_back(chat->parser);
  }
  for (const bool again : {false, true}) {
    for (int i = 0; i < 40; ++i) {
      const std::string name = "tool" + std::to_string(i);
      const auto answer = (*model)->chat_parse(
          parsers[static_cast<size_t>(i)],
          "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {}}\n</tool_call>", true);
      ASSERT_TRUE(answer.ok()) << again << i << answer.error().message;
      EXPECT_EQ(answer->find("\"tool_calls\"") != std::string::npos, i % 4 != 0) << i << *answer;
      EXPECT_NE(answer->find(name), std::string::npos) << *answer;
    }
  }
}

TEST_F(ModelLlamaReal, AGrammarThatIsNoneIsTheClientsFault) {
  auto made = plugins_.registry.make_model(
      "llama", {{"path", file_}, {"slots", "1"}, {"threads", "1"}, {"context", "256"}}, *device_);
  ASSERT_TRUE(made.ok());
  const auto sampler = (*made)->make_sampler(R"({"grammar":"root ::= ((("})");
  ASSERT_FALSE(sampler.ok());
  EXPECT_EQ(sampler.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace strata::testing
