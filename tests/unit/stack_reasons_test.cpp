// OBS-1: each of the ten reasons why a prompt is read again, provoked end to end. Whatever the reason, the
// answer is that of a model that was never parked (invariant 1), and the reason is counted.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

constexpr uint32_t kGenerate = 4;
constexpr uint64_t kMinuteNs = 60'000'000'000;

class StackReasons : public ::testing::Test {
 protected:
  StackWorld& make(const StackWorldOptions& options) {
    StackWorldOptions plain = options;
    plain.tiers = {};
    plain.slots = 1;
    plain_ = std::make_unique<StackWorld>(plain);
    world_ = std::make_unique<StackWorld>(options);
    EXPECT_TRUE(world_->opened.ok()) << world_->opened.error().message;
    return *world_;
  }
  StackWorld& make(const TierOptions& tiers, const std::string& layout = "attention") {
    StackWorldOptions options;
    options.slots = 1;
    options.layout = layout;
    options.tiers = tiers;
    return make(options);
  }
  // Asks, and holds the answer against that of a world without a cache.
  Answer ask(const std::vector<Token>& prompt, TierRequest extra = {}) {
    const Answer answer = world_->ask(prompt, kGenerate, extra);
    TierRequest uncached;
    uncached.use_cache = false;
    EXPECT_EQ(answer, plain_->ask(prompt, kGenerate, uncached))
        << "reused " << answer.placement.reused_tokens << " from " << to_string(answer.placement.tier);
    EXPECT_TRUE(answer.failure.empty()) << answer.failure;
    return answer;
  }
  // Asks, and expects that for this reason only `reused` tokens were there.
  void expect_reason(const std::string& reason, uint32_t reused, const std::vector<Token>& prompt) {
    const std::string name = reason.substr(0, reason.find('@'));
    const double before = counted(name);
    const Answer answer = ask(prompt);
    EXPECT_EQ(to_string(answer.placement.cause), reason);
    EXPECT_EQ(answer.placement.reused_tokens, reused);
    EXPECT_EQ(counted(name), before + 1);
  }
  [[nodiscard]] double counted(const std::string& reason) const {
    return world_->metrics().value("strata_cache_misses_total", "reason=\"" + reason + "\"");
  }
  // Asks three conversations of 300 tokens, one after the other, and lets everything come to rest.
  std::vector<std::vector<Token>> three() {
    std::vector<std::vector<Token>> prompts;
    for (uint64_t i = 0; i < 3; ++i) prompts.push_back(prompt_of(10 + i, 300));
    for (const auto& prompt : prompts) ask(prompt);
    world_->settle();
    return prompts;
  }
  // The one conversation's file with this ending.
  [[nodiscard]] std::string file(const std::string& ending) const {
    for (const std::string& path : world_->files().paths()) {
      if (path.ends_with(ending)) return path;
    }
    return "";
  }

  std::unique_ptr<StackWorld> plain_;
  std::unique_ptr<StackWorld> world_;
};

std::vector<Token> changed_at(std::vector<Token> prompt, uint32_t at) {
  prompt[at] = prompt[at] == 40 ? 41 : 40;
  return prompt;
}

TEST_F(StackReasons, OBS1_New) {
  make(ram_tier(8 << 20));
  expect_reason("new", 0, prompt_of(1, 100));
  expect_reason("new", 0, prompt_of(2, 100));
}

TEST_F(StackReasons, OBS1_NothingIsWrongWhenEverythingWasReused) {
  make(ram_tier(8 << 20));
  const auto prompt = prompt_of(1, 100);
  const Answer first = ask(prompt);
  const Answer second = ask(next_prompt(prompt, first, 5, 1));
  EXPECT_EQ(second.placement.cause.reason, ReadReason::none);
  EXPECT_EQ(second.placement.reused_tokens, prompt.size() + kGenerate);
}

TEST_F(StackReasons, OBS1_PrefixChangedInTheSlot) {
  make(ram_tier(8 << 20));
  const auto prompt = prompt_of(1, 300);
  ask(prompt);
  expect_reason("prefix_changed@201", 201, changed_at(prompt, 201));
}

TEST_F(StackReasons, OBS1_PrefixChangedInRam) {
  make(ram_tier(8 << 20));
  const auto prompts = three();
  expect_reason("prefix_changed@123", 123, changed_at(prompts[0], 123));
}

TEST_F(StackReasons, OBS1_PrefixChangedOnDisk) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto prompts = three();
  world.shutdown();
  world.restart();
  expect_reason("prefix_changed@280", 280, changed_at(prompts[0], 280));
}

TEST_F(StackReasons, OBS1_EvictedFromRamWithoutADisk) {
  make(ram_tier(700 << 10));
  const auto prompts = three();
  ask(prompt_of(20, 300));
  expect_reason("evicted", 0, prompts[0]);
}

TEST_F(StackReasons, OBS1_EvictedFromTheDisk) {
  make(ram_and_disk(400 << 10, 800 << 10));
  const auto prompts = three();
  ask(prompt_of(20, 300));
  ask(prompt_of(21, 300));
  world_->settle();
  expect_reason("evicted", 0, prompts[0]);
}

// The longest removed conversation that the prompt shares gives the reason, not one that shares nothing.
TEST_F(StackReasons, OBS1_EvictedIsSaidAlsoAmongLongerStrangers) {
  make(ram_tier(400 << 10));
  const auto prompt = prompt_of(1, 200);
  const Answer first = ask(prompt);
  for (uint64_t i = 0; i < 4; ++i) ask(prompt_of(30 + i, 300));
  expect_reason("evicted", 0, next_prompt(prompt, first, 3, 90));
}

