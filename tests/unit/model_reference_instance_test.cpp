// What is special about the reference model beyond the contract of every model: its options, its identity,
// its answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/model_world.hpp"

namespace strata::testing {
namespace {

PluginOptions with(PluginOptions options, const std::string& key, const std::string& value) {
  options[key] = value;
  return options;
}

Result<std::unique_ptr<Model>> make(PluginWorld& plugins, Device& device, const PluginOptions& options) {
  return plugins.registry.make_model("reference", options, device);
}

std::vector<std::pair<std::string, std::string>> identity(const PluginOptions& options) {
  ModelWorld world({.model = options});
  const std::vector<IdentityField> all = *world.model().identity_fields();
  std::vector<std::pair<std::string, std::string>> fields;
  for (const IdentityField& field : all) fields.emplace_back(field.name, field.value);
  return fields;
}

TEST(ReferenceModel, TheDefaultHasBlocksOfUsefulSizeAndFitsInMemory) {
  PluginWorld plugins;
  auto vocabulary = plugins.registry.make_vocabulary("reference", {});
  ASSERT_TRUE(vocabulary.ok());
  const ModelInfo& info = (*vocabulary)->info();
  EXPECT_GE(info.max_block_bytes[0], 64U << 10);
  EXPECT_LE(info.max_block_bytes[0], 512U << 10);
  const uint64_t slot = info.max_block_bytes[0] / info.tokens_per_block * info.context_tokens;
  EXPECT_LE(slot * (info.slots + info.staged_imports), 200U << 20);
  EXPECT_TRUE(info.can_truncate);
  EXPECT_FALSE(info.needs_checkpoints);
}

TEST(ReferenceModel, OptionsThatMakeNoModelAreNamed) {
  PluginWorld plugins;
  auto device = plugins.registry.make_device("host", {});
  const std::map<std::string, std::vector<std::string>> bad = {
      {"layout", {"", "attentive", "Attention"}},
      {"state", {"block", "all"}},
      {"state_granularity", {"", "half", "whole"}},  // the last contradicts state=blocks
      {"stages", {"0", "3", "65"}},
      {"layers", {"0", "-4", "x", "4.0", "99999999999999999999"}},
      {"heads", {"0", "3", "32"}},
      {"kv_heads", {"3", "0"}},
      {"ffn", {"20"}},
      {"window", {"1"}},
      {"tokens_per_block", {"0", "65536000"}},
      {"context", {"0", "16777217"}},
      {"slots", {"0", "257"}},
      {"threads", {"257"}},
      {"seed", {"", "1e3", std::string(100, '1')}},
      {"vocab_only", {"2"}}};
  for (const auto& [key, values] : bad) {
    for (const std::string& value : values) {
      const auto model = make(plugins, **device, with(tiny_reference("attention", 2, "blocks"), key, value));
      ASSERT_FALSE(model.ok()) << key << "=" << value;
      EXPECT_EQ(model.error().code, ErrorCode::invalid);
      const bool both = key == "state_granularity" && value == "whole";
      const std::string named = key == "stages" && value == "3" ? "layers" : both ? "state" : key;
      EXPECT_NE(model.error().message.find("option " + named), std::string::npos) << model.error().message;
    }
  }
  EXPECT_FALSE(make(plugins, **device, with(tiny_reference("hybrid", 2, "blocks"), "layers", "2")).ok());
}

TEST(ReferenceModel, IdentityIsWhatChangesTheBytesAndNothingElse_ID2) {
  const PluginOptions base = tiny_reference("sliding", 1, "blocks");
  const auto fields = identity(base);
  for (const auto& [key, value] : PluginOptions{{"slots", "2"}, {"context", "128"}, {"threads", "1"}})
    EXPECT_EQ(identity(with(base, key, value)), fields) << key;
  for (const auto& [key, value] : PluginOptions{{"seed", "2"},
                                                {"layout", "hybrid"},
                                                {"state", "whole"},
                                                {"stages", "2"},
                                                {"layers", "8"},
                                                {"dim", "64"},
                                                {"kv_heads", "2"},
                                                {"ffn", "48"},
                                                {"window", "32"},
                                                {"tokens_per_block", "8"}})
    EXPECT_NE(identity(with(base, key, value)), fields) << key;
}

// The name that --state-granularity hands on means what `state` means, for both models that are built in.
TEST(ReferenceModel, StateGranularityIsTheCommonNameOfState) {
  for (PluginOptions options :
       {tiny_reference("attention", 2, "blocks"), tiny_synthetic(2, SyntheticState::blocks).model}) {
    const char* plugin = options.contains("bytes_per_token") ? "synthetic" : "reference";
    const auto info_of = [&](const char* key, const char* value) {
      PluginOptions chosen = options;
      chosen.erase("state");
      if (key != nullptr) chosen[key] = value;
      ModelWorld world({.plugin = plugin, .model = chosen});
      return std::pair(world.model().info(), world.model().identity_fields().value());
    };
    for (const auto& [granularity, state] :
         {std::pair{"auto", "blocks"}, {"blocks", "blocks"}, {"whole", "whole"}}) {
      const auto [info, fields] = info_of("state_granularity", granularity);
      EXPECT_EQ(info.state_in_blocks, std::string(state) == "blocks") << plugin << " " << granularity;
      EXPECT_EQ(fields, info_of("state", state).second) << plugin << " " << granularity;
    }
    EXPECT_TRUE(info_of(nullptr, nullptr).first.state_in_blocks) << plugin;
  }
}

TEST(ReferenceModel, ThreadsAndDevicesDoNotChangeLogits) {
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    const PluginOptions options = with(tiny_reference(layout, 1, "blocks"), "context", "512");
    const std::vector<Token> prompt = some_tokens(4, 500);  // long enough to be shared out among threads
    ModelWorld one({.model = with(options, "threads", "1")});
    const Trace expected = one.read(0, prompt, 100);
    for (const char* threads : {"2", "5"}) {
      ModelWorld many({.model = with(options, "threads", threads), .device = TestDevice::plain});
      EXPECT_TRUE(equal_bits(many.read(0, prompt, 100), expected)) << layout << " " << threads;
    }
  }
}

TEST(ReferenceModel, SeedsMakeDifferentModels) {
  const std::vector<Token> prompt = some_tokens(4, 40);
  ModelWorld one({.model = tiny_reference("attention", 1, "blocks")});
  ModelWorld two({.model = with(tiny_reference("attention", 1, "blocks"), "seed", "2")});
  EXPECT_FALSE(equal_bits(one.read(0, prompt), two.read(0, prompt)));
}

TEST(ReferenceModel, StagesOnlyDivideTheState) {
  const std::vector<Token> prompt = some_tokens(4, 60);
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    ModelWorld one({.model = tiny_reference(layout, 1, "blocks")});
    ModelWorld two({.model = tiny_reference(layout, 2, "blocks")});
    EXPECT_TRUE(equal_bits(one.read(0, prompt), two.read(0, prompt)));
    EXPECT_EQ(one.model().block_bytes(0, 16), 2 * two.model().block_bytes(1, 16));
  }
}

