// Real models through the whole stack (tiers and plugin): after park, spill, restart and restore, in another
// slot and another context, the next logits are bit for bit those of a conversation that was never parked.
// Over the tiny models of every kind of state and two real ones, state in blocks and forced whole. One thread
// and one token at a time, where that is promised (docs/model-llama.md). Each file has a control: another
// prefix of the same length must differ. (RAM-2, RAM-3, RAM-6, DISK-1, DISK-6, B-1, B-2, B-3)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/model_world.hpp"
#include "tests/support/stack_pair.hpp"

namespace strata::testing {
namespace {

struct Case {
  std::string name;
  std::string file;
  bool whole = false;
  bool real = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& file, bool real) {
    for (const bool whole : {false, true}) {
      std::string name = file.substr(file.rfind('/') + 1);
      name = name.substr(0, name.rfind(".gguf")) + (whole ? "_whole" : "_auto");
      std::ranges::replace_if(
          name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      all.push_back({name, file, whole, real});
    }
  };
  for (const std::string& file : llama_models().files) add(file, false);
  if (llama_models().plugin_file.empty()) return all;
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-Q4_K_M.gguf"})
    if (const std::string file = real_llama_model(name); !file.empty()) add(file, true);
  return all;
}

class StackLlama : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr uint32_t kGenerate = 6;
  static constexpr uint64_t kMiB = 1 << 20;

  StackWorldOptions options(const TierOptions& tiers, int slots) const {
    StackWorldOptions world;
    world.gguf = GetParam().file;
    world.whole = GetParam().whole;
    world.context = 256;
    world.slots = slots;
    world.tiers = tiers;
    world.tokens_at_once = 1;
    return world;
  }
  // What the same turns give where nothing is ever parked: every conversation has a slot.
  std::vector<Answer> never_parked(const std::vector<std::vector<Token>>& prompts) {
    StackWorld world(options({}, static_cast<int>(prompts.size())));
    std::vector<Answer> answers;
    for (const bool again : {false, true}) {
      for (size_t i = 0; i < prompts.size(); ++i) {
        TierRequest request;
        request.slot = static_cast<SlotId>(i);
        answers.push_back(
            world.ask(again ? next(prompts[i], answers[i], i) : prompts[i], kGenerate, request));
      }
    }
    return answers;
  }
  static std::vector<Token> next(const std::vector<Token>& prompt, const Answer& answer, size_t i) {
    return next_prompt(prompt, answer, 70 + i, 9);
  }
  // Room for all of it in RAM, which is another amount for each model.
  uint64_t room() const { return (GetParam().real ? 256 : 64) * kMiB; }

  void SetUp() override {
    const bool real = GetParam().real;  // slow, one token at a time
    if (real) conversations_ = 2;
    for (size_t i = 0; i < conversations_; ++i)
      prompts_.push_back(prompt_of(10 + i, (real ? 40 : 90) + static_cast<uint32_t>(i) * 7));
  }

  size_t conversations_ = 3;
  std::vector<std::vector<Token>> prompts_;
};

TEST_P(StackLlama, FromRamInAnotherSlotAndFromDiskAfterARestart) {
  const std::vector<Answer> expected = never_parked(prompts_);
  StackWorld world(options(ram_and_disk(room(), 4 * room()), 1));
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  std::vector<Answer> answers;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    answers.push_back(world.ask(prompts_[i], kGenerate));
    EXPECT_EQ(answers[i], expected[i]) << "read in a slot that another conversation left";
  }
  world.shutdown();
  world.options().slots = 2;  // another context, other cells
  world.restart();
  EXPECT_EQ(world.stack().status().disk_images, prompts_.size());
  for (const bool from_disk : {true, false}) {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const auto prompt = next(prompts_[i], answers[i], i);
      // The second time it goes on from RAM, where the first time's answer was parked.
      const Answer answer = world.ask(prompt, kGenerate);
      EXPECT_EQ(answer, expected[prompts_.size() + i]) << "conversation " << i;
      if (from_disk) {
        EXPECT_EQ(answer.placement.tier, Tier::disk);
        EXPECT_EQ(answer.placement.reused_tokens, prompts_[i].size() + kGenerate);
      } else {
        EXPECT_GT(answer.placement.reused_tokens, 0U);
      }
    }
  }
}

