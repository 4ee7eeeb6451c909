// RAM-3 at the planner alone: a hash is a hint, tokens decide; ties go to the cheaper tier, then to the more
// recently used.
#include <gtest/gtest.h>

#include "tests/support/fake_memory_probe.hpp"
#include "tests/support/plain_device.hpp"
#include "tests/support/recording_log.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"
#include "tiers/planner.hpp"

namespace strata::testing {
namespace {

class PlannerTest : public ::testing::Test {
 protected:
  PlannerTest() {
    info_.tokens_per_block = 16;
    info_.can_truncate = true;
    info_.max_block_bytes = {4096};
    info_.checkpoint_bytes = {0};
  }

  // An image in the RAM tier, under the chain of `indexed_as`.
  uint64_t park(const std::vector<Token>& tokens, const std::vector<Token>& indexed_as, uint64_t used_ns = 1,
                uint64_t salt = 0) {
    auto image = std::make_shared<Image>();
    image->id = ConversationId{next_};
    image->generation = 1;
    image->tokens = tokens;
    image->salt = salt;
    image->last_used_ns = used_ns;
    for (uint32_t first = 0; first < tokens.size(); first += 16) {
      auto part = std::make_shared<Part>();
      part->first = first;
      part->count = std::min<uint32_t>(16, static_cast<uint32_t>(tokens.size()) - first);
      part->bytes = 4096;
      part->ram = make_buffer(4096);
      image->parts.push_back(std::move(part));
    }
    const uint64_t key = next_++;
    ram_.admit(key, image);
    index_.insert(key, prefix_chain({indexed_as, {}}, 0), static_cast<uint32_t>(indexed_as.size()));
    return key;
  }
  Plan plan(const std::vector<Token>& prompt, uint64_t salt = 0) {
    Planner::Request request;
    request.prompt = {prompt, {}};
    request.salt = salt;
    return Planner({info_, slots_, ram_, nullptr, index_, ghosts_, cost_, true}).plan(request);
  }
  Slot& slot(const std::vector<Token>& tokens, uint64_t used_ns = 1) {
    Slot& made = slots_.emplace_back();
    made.id = static_cast<SlotId>(slots_.size()) - 1;
    made.tokens = tokens;
    made.conversation = ConversationId{900 + slots_.size()};
    made.answer_start = static_cast<uint32_t>(tokens.size());
    made.last_used_ns = used_ns;
    return made;
  }

  ModelInfo info_;
  PlainDevice device_;
  RecordingLog log_;
  FakeMemoryProbe probe_;
  PinnedPool pool_{device_, log_, 64 << 20};
  RamTier ram_{{64 << 20, 0, 0}, pool_, probe_, [](const RamTier::Entry&, RamTier::Drop) {}};
  SlotTable slots_;
  PrefixIndex index_;
  Ghosts ghosts_;
  CostModel cost_;
  uint64_t next_ = 1;
};

// Every hash collides: other conversations are indexed under the prompt's own chain.
TEST_F(PlannerTest, RAM3_HashCollisionsCannotMatter) {
  const auto prompt = prompt_of(1, 700);
  for (uint64_t i = 0; i < 5; ++i) park(prompt_of(10 + i, 700), prompt);
  park(followed_by({prompt.begin(), prompt.begin() + 40}, 20, 660), prompt);
  const Plan found = plan(prompt);
  EXPECT_EQ(found.source, Plan::Source::ram);
  EXPECT_LE(found.usable_tokens, 41u);
  EXPECT_GE(found.usable_tokens, 40u);
  EXPECT_EQ(plan(prompt_of(2, 700)).usable_tokens, 0u);
}

// And the one that really matches is found among them.
TEST_F(PlannerTest, RAM3_TheRightOneIsFoundAmongCollisions) {
  const auto prompt = prompt_of(1, 700);
  for (uint64_t i = 0; i < 20; ++i) park(prompt_of(10 + i, 700), prompt);
  const std::vector<Token> right(prompt.begin(), prompt.begin() + 650);
  const uint64_t key = park(right, right);
  for (uint64_t i = 0; i < 20; ++i) park(prompt_of(40 + i, 700), prompt);
  const Plan found = plan(prompt);
  EXPECT_EQ(found.key, key);
  EXPECT_EQ(found.usable_tokens, 650u);
}

TEST_F(PlannerTest, RAM3_ASaltIsComparedNotHashed) {
  const auto prompt = prompt_of(1, 300);
  park(prompt, prompt, 1, 7);
  EXPECT_EQ(plan(prompt).usable_tokens, 0u);
  EXPECT_EQ(plan(prompt, 7).usable_tokens, 299u) << "although its chain is that of another salt";
}

TEST_F(PlannerTest, RAM3_TiesGoToTheMoreRecent) {
  const auto common = prompt_of(1, 300);
  std::vector<uint64_t> keys;
  for (const uint64_t used : {5, 9, 7}) {
    const auto tokens = followed_by(common, 10 + used, 30);
    keys.push_back(park(tokens, tokens, used));
  }
  auto prompt = common;
  prompt.insert(prompt.end(), 40, Token{31});
  const Plan found = plan(prompt);
  EXPECT_EQ(found.usable_tokens, 300u);
  EXPECT_EQ(found.key, keys[1]);
}

TEST_F(PlannerTest, RAM3_TiesGoToTheCheaperTier) {
  const auto tokens = prompt_of(1, 300);
  park(tokens, tokens, 99);
  slot(tokens, 1);
  const auto prompt = followed_by(tokens, 5, 20);
  EXPECT_EQ(plan(prompt).source, Plan::Source::slot);
  // But what a slot would have to give up costs more than RAM.
  slots_.clear();
  slot(followed_by(tokens, 6, 100), 1);
  EXPECT_EQ(plan(prompt).source, Plan::Source::ram);
}

TEST_F(PlannerTest, RAM3_TheLongestWinsOverTheCheaper) {
  const auto tokens = prompt_of(1, 320);
  park(tokens, tokens);
  slot({tokens.begin(), tokens.begin() + 319});
  const Plan found = plan(followed_by(tokens, 5, 20));
  EXPECT_EQ(found.source, Plan::Source::ram);
  EXPECT_EQ(found.usable_tokens, 320u);
}

// A slot that a request is being placed in is nobody's source any more.
TEST_F(PlannerTest, RAM5_ASlotThatIsBeingFilledIsNoSource) {
  const auto tokens = prompt_of(1, 320);
  Slot& held = slot(tokens);
  held.request = 5;
  const auto prompt = followed_by(tokens, 5, 20);
  EXPECT_EQ(plan(prompt).source, Plan::Source::slot) << "answering: it can be forked";
  held.placing = true;
  EXPECT_EQ(plan(prompt).source, Plan::Source::none);
}

TEST_F(PlannerTest, RAM3_AtMostAllButOneAndNothingTooShort) {
  const auto tokens = prompt_of(1, 300);
  park(tokens, tokens);
  EXPECT_EQ(plan(tokens).usable_tokens, 299u);
  EXPECT_EQ(plan({tokens.begin(), tokens.begin() + 16}).usable_tokens, 0u);
  EXPECT_EQ(plan({tokens.begin(), tokens.begin() + 17}).usable_tokens, 16u);
  EXPECT_EQ(plan({tokens.begin(), tokens.begin() + 1}).usable_tokens, 0u);
}

}  // namespace
}  // namespace strata::testing