TEST(ReferenceModel, GreedyAnswersArePrintableAndNotConstant) {
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    ModelWorld world({.model = tiny_reference(layout, 1, "blocks")});
    const std::vector<ChatMessage> messages = {{"system", "Be brief."}, {"user", "Tell me about disks."}};
    const std::string prompt = *world.model().apply_chat_template(messages, true);
    std::vector<Token> tokens = *world.model().tokenize(prompt, true, true);
    std::string answer;
    for (int i = 0; i < 60; ++i) {
      const Trace trace = world.read(0, tokens);
      const auto& logits = trace.back();
      tokens = {static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin())};
      if (world.model().is_end_of_generation(tokens[0])) break;
      answer += *world.model().detokenize(tokens);
    }
    ASSERT_FALSE(answer.empty());
    EXPECT_TRUE(std::all_of(answer.begin(), answer.end(), [](char c) { return c >= ' ' && c <= '~'; }))
        << answer;
    std::string letters = answer;
    std::sort(letters.begin(), letters.end());
    EXPECT_GE(std::unique(letters.begin(), letters.end()) - letters.begin(), 5) << answer;
  }
}

TEST(ReferenceModel, VocabularyOnlyHasTokensAndTemplateButNoState) {
  PluginWorld plugins;
  auto model = plugins.registry.make_vocabulary("reference", tiny_reference("hybrid", 1, "blocks"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  Model& vocabulary = **model;
  EXPECT_EQ(*vocabulary.detokenize(*vocabulary.tokenize("text", false, true)), "text");
  EXPECT_FALSE(vocabulary.chat_template().empty());
  const std::vector<Token> token = {65};
  const BatchItem item{0, 0, token, true};
  std::vector<std::span<const float>> logits;
  EXPECT_EQ(vocabulary.decode({&item, 1}, logits).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.clear(0).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.truncate(0, 0).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.export_block(0, 0, 0, 16, {}, {}).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.export_checkpoint(0, 0, {}, {}).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.import_begin(0, token).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.import_commit(1).error().code, ErrorCode::unsupported);
  EXPECT_EQ(vocabulary.length(0), 0U);
  vocabulary.import_abort(1);
}

// A missing wait shows: the device finishes copies late, and a commit before that is refused.
TEST(ReferenceModel, ACommitBeforeItsCopiesEndedIsRefused) {
  ModelWorld world({.model = tiny_reference("hybrid", 1, "blocks")});
  const std::vector<Token> prompt = some_tokens(1, 100);
  world.read(0, prompt);
  const StoredState state = world.store(0, prompt);
  const Result<ImportId> import = world.begin(1, state);
  ASSERT_TRUE(import.ok());
  ASSERT_TRUE(world.add_parts(*import, state).ok());
  const Status early = world.model().import_commit(*import);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().code, ErrorCode::invalid);
  EXPECT_NE(early.error().message.find("in flight"), std::string::npos) << early.error().message;
  EXPECT_EQ(world.model().length(1), 0U);
  ASSERT_TRUE(world.restore(1, state).ok());
}

// Parts may come on several streams: what the stream used last has done comes after all the others.
TEST(ReferenceModel, PartsOnSeveralStreamsMakeOneImport) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ModelWorld world({.model = tiny_reference("sliding", 2, "blocks"), .device_seed = seed});
    const std::vector<Token> prompt = some_tokens(1, 100);
    world.read(0, prompt);
    const StoredState state = world.store(0, prompt);
    const DeviceStream streams[] = {world.stream(), *world.device().create_stream()};
    const Result<ImportId> import = world.begin(1, state);
    ASSERT_TRUE(import.ok());
    for (StageId stage = 0; stage < 2; ++stage) {
      for (uint32_t i = 0; i < state.blocks[stage].size(); ++i)
        ASSERT_TRUE(world.model()
                        .import_block(*import, stage, i * 16, world.block_tokens(i, 100),
                                      state.blocks[stage][i], streams[(i + stage) % 2])
                        .ok());
      ASSERT_TRUE(world.model()
                      .import_checkpoint(*import, stage, 100, state.checkpoints[stage], streams[stage])
                      .ok());
    }
    const DeviceEvent event = *world.device().create_event();
    ASSERT_TRUE(world.device().record(event, streams[1]).ok());  // the stream used last
    ASSERT_TRUE(world.device().wait(event).ok());
    const Status committed = world.model().import_commit(*import);
    ASSERT_TRUE(committed.ok()) << committed.error().message;
    const std::vector<Token> more = some_tokens(3, 10);
    EXPECT_TRUE(equal_bits(world.step(1, more), world.step(0, more)));
    world.device().destroy_event(event);
    world.device().destroy_stream(streams[1]);
  }
}