TEST_P(StackLlama, ParkedAndRestoredTurnAfterTurn) {
  StackWorld plain(options({}, static_cast<int>(prompts_.size())));
  StackWorld world(options(ram_tier(room()), 1));
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  std::vector<std::vector<Token>> prompts = prompts_;
  for (uint64_t turn = 0; turn < (GetParam().real ? 2U : 3U); ++turn) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      TierRequest request;
      request.slot = static_cast<SlotId>(i);
      const Answer expected = plain.ask(prompts[i], kGenerate, request);
      const Answer answer = world.ask(prompts[i], kGenerate);
      EXPECT_EQ(answer, expected) << "turn " << turn << " of conversation " << i;
      if (turn > 0) {
        EXPECT_EQ(answer.placement.tier, Tier::ram);
        EXPECT_EQ(answer.placement.reused_tokens, prompts[i].size() - 9);
      }
      prompts[i] = next_prompt(prompts[i], answer, 90 + turn, 9);
    }
  }
}

// The control: were the prefix not taken into account, or only its length, these would be equal.
TEST_P(StackLlama, AnotherPrefixOfTheSameLengthDiffers) {
  StackWorld world(options(ram_tier(room()), 1));
  std::vector<Answer> answers;
  for (const uint64_t prefix : {1, 2, 1}) {
    const auto begun = prompt_of(prefix, 50);
    world.ask(begun, 0);
    world.ask(prompt_of(3, 40), 0);  // parks it
    const Answer then = world.ask(followed_by(begun, 5, 20), kGenerate);
    EXPECT_GE(then.placement.reused_tokens, 50U);
    answers.push_back(then);
  }
  EXPECT_EQ(answers[0].logits, answers[2].logits);
  for (size_t i = 0; i < kGenerate; ++i)
    EXPECT_NE(answers[0].logits[i], answers[1].logits[i]) << "what was read before changes nothing";
}

// How far two answers are from each other while they say the same, of the size of the logits: 0 is bit for
// bit.
double distance(const Answer& a, const Answer& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.logits.size() && i < b.logits.size(); ++i) {
    for (size_t t = 0; t < a.logits[i].size(); ++t) {
      difference = std::max(difference, std::abs(double{a.logits[i][t]} - double{b.logits[i][t]}));
      size = std::max(size, std::abs(double{b.logits[i][t]}));
    }
    if (a.tokens[i] != b.tokens[i]) break;
  }
  return difference / size;
}

struct Windowed {
  std::string name;
  std::string file;
  uint32_t unit = 100;          // the history has 6 of them
  uint32_t tokens_at_once = 1;  // divides the unit, so that a cold read makes the same batches
  bool goes_round = false;      // the window's cache: then sums are added up in another order
};

// A window of 32 in histories of 600 tokens, and one of 512 in histories of 1,200.
std::vector<Windowed> windowed() {
  std::vector<Windowed> all;
  for (const std::string& file : llama_models().files) {
    for (const char* name : {"gemma3", "gpt-oss"}) {
      if (!file.ends_with(std::string("tiny-") + name + ".gguf")) continue;
      const std::string plain = name[1] == 'e' ? "tiny_gemma3" : "tiny_gpt_oss";
      all.push_back({plain, file, 100, 1, false});
      all.push_back({plain + "_goes_round", file, 100, 1, true});
    }
  }
  const std::string real = real_llama_model("gemma-3-270m-Q4_K_M.gguf");
  if (!real.empty() && !llama_models().plugin_file.empty())
    all.push_back({"gemma_3_270m", real, 200, 50, false});
  return all;
}

