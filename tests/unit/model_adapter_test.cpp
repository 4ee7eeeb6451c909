// The model adapter refuses tables and infos that would hurt later, and turns the C calling rules into the
// port's.
#include "plugins/host/model_adapter.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "tests/support/faulty_model.hpp"
#include "tests/support/model_world.hpp"

namespace strata::testing {
namespace {

// A model table whose functions answer what the test put here. One at a time: the table has no room for a
// context.
struct Script {
  strata_model_info info = {};
  int destroyed = 0;
  uint32_t answer_bytes = 0;  // length of chat template answers
  int growing = 0;            // how often the answer gets longer from call to call
};
Script* script = nullptr;

strata_status script_info(strata_instance*, strata_model_info* info, strata_error*) {
  *info = script->info;
  return STRATA_OK;
}

strata_status script_text(strata_instance*, char* text, uint64_t capacity, uint64_t* length, strata_error*) {
  if (script->growing > 0) {
    --script->growing;
    script->answer_bytes = static_cast<uint32_t>(capacity) + 1;
  }
  *length = script->answer_bytes;
  std::memset(text, 'x', std::min<uint64_t>(capacity, *length));
  return STRATA_OK;
}

strata_model complete_table() {
  strata_model t = {};
  t.plugin.struct_size = sizeof t;
  t.plugin.name = "scripted";
  t.plugin.caps_optional = STRATA_MODEL_CAP_TOKENIZER;
  t.plugin.destroy = [](strata_instance*) { ++script->destroyed; };
  t.bind_device = [](strata_instance*, const strata_device*, strata_instance*, int32_t, strata_error*) {
    return strata_status{STRATA_OK};
  };
  t.info = script_info;
  t.identity_fields = [](strata_instance*, strata_pair_visitor, void*, strata_error*) -> strata_status {
    return STRATA_OK;
  };
  t.files = t.identity_fields;
  t.tokenize = [](strata_instance*, strata_text, int32_t, int32_t, int32_t*, uint32_t, uint32_t*,
                  strata_error*) -> strata_status { return STRATA_OK; };
  t.detokenize = [](strata_instance*, const int32_t*, uint32_t, char*, uint64_t, uint64_t*,
                    strata_error*) -> strata_status { return STRATA_OK; };
  t.is_end_of_generation = [](strata_instance*, int32_t) { return 0; };
  t.chat_template = script_text;
  t.apply_chat_template = [](strata_instance* i, const strata_chat_message*, uint32_t, int32_t, char* text,
                             uint64_t capacity, uint64_t* length,
                             strata_error* error) { return script_text(i, text, capacity, length, error); };
  t.decode = [](strata_instance*, const strata_batch_item*, uint32_t, const float**,
                strata_error*) -> strata_status {
    return STRATA_OK;  // without logits
  };
  t.length = [](strata_instance*, int32_t) { return 0U; };
  t.truncate = [](strata_instance*, int32_t, uint32_t, strata_error* error) -> strata_status {
    std::strcpy(error->message, "the plugin's own words");
    error->os_errno = 5;
    return STRATA_UNSUPPORTED;
  };
  t.clear = [](strata_instance*, int32_t, strata_error*) -> strata_status { return 12345; };  // no such code
  t.block_bytes = [](strata_instance*, uint32_t, uint32_t) { return uint64_t{0}; };
  t.export_block = [](strata_instance*, int32_t, uint32_t, uint32_t, uint32_t, void*, uint64_t, void*,
                      strata_error*) -> strata_status { return STRATA_OK; };
  t.export_checkpoint = [](strata_instance*, int32_t, uint32_t, void*, uint64_t capacity, void*,
                           uint64_t* bytes, strata_error*) -> strata_status {
    *bytes = capacity + 1;
    return STRATA_OK;
  };
  t.import_begin = [](strata_instance*, int32_t, const int32_t*, uint32_t, uint64_t*,
                      strata_error*) -> strata_status { return STRATA_OK; };
  t.import_block = [](strata_instance*, uint64_t, uint32_t, uint32_t, uint32_t, const void*, uint64_t, void*,
                      strata_error*) -> strata_status { return STRATA_OK; };
  t.import_checkpoint = [](strata_instance*, uint64_t, uint32_t, uint32_t, const void*, uint64_t, void*,
                           strata_error*) -> strata_status { return STRATA_OK; };
  t.import_commit = [](strata_instance*, uint64_t, strata_error*) -> strata_status { return STRATA_OK; };
  t.import_abort = [](strata_instance*, uint64_t) {};
  return t;
}

class ModelAdapter : public ::testing::Test {
 protected:
  ModelAdapter() {
    script = &script_;
    strata_model_info& info = script_.info;
    info.struct_size = sizeof info;
    info.stages = info.slots = info.staged_imports = 1;
    info.context_tokens = info.vocabulary = info.tokens_per_block = 16;
    info.caps = STRATA_MODEL_STATE_IN_BLOCKS | STRATA_MODEL_STAGED_IMPORT;
    info.max_block_bytes[0] = 4096;
  }
  ~ModelAdapter() override { script = nullptr; }

