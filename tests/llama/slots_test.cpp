// The order of cells in llama.cpp's cache: whatever slots and imports do, each conversation lies in ascending
// cells, and what is dropped is taken over instead of growing the cache. Looks at the cells by the state
// that llama.cpp exports, which lists them in their order. Skipped with the reason without the tiny models.
#include "plugins/model_llama/slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/library.hpp"
#include "tests/support/model_world.hpp"

namespace strata::llama {
namespace {

constexpr uint32_t kContext = 512;
constexpr uint32_t kBlock = 16;
constexpr uint32_t kSlots = 3;
using Tokens = std::vector<int32_t>;
using Blocks = std::vector<std::vector<std::byte>>;

struct Stored {
  Tokens tokens;
  Blocks blocks;
};

std::string tiny_llama() {
  for (const std::string& file : testing::llama_models().files)
    if (file.ends_with("/tiny-llama.gguf")) return file;
  return {};
}

Options options_of(const std::string& path) {
  Options options;
  options.path = path;
  options.context = kContext;
  options.slots = kSlots;
  options.threads = 1;
  options.tokens_per_block = kBlock;
  options.pass_tokens = 64;
  return options;
}

// Positions of a sequence in the order of its cells (llama.cpp's exported form, one stream).
std::vector<int32_t> positions(llama_context* context, llama_seq_id sequence) {
  std::vector<uint8_t> data(llama_state_seq_get_size(context, sequence));
  llama_state_seq_get_data(context, data.data(), data.size(), sequence);
  size_t at = 8 + sizeof(uint32_t);  // magic number, sequence; streams
  const auto next = [&] {
    uint32_t value = 0;
    std::memcpy(&value, data.data() + at, sizeof value);
    at += sizeof value;
    return value;
  };
  std::vector<int32_t> found(next());
  for (int32_t& position : found) {
    position = static_cast<int32_t>(next());
    at += sizeof(uint32_t) * next();
  }
  return found;
}

class LlamaSlots : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::llama_models().why_not.empty()) GTEST_SKIP() << testing::llama_models().why_not;
    start_library(nullptr);
    const Options options = options_of(tiny_llama());
    model_ = std::make_unique<LoadedModel>(options);
    const StateAbilities abilities = test_state(*model_, options);
    ASSERT_TRUE(abilities.blocks);
    slots_ = std::make_unique<Slots>(*model_, options, abilities, kContext, kBlock, true);
    held_.resize(kSlots);
  }

  uint32_t some(uint32_t from, uint32_t to) {
    return std::uniform_int_distribution<uint32_t>(from, to)(random_);
  }
  Tokens some_tokens(uint32_t count) {
    Tokens tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(some(1, model_->vocabulary_size() - 1));
    return tokens;
  }
  static llama_seq_id sequence(uint32_t slot) { return static_cast<llama_seq_id>(slot + 1); }
  [[nodiscard]] uint32_t living() const {
    uint32_t sum = 0;
    for (const Tokens& tokens : held_) sum += static_cast<uint32_t>(tokens.size());
    return sum;
  }

  // Further tokens for each of the slots, in one batch. The logits of the last one.
  std::vector<float> read(const std::vector<std::pair<uint32_t, Tokens>>& parts) {
    std::vector<strata_batch_item> items;
    for (const auto& [slot, tokens] : parts) {
      strata_batch_item item = {};
      item.slot = static_cast<int32_t>(slot);
      item.position = static_cast<uint32_t>(held_[slot].size());
      item.tokens = tokens.data();
      item.token_count = static_cast<uint32_t>(tokens.size());
      item.want_logits = 1;
      items.push_back(item);
    }
    std::vector<const float*> logits(items.size());
    slots_->decode(items, logits.data());
    for (const auto& [slot, tokens] : parts)
      held_[slot].insert(held_[slot].end(), tokens.begin(), tokens.end());
    return {logits.back(), logits.back() + model_->vocabulary_size()};
  }
  void truncate(uint32_t slot, uint32_t tokens) {
    slots_->truncate(static_cast<int32_t>(slot), tokens);
    held_[slot].resize(tokens);
  }
  Stored store(uint32_t slot) {
    Stored stored{held_[slot], {}};
    const auto length = static_cast<uint32_t>(held_[slot].size());
    for (uint32_t first = 0; first < length; first += kBlock) {
      const uint32_t count = std::min(kBlock, length - first);
      std::vector<std::byte> block(slots_->block_bytes(0, count));
      slots_->export_block(static_cast<int32_t>(slot), 0, first, count, block);
      stored.blocks.push_back(std::move(block));
    }
    return stored;
  }
  // `between` runs between two blocks; `tokens` of the stored ones are taken.
  template <typename Between>
  void restore(uint32_t slot, const Stored& stored, uint32_t tokens, bool commit, Between between) {
    const uint64_t import = slots_->begin(static_cast<int32_t>(slot), stored.tokens.data(), tokens);
    for (uint32_t first = 0; first < tokens; first += kBlock) {
      const auto there = static_cast<uint32_t>(stored.tokens.size()) - first;
      slots_->add_block(import, 0, first, std::min(kBlock, there), stored.blocks[first / kBlock]);
      between();
    }
    if (!commit) return slots_->abort(import);
    slots_->commit(import);
    held_[slot].assign(stored.tokens.begin(), stored.tokens.begin() + tokens);
  }
  void restore(uint32_t slot, const Stored& stored) {
    restore(slot, stored, static_cast<uint32_t>(stored.tokens.size()), true, [] {});
  }

  void expect_order(const std::string& after) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const std::vector<int32_t> found = positions(slots_->context(), sequence(slot));
      ASSERT_EQ(found.size(), held_[slot].size()) << "slot " << slot << " after " << after;
      ASSERT_TRUE(std::is_sorted(found.begin(), found.end())) << "slot " << slot << " after " << after;
    }
  }
  void random_step();

  std::mt19937_64 random_{7};
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Slots> slots_;
  std::vector<Tokens> held_;
  std::vector<Stored> stored_;
  std::string did_;
};

