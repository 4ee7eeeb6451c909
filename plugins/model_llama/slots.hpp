// The slots of one bound instance: conversations in llama.cpp's cache, decoded, cut, taken out and put back.
//
// Sequences: 0 is scratch, then one per slot, then one per staged import, then the retired tokens. The cache
// has room for every slot and every staged import at full context, so an import never needs the slot's own
// cells. Copies are done when a call returns.
//
// What lives keeps the order of its cells, because sums depend on it (plugins/model_llama/retired_cells.hpp).
// What slots drop is taken over by the next that grows, or given back all together, when it is more than what
// lives or when cells run out; then what lives is laid anew into the lowest cells, each conversation in its
// order, where that makes sums equal. Borrows the model. Throws Failure; whatever throws has changed no slot
// unless it says so. One thread at a time.
#pragma once

#include <span>
#include <vector>

#include "plugins/abi/strata_model.h"
#include "plugins/model_llama/context.hpp"
#include "plugins/model_llama/retired_cells.hpp"
#include "plugins/model_llama/self_test.hpp"

namespace strata::llama {

class Slots {
 public:
  // in_order: what lives keeps the order of its cells also when cells are given back.
  Slots(const LoadedModel& model, const Options& options, StateAbilities abilities, uint32_t context_tokens,
        uint32_t tokens_per_block, bool in_order);

  [[nodiscard]] bool is_slot(int32_t slot) const {
    return slot >= 0 && static_cast<uint32_t>(slot) < lengths_.size();
  }
  [[nodiscard]] uint32_t length(int32_t slot) const {
    return is_slot(slot) ? lengths_[static_cast<size_t>(slot)] : 0;
  }
  [[nodiscard]] llama_context* context() const { return context_.get(); }
  // The row of the last decode that holds this slot's logits; -1: none.
  [[nodiscard]] int32_t logits_row(int32_t slot) const;

  // Cells that are occupied and belong to no conversation.
  [[nodiscard]] uint32_t retired_tokens() const { return retired_.tokens(); }

  // A failure after computing began empties the slots of the batch whose state cannot be cut back.
  void decode(std::span<const strata_batch_item> items, const float** logits);
  void truncate(int32_t slot, uint32_t tokens);
  void clear(int32_t slot);

  [[nodiscard]] uint64_t block_bytes(uint32_t stage, uint32_t count) const;
  void export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count, std::span<std::byte> to);
  [[nodiscard]] uint64_t export_checkpoint(int32_t slot, uint32_t stage, std::span<std::byte> to);

  [[nodiscard]] uint64_t begin(int32_t slot, const int32_t* tokens, uint32_t count);
  void add_block(uint64_t import, uint32_t stage, uint32_t first, uint32_t count,
                 std::span<const std::byte> from);
  void add_checkpoint(uint64_t import, uint32_t stage, uint32_t position, std::span<const std::byte> from);
  void commit(uint64_t import);
  void abort(uint64_t import);

 private:
  struct Import {
    uint64_t id = 0;
    int32_t slot = 0;
    uint32_t tokens = 0;
    llama_seq_id staging = 0;
    std::vector<uint32_t> held;                 // tokens of each block that are there
    std::vector<std::vector<std::byte>> early;  // blocks that came before their predecessors
    uint32_t placed = 0;                        // blocks in the cache
    std::vector<std::byte> checkpoint;          // put in at the commit: blocks that come later would clear it
  };

  static llama_seq_id sequence(int32_t slot) { return slot + 1; }
  void check_slot(int32_t slot) const;
  void check_stage(uint32_t stage) const;
  void check_block(uint32_t stage, uint32_t first, uint32_t count) const;
  void check_item(std::span<const strata_batch_item> items, size_t index) const;
  void undo_decode(std::span<const strata_batch_item> items);
  [[nodiscard]] int32_t run_batch();
  void fill_batch(std::span<const strata_batch_item> items);
  void add_to_batch(const strata_batch_item& item);
  [[nodiscard]] const strata_batch_item* make_way(std::span<const strata_batch_item> items);
  // Everything of a sequence, or its tokens from `first` on, which then are `count`.
  void retire(llama_seq_id sequence, uint32_t first, uint32_t count);
  void tidy();
  void release_retired();
  void lay_anew();
  [[nodiscard]] uint32_t living() const;
  [[nodiscard]] uint32_t placed_tokens(const Import& import) const;
  [[nodiscard]] uint32_t used_tokens(const Import& import, uint32_t block, uint32_t count) const;
  void place(Import& import, uint32_t block, uint32_t count, std::span<const std::byte> from);
  void place_block(const Import& import, uint32_t block, uint32_t count, std::span<const std::byte> from);
  void place_early(Import& import);
  void place_checkpoint(const Import& import);
  void check_complete(const Import& import) const;
  Import& find(uint64_t id);

  const LoadedModel& model_;
  StateAbilities abilities_;
  uint32_t context_tokens_;
  uint32_t tokens_per_block_;
  uint32_t window_;
  bool keeps_order_;  // by retiring; a cache without cells by token has no order
  bool in_order_;
  bool gaps_ = false;  // free cells may lie among those of what lives
  ContextHandle context_;
  RetiredCells retired_;
  SequenceState state_;
  Batch batch_;
  std::vector<uint32_t> lengths_;
  std::vector<int32_t> rows_;  // of the last decode, by slot
  std::vector<Import> imports_;
  std::vector<llama_seq_id> free_staging_;
  uint64_t next_import_ = 1;
};

// What a context of `options` needs: one cache for slots, staged imports and the part of a block beyond an
// import's end.
[[nodiscard]] ContextShape shape_of(const Options& options, const StateAbilities& abilities,
                                    uint32_t context_tokens, uint32_t tokens_per_block);

}  // namespace strata::llama