void PrintTo(const Windowed& c, std::ostream* out) { *out << c.name; }

class StackLlamaWindow : public ::testing::TestWithParam<Windowed> {
 protected:
  static constexpr uint32_t kGenerate = 4;

  StackWorldOptions options(TierOptions tiers) const {
    StackWorldOptions world;
    world.gguf = GetParam().file;
    world.context = static_cast<int>(at(7));
    world.slots = 1;
    world.tokens_at_once = GetParam().tokens_at_once;
    if (GetParam().goes_round) world.model["ubatch"] = "64";
    tiers.checkpoints_spread = false;  // at the borders alone
    world.tiers = tiers;
    return world;
  }
  [[nodiscard]] uint32_t at(uint32_t units) const { return units * GetParam().unit; }
  [[nodiscard]] TierRequest request(bool cached) const {
    TierRequest asked;
    asked.borders = {at(1), at(3), at(5)};
    asked.use_cache = cached;
    return asked;
  }
  Answer cold(const std::vector<Token>& prompt) const {
    StackWorld world(options({}));
    return world.ask(prompt, kGenerate, request(false));
  }
  // Another message from the middle of this unit on, and a little more.
  std::vector<Token> edited(uint32_t units, uint64_t seed) const {
    const uint32_t kept = at(units) + GetParam().unit / 2;
    return branch(history_, kept, seed, GetParam().unit / 4);
  }

  const std::vector<Token> history_ = prompt_of(1, at(6));
};

// The window at the edit is not in the slot any more: it comes back from the checkpoint before, out of the
// slot's own, from RAM, and from the disk after a restart.
TEST_P(StackLlamaWindow, EditedInTheMiddleItGoesOnFromTheCheckpointBefore_RAM6) {
  StackWorld world(options(ram_and_disk(512 << 20, 2048ULL << 20)));
  ASSERT_TRUE(world.opened.ok()) << world.opened.error().message;
  world.ask(history_, kGenerate, request(true));
  uint64_t seed = 20;
  for (const bool restarted : {false, true}) {
    if (restarted) {
      world.shutdown();
      world.restart();
    }
    const std::vector<uint32_t> edits =
        GetParam().unit > 100 ? std::vector<uint32_t>{3} : std::vector<uint32_t>{5, 3, 1};
    for (const uint32_t units : edits) {
      const std::vector<Token> prompt = edited(units, ++seed);
      const Answer expected = cold(prompt);
      const Answer answer = world.ask(prompt, kGenerate, request(true));
      EXPECT_EQ(answer.placement.reused_tokens, at(units));
      EXPECT_EQ(answer.placement.tier, restarted && units == edits.front() ? Tier::disk : Tier::ram);
      std::vector<Token> other = prompt;  // the control: one token before the checkpoint is another
      other[at(units) - 2] = prompt[at(units) - 2] == 40 ? 41 : 40;
      const Answer control = cold(other);
      if (GetParam().goes_round) {
        EXPECT_LT(10 * distance(answer, expected), distance(control, expected));
      } else {
        EXPECT_EQ(answer, expected) << "edited at " << prompt.size();
        EXPECT_NE(control.logits[0], expected.logits[0]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StackLlamaWindow, ::testing::ValuesIn(windowed()),
                         [](const auto& instance) { return instance.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StackLlamaWindow);

INSTANTIATE_TEST_SUITE_P(Models, StackLlama, ::testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StackLlama);

// One line where the files are missing.
TEST(StackLlamaCases, TheModelsAreThere) {
  if (!llama_models().why_not.empty()) GTEST_SKIP() << llama_models().why_not;
  if (real_llama_model("gemma-3-270m-Q4_K_M.gguf").empty())
    GTEST_SKIP() << "tools/install_deps models brings the real ones";
  EXPECT_GE(cases().size(), 24U);
}

}  // namespace
}  // namespace strata::testing
