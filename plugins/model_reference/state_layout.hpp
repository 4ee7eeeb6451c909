// Where a slot's state lies in its region of device memory, and how its pieces are strung together as the
// bytes of a block or a checkpoint. Immutable, thread-safe. Offsets and sizes in bytes, positions in tokens.
//
// Region: per layer, full: keys [context][kv_dim], values likewise; window: keys and values of the last
// window−1 tokens, token p in place p % (window−1); recurrent: [heads][head_dim][head_dim]. All float32.
// Block: per full layer of the stage, keys of its tokens, then values. Checkpoint: per layer of the stage,
// window: keys of the last tokens in order, then values; recurrent: the state; with whole state also full
// layers, all tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/model_reference/options.hpp"

namespace strata::reference {

struct Segment {
  uint64_t region_offset;
  uint64_t image_offset;
  uint64_t bytes;
};

class StateLayout {
 public:
  explicit StateLayout(const Options& options);

  [[nodiscard]] uint64_t region_bytes() const { return region_bytes_; }
  [[nodiscard]] uint64_t keys_offset(uint32_t layer) const {
    return offsets_[layer];
  }  // or the recurrent state
  [[nodiscard]] uint64_t values_offset(uint32_t layer) const { return offsets_[layer] + values_[layer]; }
  [[nodiscard]] uint32_t ring_tokens() const { return options_.window - 1; }

  [[nodiscard]] uint64_t block_bytes(uint32_t count) const;  // of any stage; 0 with whole state
  [[nodiscard]] uint64_t checkpoint_bytes(uint32_t position) const;
  // The leading `take` tokens of a block of `count` tokens.
  [[nodiscard]] std::vector<Segment> block(uint32_t stage, uint32_t first, uint32_t count,
                                           uint32_t take) const;
  [[nodiscard]] std::vector<Segment> checkpoint(uint32_t stage, uint32_t position) const;

 private:
  [[nodiscard]] uint64_t row_bytes() const { return uint64_t{options_.kv_dim()} * sizeof(float); }
  void add_ring(uint64_t region, uint32_t position, uint64_t& image, std::vector<Segment>& segments) const;

  Options options_;
  std::vector<uint64_t> offsets_;  // per layer
  std::vector<uint64_t> values_;   // from keys to values
  uint64_t region_bytes_ = 0;
  uint64_t state_bytes_ = 0;  // of a recurrent layer
};

}  // namespace strata::reference