// Reads, writes beside each other, cuts, empties, stores, restores with others at work, gives restores up.
void LlamaSlots::random_step() {
  const uint32_t slot = some(0, kSlots - 1);
  const uint32_t other = (slot + 1) % kSlots;
  const auto room = [&](uint32_t of) { return kContext - static_cast<uint32_t>(held_[of].size()); };
  const auto write_other = [&] {
    if (room(other) > 0 && some(0, 3) == 0) read({{other, some_tokens(1)}});
  };
  switch (some(0, 6)) {
    case 0:
      did_ = "a read";
      if (room(slot) > 0) read({{slot, some_tokens(some(1, std::min(90U, room(slot))))}});
      break;
    case 1:
      did_ = "two in a batch";
      if (room(slot) > 20 && room(other) > 20)
        read({{slot, some_tokens(some(1, 20))}, {other, some_tokens(some(1, 20))}});
      break;
    case 2:
      did_ = "a cut";
      if (!held_[slot].empty()) truncate(slot, some(0, static_cast<uint32_t>(held_[slot].size())));
      break;
    case 3:
      did_ = "an emptied slot";
      slots_->clear(static_cast<int32_t>(slot));
      held_[slot].clear();
      break;
    case 4:
      did_ = "a store";
      if (!held_[slot].empty()) stored_.push_back(store(slot));
      break;
    default: {
      if (stored_.empty()) break;
      const Stored& chosen = stored_[some(0, static_cast<uint32_t>(stored_.size()) - 1)];
      const auto whole = static_cast<uint32_t>(chosen.tokens.size());
      const bool commit = some(0, 4) != 0;
      did_ = commit ? "a restore" : "a restore that was given up";
      restore(slot, chosen, some(0, 2) == 0 ? some(1, whole) : whole, commit, write_other);
    }
  }
}

TEST_F(LlamaSlots, EveryConversationKeepsTheOrderOfItsCells_EX_1) {
  for (uint32_t history = 0; history < 12; ++history) {
    random_.seed(history);
    for (uint32_t step = 0; step < 60; ++step) {
      random_step();
      expect_order(did_ + ", history " + std::to_string(history) + ", step " + std::to_string(step));
      if (HasFatalFailure()) return;
      ASSERT_LE(slots_->retired_tokens(), kSlots * kContext);
    }
  }
}

