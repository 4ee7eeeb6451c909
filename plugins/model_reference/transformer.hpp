// One pass of the network over rows of several slots. A row's result depends on its token, its position and
// its slot's state alone: never on the other rows, the split into passes or the number of threads. Reads and
// writes the slots' regions directly; reads nothing at or beyond a slot's length. One caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/model_reference/kernels.hpp"
#include "plugins/model_reference/options.hpp"
#include "plugins/model_reference/state_layout.hpp"
#include "plugins/model_reference/weights.hpp"
#include "plugins/model_reference/worker_pool.hpp"

namespace strata::reference {

struct Row {
  std::byte* region = nullptr;
  uint32_t position = 0;
  int32_t token = 0;
  float* logits = nullptr;  // kVocabulary floats, or null when not wanted
};

class Transformer {
 public:
  Transformer(const Options& options, const StateLayout& layout, const Kernels& kernels);

  // Rows of one slot lie together, in order of their position.
  void run(std::span<const Row> rows);

 private:
  struct Run {  // rows of one slot in this pass
    uint32_t first;
    uint32_t count;
    uint32_t linear;  // its place in the window scratch, in tokens
  };
  struct Scratch {  // of one worker
    std::vector<float> norm, gate, up, scores;
  };

  void pass(std::span<const Row> rows);
  void find_runs(std::span<const Row> rows);
  void layer(std::span<const Row> rows, uint32_t index);
  void project(std::span<const Row> rows, uint32_t index, uint32_t tile, Scratch& scratch);
  void place_keys(const Row& row, uint32_t row_index, uint32_t index);
  void rotate(float* heads, uint32_t count, uint32_t position, float scale) const;
  void attend_all(std::span<const Row> rows, uint32_t index);
  void attend(std::span<const Row> rows, uint32_t index, uint32_t row_index, uint32_t part, Scratch& scratch);
  [[nodiscard]] uint32_t parts() const;  // tasks of a row's attention
  void recur(std::span<const Row> rows, uint32_t index, const Run& run, uint32_t head);
  void combine(uint32_t rows, uint32_t index, uint32_t tile, Scratch& scratch);
  void read_rings(std::span<const Row> rows, uint32_t index);
  void write_rings(std::span<const Row> rows, uint32_t index);
  void write_logits(const Row& row, const float* x);
  [[nodiscard]] uint32_t ring_length(const Row& first) const;
  [[nodiscard]] float* state(const Row& row, uint64_t offset) const;

  const Options options_;
  const StateLayout& layout_;
  const Kernels& kernels_;
  const Weights weights_;
  WorkerPool pool_;
  std::vector<Scratch> scratch_;
  std::vector<Run> runs_;
  std::vector<uint32_t> run_of_row_;
  std::vector<float> x_;      // [rows][dim]
  std::vector<float> in_;     // [rows][in_stride]
  std::vector<float> mixed_;  // [rows][dim]: what attention or recurrence gave
  std::vector<float> keys_;   // window scratch: each run's ring and its new rows, in order
  std::vector<float> values_;
  std::vector<float> cosines_;  // [context][head_dim / 2]
  std::vector<float> sines_;
  uint32_t in_stride_ = 0;
};

}  // namespace strata::reference