// Copies of an aborted import may still be under way when the next one fills the same memory from another
// stream.
TEST(ReferenceModel, LateCopiesOfAnAbortedImportDoNotReachTheNextOne) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    ModelWorld world({.model = tiny_reference("hybrid", 1, "blocks"), .device_seed = seed});
    const std::vector<Token> prompt = some_tokens(1, 100);
    const std::vector<Token> other = some_tokens(2, 100);
    world.read(0, prompt);
    world.read(1, other);
    const StoredState good = world.store(0, prompt);
    const StoredState bad = world.store(1, other);
    const Result<ImportId> aborted = world.begin(2, bad);
    ASSERT_TRUE(aborted.ok());
    ASSERT_TRUE(world.add_parts(*aborted, bad).ok());
    world.model().import_abort(*aborted);
    const DeviceStream second = *world.device().create_stream();
    const DeviceEvent event = *world.device().create_event();
    const Result<ImportId> import = world.begin(2, good);
    ASSERT_TRUE(import.ok());
    for (uint32_t i = 0; i < good.blocks[0].size(); ++i)
      ASSERT_TRUE(world.model()
                      .import_block(*import, 0, i * 16, world.block_tokens(i, 100), good.blocks[0][i], second)
                      .ok());
    ASSERT_TRUE(world.model().import_checkpoint(*import, 0, 100, good.checkpoints[0], second).ok());
    ASSERT_TRUE(world.device().record(event, second).ok());
    ASSERT_TRUE(world.device().wait(event).ok());
    ASSERT_TRUE(world.model().import_commit(*import).ok());
    world.finish();  // what the first stream still had to do
    const std::vector<Token> more = some_tokens(3, 10);
    EXPECT_TRUE(equal_bits(world.step(2, more), world.step(0, more)));
    world.device().destroy_event(event);
    world.device().destroy_stream(second);
  }
}

