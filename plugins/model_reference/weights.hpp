// The weights, made from the seed: equal options give equal bits on every machine. Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "plugins/model_reference/kernels.hpp"
#include "plugins/model_reference/options.hpp"

namespace strata::reference {

struct LayerWeights {
  Matrix in;  // full, window: query, key, value; recurrent: query, key, value, decay (padded to 16)
  Matrix out;
  Matrix gate;
  Matrix up;
  Matrix down;
  std::vector<float> decay_bias;  // recurrent: per head
};

class Weights {
 public:
  explicit Weights(const Options& options);
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  [[nodiscard]] const LayerWeights& layer(uint32_t index) const { return layers_[index]; }
  [[nodiscard]] const float* embedding(int32_t token) const;  // dim floats
  // Added to the embedding. Without it the greedy answers of random weights run into a loop at once.
  [[nodiscard]] const float* position_embedding(uint32_t position) const;
  [[nodiscard]] const Matrix& output() const { return output_; }
  // Added to the logits after `token`: what letters follow each other in English, so that answers are
  // readable.
  [[nodiscard]] const float* output_bias(int32_t token) const;
  [[nodiscard]] static uint64_t parameters(const Options& options);

 private:
  Matrix make_matrix(uint64_t tensor, uint32_t inputs, uint32_t outputs, float gain);
  void fill_layer(const Options& options, uint32_t index);

  std::vector<std::vector<float>> storage_;
  std::vector<LayerWeights> layers_;
  std::vector<float> embedding_;
  std::vector<float> positions_;
  std::vector<float> bias_;
  Matrix output_;
  uint64_t seed_;
  uint32_t dim_;
};

// Outputs of a layer's first matrix.
[[nodiscard]] uint32_t in_outputs(const Options& options, LayerKind kind);

}  // namespace strata::reference