TEST_F(StackReasons, OBS1_Expired) {
  TierOptions tiers = ram_and_disk(400 << 10, 64 << 20);
  tiers.disk_ttl_ns = 30 * kMinuteNs;
  StackWorld& world = make(tiers);
  const auto prompts = three();
  world.clock().advance(31 * kMinuteNs);
  world.settle();
  EXPECT_EQ(world.stack().status().disk_images, 0u);
  expect_reason("expired", 0, prompts[0]);
}

TEST_F(StackReasons, OBS1_ExpiredBeforeTheStart) {
  TierOptions tiers = ram_and_disk(400 << 10, 64 << 20);
  StackWorld& world = make(tiers);
  const auto prompts = three();
  world.shutdown();
  world.clock().advance(31 * kMinuteNs);
  world.options().tiers.disk_ttl_ns = 30 * kMinuteNs;
  world.restart();
  expect_reason("expired", 0, prompts[0]);
}

TEST_F(StackReasons, OBS1_BudgetOfTheNextStartIsTooSmall) {
  StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
  const auto prompts = three();
  world.shutdown();
  world.options().tiers.disk_budget_bytes = 800 << 10;
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, 2u);
  expect_reason("evicted", 0, prompts[0]);
}

TEST_F(StackReasons, OBS1_Identity) {
  StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
  const auto prompts = three();
  world.shutdown();
  world.options().model_identity = 77;
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, 0u);
  for (const auto& prompt : prompts) expect_reason("identity", 0, prompt);
  expect_reason("new", 0, prompt_of(50, 300));
}

TEST_F(StackReasons, OBS1_NoCheckpoint) {
  for (const char* layout : {"sliding", "hybrid"}) {
    make(ram_tier(8 << 20), layout);
    const auto prompt = prompt_of(1, 150);  // no border, and too short to be given checkpoints
    ask(prompt);
    expect_reason("no_checkpoint", 0, changed_at(prompt, 90));
  }
}

TEST_F(StackReasons, OBS1_TooLarge) {
  make(ram_tier(250 << 10));
  const auto prompts = three();
  expect_reason("too_large", 0, prompts[0]);
  EXPECT_GT(world_->metrics().value("strata_skips_total", "tier=\"ram\",reason=\"too_large\""), 0);
}

// B-5: the disk turns out slow and reading fast; when reading gets slow, the disk is used again.
TEST_F(StackReasons, OBS1_CheaperToRead) {
  StackWorld& world = make(ram_and_disk(400 << 10, 64 << 20));
  const auto prompts = three();
  ask(prompt_of(40, 300));
  world.reader().set_latency(IoKind::read, 100'000'000);
  EXPECT_EQ(ask(prompts[0]).placement.tier, Tier::disk) << "nothing is known yet";
  world.settle();
  world.stack().observe_prompt(10'000, 10'000'000);
  expect_reason("cheaper_to_read", 0, prompts[1]);
  world.settle();
  for (int i = 0; i < 30; ++i) world.stack().observe_prompt(100, 10'000'000'000);
  EXPECT_EQ(ask(prompts[2]).placement.tier, Tier::disk);
}

// A flipped byte in an extent costs a re-read: found by its digest, quarantined, never offered again.
TEST_F(StackReasons, OBS1_Corrupt) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto prompt = prompt_of(1, 300);
  ask(prompt);
  world.shutdown();
  world.restart();
  const std::string index = file(".idx");
  world.files().flip_byte(file(".sess"), 4096 + 3 * 16384 + 77);
  expect_reason("corrupt", 0, prompt);
  world.settle();
  EXPECT_FALSE(world.files().exists(index));
  EXPECT_TRUE(world.files().exists(index + ".bad"));
  EXPECT_EQ(world.metrics().value("strata_quarantined_total", "reason=\"corrupt\""), 1);
  world.stack().begin_shutdown();  // as after a crash: what the slot holds now is not written
  world.restart();
  EXPECT_EQ(ask(prompt).placement.reused_tokens, 0u);
  EXPECT_TRUE(world.files().exists(index + ".bad"));
}

// The index itself is damaged behind its head, where only the body's reader looks.
TEST_F(StackReasons, OBS1_CorruptIndexBody) {
  StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
  const auto prompt = prompt_of(1, 300);
  ask(prompt);
  world.shutdown();
  world.restart();
  world.files().flip_byte(file(".idx"), world.files().info(file(".idx"))->size_bytes - 40);
  expect_reason("corrupt", 0, prompt);
  world.settle();
  EXPECT_TRUE(world.files().exists(file(".idx.bad")));
}

// A read that failed costs a re-read; the conversation is not offered again in this run, and the next start
// finds it where it was.
TEST_F(StackReasons, OBS1_IoError) {
  for (const uint64_t nth : {1, 2, 9}) {  // the index's body, the first extent, a later one
    StackWorld& world = make(ram_and_disk(8 << 20, 64 << 20));
    const auto prompt = prompt_of(1, 300);
    ask(prompt);
    world.shutdown();
    world.restart();
    const std::string index = file(".idx");
    world.reader().set_faults({{IoKind::read, nth, EIO, false}});
    expect_reason("io_error", 0, prompt);
    world.settle();
    EXPECT_TRUE(world.files().exists(index));
    EXPECT_EQ(world.stack().status().disk_images, 0u);
    world.restart();
    EXPECT_EQ(world.stack().status().disk_images, 1u);
    EXPECT_EQ(ask(prompt).placement.tier, Tier::disk);
  }
}

}  // namespace
}  // namespace strata::testing
