// The state of llama.cpp's sequences as blocks, checkpoints and whole states (design of the model plugin:
// docs/model-llama.md).
//
// One sequence id, kScratch, is never anybody's: everything is exported from it and imported through it,
// because the id stands in the data, and because a copy between sequences only marks cells. Exported data is
// llama.cpp's own, with the part that a block does not have (the side state: sliding window, recurrent) cut
// off and put back empty. Borrows the context. Every function throws Failure and leaves no scratch cells
// behind. One thread at a time.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata::llama {

// Sizes follow from two measured exports, as `base + tokens * per_token`.
struct PartSize {
  uint64_t base = 0;
  uint64_t per_token = 0;
  [[nodiscard]] uint64_t of(uint64_t tokens) const { return base + tokens * per_token; }
};

// How the state of one model in one configuration is laid out; measured once.
struct StateLayout {
  PartSize block;                     // per_token 0: the model keeps nothing by token
  PartSize side;                      // with its frame; both 0: there is none
  PartSize whole;                     // with its frame
  std::vector<std::byte> empty_side;  // of a sequence without tokens
  [[nodiscard]] bool has_blocks() const { return block.per_token != 0; }
  [[nodiscard]] bool has_side() const { return side.base != 0; }
};

class SequenceState {
 public:
  static constexpr llama_seq_id kScratch = 0;

  explicit SequenceState(llama_context* context) : context_(context), memory_(llama_get_memory(context)) {}

  // Sizes of what `sequence` holds now: `tokens`, at least 8 of them. Throws when they follow no rule.
  [[nodiscard]] StateLayout measure(llama_seq_id sequence, uint32_t tokens);
  // Bytes of the side part of a sequence, without a frame; 0: the model has none.
  [[nodiscard]] uint64_t side_bytes(llama_seq_id sequence) const;

  void export_block(const StateLayout& layout, llama_seq_id from, uint32_t first, uint32_t count,
                    std::span<std::byte> to);
  // Only the first `used` of the block's tokens are taken; the others go to `rest`.
  void import_block(const StateLayout& layout, llama_seq_id into, uint32_t first, uint32_t count,
                    uint32_t used, std::span<const std::byte> from, llama_seq_id rest);

  // The side part, or everything. Both return the bytes written, frame included.
  uint64_t export_framed(llama_seq_id from, uint32_t position, bool whole, std::span<std::byte> to);
  void import_framed(llama_seq_id into, bool whole, std::span<const std::byte> from);
  // Says whether the frame is that of `position` and as long as the data. Static: nothing is imported.
  [[nodiscard]] static bool frame_fits(std::span<const std::byte> from, uint32_t position);

  void remove(llama_seq_id sequence) { llama_memory_seq_rm(memory_, sequence, -1, -1); }
  [[nodiscard]] bool cut(llama_seq_id sequence, uint32_t tokens) {
    return llama_memory_seq_rm(memory_, sequence, static_cast<llama_pos>(tokens), -1);
  }
  // `to` becomes what `from` is; `from` becomes empty.
  void move(llama_seq_id from, llama_seq_id to);
  // Puts a sequence into the lowest free cells, in order; the bytes of all its state are in memory meanwhile.
  // When it throws the sequence is empty.
  void lay_anew(llama_seq_id sequence);
  [[nodiscard]] llama_pos first_position(llama_seq_id sequence) const {
    return llama_memory_seq_pos_min(memory_, sequence);
  }

 private:
  [[nodiscard]] uint64_t block_bytes(llama_seq_id sequence, uint32_t first, uint32_t count);
  [[nodiscard]] uint64_t scratch_size(llama_state_seq_flags flags) const {
    return llama_state_seq_get_size_ext(context_, kScratch, flags);
  }
  void read_scratch(std::span<std::byte> to, llama_state_seq_flags flags) const;

  llama_context* context_;
  llama_memory_t memory_;
  std::vector<std::byte> buffer_;
};

}  // namespace strata::llama
