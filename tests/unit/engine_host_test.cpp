// What the engine says about its model and budgets before anything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/limits.hpp"
#include "engine/runtime/engine_host.hpp"
#include "engine/runtime/model_identity.hpp"
#include "tests/support/engine_bench.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/recording_log.hpp"
#include "tests/support/scripted_model.hpp"

namespace strata {
namespace {

using ::testing::HasSubstr;

// A model with two files; what they say and where they lie is up to the test.
class ModelWithFiles final : public testing::ScriptedModel {
 public:
  std::vector<ModelFile> model_files;
  std::string rope = "1";
  Result<std::vector<ModelFile>> files() override { return model_files; }
  Result<std::vector<IdentityField>> identity_fields() override {
    return std::vector<IdentityField>{{"rope", rope}};
  }
};

class ModelIdentity : public ::testing::Test {
 protected:
  void write(const std::string& path, std::string_view text) {
    auto file = files_.open(path, OpenMode::create_exclusive, Caching::buffered);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(files_.write_at(*file, std::as_bytes(std::span(text)), 0).ok());
    files_.close(*file);
  }
  Identity identity() {
    auto made = identity_of(model_, files_);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return *made;
  }

  testing::FakeFileSystem files_;
  ModelWithFiles model_;
};

TEST_F(ModelIdentity, EveryByteOfEveryFileCountsAndPathsDoNotId1) {
  ASSERT_TRUE(files_.create_directory("/m").ok());
  const std::string large(3 * limits::kMiB + 17, 'a');
  std::string other = large;
  other[limits::kMiB * 2 + 5] = 'b';
  write("/m/one", large);
  write("/m/copy", large);
  write("/m/other", other);
  write("/m/adapter", "x");
  model_.model_files = {{"weights", "/m/one"}, {"adapter", "/m/adapter"}};
  const Identity first = identity();
  model_.model_files = {{"adapter", "/m/adapter"}, {"weights", "/m/copy"}};
  EXPECT_EQ(identity().model, first.model);
  model_.model_files = {{"weights", "/m/other"}, {"adapter", "/m/adapter"}};
  EXPECT_NE(identity().model, first.model);
  model_.model_files = {{"adapter", "/m/one"}, {"weights", "/m/adapter"}};
  EXPECT_NE(identity().model, first.model) << "the role counts";
}

TEST_F(ModelIdentity, AMissingFileIsNamed) {
  model_.model_files = {{"weights", "/nowhere"}};
  const auto made = identity_of(model_, files_);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("/nowhere"));
}

TEST_F(ModelIdentity, TheDifferingFieldIsNamedId3) {
  const Identity stored = identity();
  EXPECT_FALSE(compare(stored, identity()).has_value());
  model_.rope = "2";
  const Identity wanted = identity();
  EXPECT_NE(stored.model, wanted.model) << "without files the fields are the content";
  EXPECT_NE(stored.configuration, wanted.configuration);
}

TEST_F(ModelIdentity, SlotsAndContextAreNoPartOfItId2) {
  testing::ScriptedModel small(1, 128), large(8, 100'000);
  EXPECT_EQ(*identity_of(small, files_), *identity_of(large, files_));
}

TEST(EngineBudget, ABudgetBelowOneConversationIsReportedWithBothNumbers) {
  TierOptions tiers;
  EXPECT_FALSE(budget_warning(tiers, 100, 4096).has_value()) << "off is not too small";
  tiers.ram_budget_bytes = 10 * limits::kMiB;
  EXPECT_FALSE(budget_warning(tiers, 10 * limits::kMiB, 4096).has_value());
  const auto warning = budget_warning(tiers, 64 * limits::kMiB, 4096);
  ASSERT_TRUE(warning.has_value());
  for (const char* part : {"10 MiB", "64 MiB", "4096 tokens", "--conversation-cache-mib"})
    EXPECT_THAT(*warning, HasSubstr(part));
}

EngineSettings small_engine() {
  EngineSettings settings;
  settings.model_options = {{"layers", "2"}, {"dim", "64"}, {"heads", "4"}, {"kv_heads", "4"}, {"ffn", "64"}};
  settings.context_tokens = 256;
  settings.slots = 2;
  return settings;
}

TEST(EngineHostOpen, SaysWhatIsOnAndWhatIsOffObs2) {
  testing::RecordingLog log;
  EngineSettings settings = small_engine();
  settings.tiers.ram_budget_bytes = 64 * limits::kMiB;
  const auto host = EngineHost::open(settings, log);
  ASSERT_TRUE(host.ok()) << host.error().message;
  EXPECT_EQ((*host)->model().info().context_tokens, 256U);
  EXPECT_TRUE(log.contains("2 slots of 256 tokens"));
  EXPECT_TRUE(log.contains("strata: conversation cache: 64 MiB"));
  EXPECT_TRUE(log.contains("strata: conversation disk: off: no --conversation-disk-dir"));
  const std::string info = lines::encode((*host)->info("9.9"));
  EXPECT_THAT(info, HasSubstr("engine=9.9"));
  EXPECT_THAT(info, HasSubstr("ram_budget_bytes=67108864"));
}

TEST(EngineHostOpen, WhatCannotBeMadeIsNamed) {
  testing::RecordingLog log;
  EngineSettings settings = small_engine();
  settings.model = "nonesuch";
  auto host = EngineHost::open(settings, log);
  ASSERT_FALSE(host.ok());
  EXPECT_THAT(host.error().message, HasSubstr("nonesuch"));
  settings = small_engine();
  settings.plugins = {"relative.so"};
  host = EngineHost::open(settings, log);
  ASSERT_FALSE(host.ok());
  EXPECT_THAT(host.error().message, HasSubstr("relative.so"));
}

// Runs one request to its end on the real model and tiers; returns its DONE and its tokens.
std::pair<lines::Done, std::vector<Token>> answer(Engine& engine, testing::EngineBenchEvents& events,
                                                  lines::Generate ask) {
  events.events.clear();
  engine.generate(std::move(ask));
  while (engine.open_requests() > 0) engine.step();
  std::vector<Token> tokens;
  for (const auto& line : events.of<lines::TokenLine>()) tokens.push_back(line.token);
  const auto done = events.of<lines::Done>();
  EXPECT_EQ(done.size(), 1U);
  return {done.empty() ? lines::Done{} : done.front(), tokens};
}

class NextTurn : public ::testing::TestWithParam<const char*> {};

// The slot holds all but the last generated token, so the next turn reads that one and what is new: also
// where the state cannot be cut.
TEST_P(NextTurn, ReusesEverythingButTheLastToken) {
  testing::RecordingLog log;
  EngineSettings settings = small_engine();
  settings.model_options["layout"] = GetParam();
  auto host = EngineHost::open(settings, log);
  ASSERT_TRUE(host.ok()) << host.error().message;
  testing::EngineBenchEvents events;
  Engine engine({(*host)->model(), (*host)->tiers(), (*host)->clock(), (*host)->random(), log,
                 (*host)->metrics(), events},
                {});
  lines::Generate first = testing::ask(1, 100, 7);
  for (Token& token : first.tokens) token %= 200;
  first.ignore_end = true;
  const auto [done, generated] = answer(engine, events, first);
  ASSERT_EQ(generated.size(), 7U);

  lines::Generate second = first;
  second.id = 2;
  second.tokens.insert(second.tokens.end(), generated.begin(), generated.end());
  second.tokens.insert(second.tokens.end(), {1, 2, 3});
  const auto [next, more] = answer(engine, events, second);
  EXPECT_EQ(next.reused, 100U + 6U);
  EXPECT_EQ(next.read, 1U + 3U);
  EXPECT_EQ(next.tier, Tier::vram);
}

INSTANTIATE_TEST_SUITE_P(Layouts, NextTurn, ::testing::Values("attention", "sliding", "hybrid"),
                         [](const auto& layout) { return std::string(layout.param); });

}  // namespace
}  // namespace strata