// The control: a cell given back below a conversation's own takes its next token.
TEST_F(LlamaSlots, ACellGivenBackAtOnceBreaksTheOrder) {
  read({{0, some_tokens(30)}});
  read({{1, some_tokens(30)}});
  expect_order("two reads");
  llama_memory_seq_rm(llama_get_memory(slots_->context()), sequence(0), 10, -1);
  read({{1, some_tokens(5)}});
  const std::vector<int32_t> found = positions(slots_->context(), sequence(1));
  EXPECT_FALSE(std::is_sorted(found.begin(), found.end()));
}

// What one conversation leaves the next one takes: the cache stays as small as what lives and one more.
TEST_F(LlamaSlots, SwitchingTakesOverTheCellsOfWhatLeft) {
  constexpr uint32_t kLength = 200;
  for (uint32_t i = 0; i < 5; ++i) {
    read({{i % 2, some_tokens(kLength)}});
    stored_.push_back(store(i % 2));
    if (i < 4) truncate(i % 2, 0);
  }
  for (uint32_t turn = 0; turn < 20; ++turn) {
    restore(turn % 2, stored_[turn % 5]);
    read({{turn % 2, some_tokens(4)}});
    EXPECT_LE(slots_->retired_tokens(), kLength + 8) << "turn " << turn;
    expect_order("turn " + std::to_string(turn));
  }
}

TEST_F(LlamaSlots, WhatIsCutAndReadAnewTakesTheSameCells) {
  read({{0, some_tokens(60)}});
  read({{0, some_tokens(40)}});  // in the batches that come again: their shape changes last bits, too
  read({{1, some_tokens(100)}});
  const Tokens tail(held_[0].begin() + 60, held_[0].end());
  const std::vector<float> before = read({{0, some_tokens(1)}});
  const int32_t last = held_[0].back();
  for (uint32_t turn = 0; turn < 10; ++turn) {
    truncate(0, 60);
    EXPECT_EQ(slots_->retired_tokens(), 41U);
    read({{0, tail}});
    const std::vector<float> again = read({{0, {last}}});
    EXPECT_EQ(slots_->retired_tokens(), 0U);
    EXPECT_EQ(std::memcmp(before.data(), again.data(), before.size() * sizeof(float)), 0) << "turn " << turn;
    expect_order("a cut and a read");
  }
}

// A block that llama.cpp refuses leaves no gap that another conversation's next token would fall into.
TEST_F(LlamaSlots, ARefusedBlockLeavesNoGap_B4) {
  read({{0, some_tokens(100)}});
  Stored stored = store(0);
  read({{1, some_tokens(50)}});
  slots_->clear(0);
  held_[0].clear();
  std::fill(stored.blocks[2].begin(), stored.blocks[2].end(), std::byte{0x5A});
  const uint64_t import = slots_->begin(0, stored.tokens.data(), 100);
  slots_->add_block(import, 0, 0, kBlock, stored.blocks[0]);
  slots_->add_block(import, 0, kBlock, kBlock, stored.blocks[1]);
  EXPECT_THROW(slots_->add_block(import, 0, 2 * kBlock, kBlock, stored.blocks[2]), Failure);
  read({{1, some_tokens(10)}});
  expect_order("a refused block");
  slots_->abort(import);
  read({{1, some_tokens(10)}});
  expect_order("the end of its import");
}

// Dead cells cost time with every token: once they are more than what lives, they are given back.
TEST_F(LlamaSlots, MoreDeadThanLivingIsGivenBack) {
  for (uint32_t turn = 0; turn < 3; ++turn) {
    read({{turn, some_tokens(510)}});
  }
  slots_->clear(0);
  slots_->clear(1);
  truncate(2, 5);
  held_[0].clear();
  held_[1].clear();
  EXPECT_EQ(slots_->retired_tokens(), 1525U);
  read({{2, some_tokens(1)}});
  EXPECT_EQ(slots_->retired_tokens(), 0U);
  expect_order("a release");
}

}  // namespace
}  // namespace strata::llama
