// What a slot holds: the hash of every prefix of its tokens. From it follow the bytes of every block and
// checkpoint, and the next token; nothing else is stored. One thread at a time. All positions are in tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/model_synthetic/options.hpp"

namespace strata::synthetic {

// Bytes of the parts of a state; independent of any conversation.
[[nodiscard]] uint64_t block_bytes(const Options& options, uint32_t count);
[[nodiscard]] uint64_t checkpoint_bytes(const Options& options, uint32_t position);

class Conversation {
 public:
  explicit Conversation(const Options& options) : options_(&options) {}

  [[nodiscard]] uint32_t length() const { return static_cast<uint32_t>(prefixes_.size()); }
  void append(std::span<const int32_t> tokens);
  void cut(uint32_t tokens) { prefixes_.resize(tokens); }
  // Of everything it holds.
  [[nodiscard]] uint64_t prefix() const;

  // Per layer of the stage, the rows of the tokens in order. to: block_bytes(count).
  void fill_block(uint32_t stage, uint32_t first, uint32_t count, std::span<std::byte> to) const;
  void fill_checkpoint(uint32_t stage, std::span<std::byte> to) const;  // at its length
  // Throws sdk::Failure (CORRUPT) that names the first wrong row. Of a block of `count` tokens those that the
  // conversation holds are looked at.
  void check_block(uint32_t stage, uint32_t first, uint32_t count, std::span<const std::byte> from) const;
  void check_checkpoint(uint32_t stage, std::span<const std::byte> from) const;

 private:
  const Options* options_;
  std::vector<uint64_t> prefixes_;  // [i]: of the first i + 1 tokens
};

}  // namespace strata::synthetic