  Result<std::unique_ptr<Model>> adapt() { return adapt_model(&table_, nullptr, nullptr, nullptr, 0); }
  void expect_refused(const std::string& why) {
    script_.destroyed = 0;
    const auto model = adapt();
    ASSERT_FALSE(model.ok()) << why;
    EXPECT_NE(model.error().message.find(why), std::string::npos) << model.error().message;
    EXPECT_NE(model.error().message.find("scripted"), std::string::npos) << model.error().message;
    EXPECT_EQ(script_.destroyed, 1);  // the instance is not lost
  }

  Script script_;
  strata_model table_ = complete_table();
};

// Where the table of ABI 1.0 ends.
constexpr size_t kEnd1_0 = offsetof(strata_model, import_abort) + sizeof(strata_model::import_abort);

TEST_F(ModelAdapter, TakesACompleteTableAndDestroysItsInstanceOnce_PLG1) {
  {
    const auto model = adapt();
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(script_.destroyed, 0);
  }
  EXPECT_EQ(script_.destroyed, 1);
}

TEST_F(ModelAdapter, RefusesATableWithAMissingFunction_PLG2) {
  // Every pointer of 1.0 after the common header, one by one.
  constexpr size_t kFirst = sizeof(strata_plugin);
  for (size_t at = kFirst; at < kEnd1_0; at += sizeof(void*)) {
    table_ = complete_table();
    std::memset(reinterpret_cast<char*>(&table_) + at, 0, sizeof(void*));
    script_.destroyed = 0;
    EXPECT_FALSE(adapt().ok()) << "function at byte " << at;
    EXPECT_EQ(script_.destroyed, 1);
  }
  table_ = complete_table();
  table_.plugin.struct_size = kEnd1_0 - 8;
  expect_refused("too small");
}

TEST_F(ModelAdapter, ATableOf1_0IsTakenAndHasNoChat_PLG1) {
  table_.plugin.struct_size = kEnd1_0;
  const auto model = adapt();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_FALSE((*model)->info().chat);
  EXPECT_EQ((*model)->chat_format("{}").error().code, ErrorCode::unsupported);
  EXPECT_EQ((*model)->chat_parse("", "x", true).error().code, ErrorCode::unsupported);
  EXPECT_EQ((*model)->make_sampler("{}").error().code, ErrorCode::unsupported);
}

TEST_F(ModelAdapter, RefusesChatOrSamplingWithoutTheirFunctions_PLG2) {
  table_.plugin.caps_optional |= STRATA_MODEL_CAP_CHAT;
  expect_refused("declares chat");
  table_.plugin.struct_size = kEnd1_0;  // promised, but beyond the end
  expect_refused("declares chat");
  table_ = complete_table();
  table_.plugin.caps_optional |= STRATA_MODEL_CAP_SAMPLING;
  expect_refused("declares sampling");
}

TEST_F(ModelAdapter, ATableWithoutTokenizerNeedsNone) {
  table_.plugin.caps_optional = 0;
  table_.tokenize = nullptr;
  table_.detokenize = nullptr;
  table_.is_end_of_generation = nullptr;
  const auto model = adapt();
  ASSERT_TRUE(model.ok());
  EXPECT_FALSE((*model)->info().tokenizer);
  EXPECT_EQ((*model)->tokenize("x", false, false).error().code, ErrorCode::unsupported);
  EXPECT_EQ((*model)->detokenize({}).error().code, ErrorCode::unsupported);
  EXPECT_FALSE((*model)->is_end_of_generation(0));
}

TEST_F(ModelAdapter, RefusesCountsBeyondTheLimits_PLG2) {
  const auto refused = [&](const char* why, const std::function<void(strata_model_info&)>& change) {
    const strata_model_info good = script_.info;
    change(script_.info);
    expect_refused(why);
    script_.info = good;
  };
  refused("stages", [](auto& i) { i.stages = 0; });
  refused("stages", [](auto& i) { i.stages = 65; });
  refused("slots", [](auto& i) { i.slots = 0; });
  refused("slots", [](auto& i) { i.slots = 257; });
  refused("context_tokens", [](auto& i) { i.context_tokens = 0; });
  refused("context_tokens", [](auto& i) { i.context_tokens = UINT32_MAX; });
  refused("vocabulary", [](auto& i) { i.vocabulary = 0; });
  refused("vocabulary", [](auto& i) { i.vocabulary = UINT32_MAX; });
  refused("staged_imports", [](auto& i) { i.staged_imports = 0; });
  refused("no tokens", [](auto& i) { i.tokens_per_block = 0; });
  refused("block of stage 0", [](auto& i) { i.max_block_bytes[0] = 0; });
  refused("block of stage 0", [](auto& i) { i.max_block_bytes[0] = (16 << 20) + 1; });
  refused("block of stage 1", [](auto& i) { i.stages = 2; });
  refused("checkpoint of stage 0", [](auto& i) { i.checkpoint_bytes[0] = (uint64_t{4} << 30) + 1; });
  refused("needs checkpoints", [](auto& i) { i.caps |= STRATA_MODEL_NEEDS_CHECKPOINTS; });
  refused("neither", [](auto& i) { i.caps = 0; });
}

TEST_F(ModelAdapter, TextWithoutAZeroByteStaysInItsField) {
  std::memset(script_.info.name, 'n', sizeof script_.info.name);
  const auto model = adapt();
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->info().name, std::string(sizeof script_.info.name, 'n'));
}

TEST_F(ModelAdapter, AsksAgainForALongAnswerButNotForEver) {
  const auto model = adapt();
  ASSERT_TRUE(model.ok());
  const std::vector<ChatMessage> messages = {{"user", "x"}};
  script_.answer_bytes = 100'000;
  EXPECT_EQ((*model)->apply_chat_template(messages, true)->size(), 100'000U);
  EXPECT_EQ((*model)->chat_template().size(), 100'000U);
  script_.growing = 10;
  EXPECT_EQ((*model)->apply_chat_template(messages, true).error().code, ErrorCode::internal);
}

TEST_F(ModelAdapter, ErrorsKeepCodeErrnoAndWords) {
  const auto model = adapt();
  ASSERT_TRUE(model.ok());
  const Error error = (*model)->truncate(0, 0).error();
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_EQ(error.os_errno, 5);
  EXPECT_NE(error.message.find("the plugin's own words"), std::string::npos);
  EXPECT_EQ((*model)->clear(0).error().code, ErrorCode::internal);  // a status nobody knows
}

TEST_F(ModelAdapter, AnswersThatCannotBeTrueAreErrors) {
  const auto model = adapt();
  ASSERT_TRUE(model.ok());
  std::vector<std::byte> room(16);
  EXPECT_EQ((*model)->export_checkpoint(0, 0, room, {}).error().code, ErrorCode::internal);
  const std::vector<Token> token = {1};
  const BatchItem item{0, 0, token, true};
  std::vector<std::span<const float>> logits;
  EXPECT_EQ((*model)->decode({&item, 1}, logits).error().code, ErrorCode::internal);  // wanted, not given
}

TEST(FaultyModelTest, FailsTheCallItWasToldToAndNoOther) {
  ModelWorld world({.model = tiny_reference("hybrid", 1, "blocks"), .through_faulty = true});
  Model& model = world.model();
  const std::vector<Token> prompt = some_tokens(1, 40);
  world.read(0, prompt);
  const StoredState state = world.store(0, prompt);
  for (const ModelCall call : {ModelCall::import_begin, ModelCall::import_block, ModelCall::import_checkpoint,
                               ModelCall::import_commit}) {
    world.faulty().set_fault({call, 1});
    const uint64_t injected = world.faulty().injected();
    EXPECT_FALSE(world.restore(1, state).ok());
    EXPECT_EQ(world.faulty().injected(), injected + 1);
    EXPECT_EQ(model.length(1), 0U);
    world.faulty().set_fault({});
    if (call != ModelCall::import_begin && call != ModelCall::import_commit) {
      EXPECT_FALSE(world.begin(1, state).ok());  // the import is still open: nobody aborted it
      for (ImportId id = 1; id < 20; ++id) model.import_abort(id);
    }
    ASSERT_TRUE(world.restore(1, state).ok());
    ASSERT_TRUE(model.clear(1).ok());
  }
  world.faulty().set_fault({.call = ModelCall::decode, .at = 2, .from_then_on = true});
  std::vector<std::span<const float>> logits;
  const BatchItem item{1, 0, prompt, false};
  EXPECT_TRUE(model.decode({&item, 1}, logits).ok());
  const BatchItem next{1, 40, prompt, false};
  EXPECT_FALSE(model.decode({&next, 1}, logits).ok());
  EXPECT_FALSE(model.decode({&next, 1}, logits).ok());
  EXPECT_EQ(model.length(1), 40U);
}

}  // namespace
}  // namespace strata::testing