// The last block of a context that is no multiple of it: tokens beyond the context have no place in a slot.
TEST(ReferenceModel, ABlockThatReachesBeyondTheContextIsCut) {
  const std::vector<Token> prompt = some_tokens(1, 256);
  const std::span<const Token> used = std::span(prompt).first(245);
  ModelWorld large({.model = tiny_reference("attention", 2, "blocks")});
  large.read(0, used);
  StoredState state = large.store(0, used);
  large.read(0, std::span(prompt).subspan(245));
  ModelWorld small({.model = with(tiny_reference("attention", 2, "blocks"), "context", "250")});
  const Result<ImportId> import = small.begin(0, state);
  ASSERT_TRUE(import.ok());
  ASSERT_TRUE(small.add_parts(*import, state).ok());
  for (StageId stage = 0; stage < 2; ++stage) {
    const std::vector<std::byte> longer = large.store_block(0, stage, 240, 16);
    ASSERT_TRUE(small.model().import_block(*import, stage, 240, 16, longer, small.stream()).ok());
    small.finish();
  }
  ASSERT_TRUE(small.model().import_commit(*import).ok());
  ASSERT_TRUE(large.model().truncate(0, 245).ok());
  const std::vector<Token> more = some_tokens(3, 5);
  EXPECT_TRUE(equal_bits(small.step(0, more), large.step(0, more)));
}

TEST(ReferenceModel, ADeviceItCannotComputeOnIsRefused) {
  PlainDevice device;
  device.set_unified_memory(false);
  PluginWorld plugins;
  const HostContext context(plugins.log, plugins.clock, tiny_reference("attention", 1, "blocks"));
  const auto model = make_reference_on(device, context);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::unsupported);
  EXPECT_EQ(device.allocations(), 0U);
}

TEST(ReferenceModel, WhenMemoryRunsOutEverythingIsGivenBack) {
  PluginWorld plugins;
  const HostContext context(plugins.log, plugins.clock, tiny_reference("attention", 1, "blocks"));
  for (uint32_t nth = 1; nth <= 5; ++nth) {
    PlainDevice device;
    device.fail_allocation(nth);
    const auto model = make_reference_on(device, context);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().code, ErrorCode::exhausted);
    EXPECT_EQ(device.allocations(), 0U);
    EXPECT_EQ(device.events(), 0U);
  }
}

}  // namespace
}  // namespace strata::testing
