#include "plugins/model_synthetic/conversation.hpp"

#include <algorithm>

#include "plugins/model_synthetic/state_bytes.hpp"
#include "plugins/sdk/failure.hpp"

namespace strata::synthetic {

uint64_t block_bytes(const Options& options, uint32_t count) {
  if (options.whole) return 0;
  return uint64_t{options.layers_per_stage()} * options.row_bytes() * count;
}

uint64_t checkpoint_bytes(const Options& options, uint32_t position) {
  if (!options.whole) return options.checkpoint_bytes;
  return uint64_t{options.layers_per_stage()} * options.row_bytes() * position;
}

void Conversation::append(std::span<const int32_t> tokens) {
  uint64_t hash = prefix();
  prefixes_.reserve(prefixes_.size() + tokens.size());
  for (const int32_t token : tokens) prefixes_.push_back(hash = longer_prefix(hash, token));
}

uint64_t Conversation::prefix() const {
  return prefixes_.empty() ? empty_prefix(options_->seed) : prefixes_.back();
}

void Conversation::fill_block(uint32_t stage, uint32_t first, uint32_t count, std::span<std::byte> to) const {
  const size_t row = options_->row_bytes();
  const uint32_t layers = options_->layers_per_stage();
  for (uint32_t layer = stage * layers; layer < (stage + 1) * layers; ++layer) {
    for (uint32_t token = first; token < first + count; ++token) {
      fill_row(to.first(row), row_key(prefixes_[token], layer));
      to = to.subspan(row);
    }
  }
}

void Conversation::check_block(uint32_t stage, uint32_t first, uint32_t count,
                               std::span<const std::byte> from) const {
  const size_t row = options_->row_bytes();
  const uint32_t layers = options_->layers_per_stage();
  const uint32_t held = std::min(first + count, length());
  for (uint32_t layer = stage * layers; layer < (stage + 1) * layers; ++layer) {
    for (uint32_t token = first; token < held; ++token) {
      const auto bytes = from.subspan((token - first) * row, row);
      if (is_row(bytes, row_key(prefixes_[token], layer))) continue;
      sdk::raise(STRATA_CORRUPT, "stage %u, layer %u: the state of token %u is not that of this conversation",
                 stage, layer, token);
    }
    from = from.subspan(count * row);
  }
}

void Conversation::fill_checkpoint(uint32_t stage, std::span<std::byte> to) const {
  if (options_->whole) return fill_block(stage, 0, length(), to);
  fill_row(to, row_key(prefix(), kCheckpointPlace + stage));
}

void Conversation::check_checkpoint(uint32_t stage, std::span<const std::byte> from) const {
  if (options_->whole) return check_block(stage, 0, length(), from);
  if (is_row(from, row_key(prefix(), kCheckpointPlace + stage))) return;
  sdk::raise(STRATA_CORRUPT, "stage %u: the checkpoint at token %u is not that of this conversation", stage,
             length());
}

}  // namespace strata::synthetic
