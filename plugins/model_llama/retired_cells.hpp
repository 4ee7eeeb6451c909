// Cells of llama.cpp's cache that no conversation needs any more, kept occupied until they are taken over.
//
// Attention adds up in the order of cells, and llama.cpp gives the lowest free cells first: a cell that is
// freed below a conversation's own would take its next token, and the sum would round otherwise than before.
// So what is dropped stays occupied, by sequences of this class, and free cells lie behind all others. A
// growing sequence can own a region: the cells of something dropped, in their order, which it takes over one
// by one (`make_way` frees just as many as are placed next). What a sequence drops becomes the front of the
// region it owns, so what is cut off and written anew, or emptied and filled anew, uses no new cells. Cells
// for which there is no region are crumbs: nobody takes them before all are released together.
//
// Every cell that a sequence takes lies above those it has; whoever places tokens keeps to that: one owner at
// a time, in one call, before anything else is placed. Borrows the memory. Tokens are cells. Nothing throws
// but for want of memory. One thread at a time.
#pragma once

#include <llama.h>

#include <cstdint>
#include <vector>

namespace strata::llama {

class RetiredCells {
 public:
  // Sequence `first` is for crumbs, the `regions` after it for one region each.
  RetiredCells(llama_memory_t memory, llama_seq_id first, uint32_t regions);

  [[nodiscard]] uint32_t tokens() const;
  // Without those that owners are expected to take.
  [[nodiscard]] uint32_t unwanted() const;
  [[nodiscard]] bool owns(llama_seq_id sequence) const;
  [[nodiscard]] llama_seq_id crumbs() const { return crumbs_; }
  // Tokens that somebody else made the crumbs sequence's.
  void add_crumbs(uint32_t count) { crumb_tokens_ += count; }

  // Tokens [first, first + count), the last ones of a sequence; first 0: it is empty then, and owns nothing.
  void retire(llama_seq_id sequence, uint32_t first, uint32_t count);
  // The region that fits best, if there is one, becomes that of a sequence without tokens.
  void offer(llama_seq_id sequence, uint32_t expected);
  // Frees the next `count` cells of what the sequence owns, or as many as there are.
  void make_way(llama_seq_id sequence, uint32_t count);
  void withdraw(llama_seq_id sequence);
  void hand_over(llama_seq_id from, llama_seq_id to);
  // All of it becomes free.
  void release();

 private:
  static constexpr llama_seq_id kNobody = -1;
  struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  struct Region {
    llama_seq_id sequence = 0;
    llama_seq_id owner = kNobody;
    uint32_t expected = 0;  // tokens the owner will take
    uint32_t tokens = 0;
    std::vector<Run> runs;  // positions of its tokens, the next ones last
  };

  [[nodiscard]] Region* owned(llama_seq_id sequence);
  [[nodiscard]] Region* unused(uint32_t count);
  void move(llama_seq_id from, llama_seq_id to, uint32_t first, uint32_t count);
  void empty(Region& region);

  llama_memory_t memory_;
  llama_seq_id crumbs_;
  uint32_t crumb_tokens_ = 0;
  std::vector<Region> regions_;
};

}  // namespace strata::llama
