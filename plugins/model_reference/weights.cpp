#include "plugins/model_reference/weights.hpp"

#include <cmath>
#include <string_view>

#include "plugins/model_reference/vocabulary.hpp"

namespace strata::reference {
namespace {

// SplitMix64: small, and the same everywhere.
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // Uniform in [-limit, limit), from 24 bits, exact in float.
  float uniform(float limit) {
    const auto bits = static_cast<int32_t>(next() >> 40);
    return static_cast<float>(bits - (1 << 23)) / static_cast<float>(1 << 23) * limit;
  }

 private:
  uint64_t state_;
};

Generator generator_of(uint64_t seed, uint64_t tensor) {
  Generator mixed(seed ^ (tensor * 0xd1342543de82ef95ULL));
  return Generator(mixed.next());
}

// A uniform value of this limit has variance gain² / inputs.
float limit_of(uint32_t inputs, float gain) { return gain * std::sqrt(3.0F / static_cast<float>(inputs)); }

// Pairs of neighbouring letters in this text make the output bias.
constexpr std::string_view kSample =
    "\nThe state of a conversation is kept where it can be found again. A block of tokens goes from one tier "
    "to the "
    "next, and when the reader comes back it is there. This is what the model writes when nobody taught it "
    "to speak: "
    "words that look like words, sentences that end. We read the first page, then the second, and we know "
    "that the "
    "same bytes give the same answer. In the morning the agent asks for a plan; at noon it asks for the "
    "file; in the "
    "evening it wants to know what was done. Another one waits in line with a long question about memory, "
    "disks and "
    "time. Nothing is lost that was written down before the power went out. You can look at it, copy it, or "
    "let it "
    "go. Some answers are short. Yes. No. It depends on the size of the window and on how many slots there "
    "are. Here "
    "is a list of things to check: the length, the order, the end.";

constexpr uint32_t kPositionPeriod = 1021;  // a prime: no rhythm of a prompt falls in step with it
constexpr float kNeverBias = -60.0F;        // not printable
constexpr float kRareBias = -7.0F;          // printable, but this pair is not in the sample
constexpr float kEndAfterStop = 0.2F;       // share of sentences that end the answer

bool printable(uint32_t token) {
  const bool letter = (token >= 'a' && token <= 'z') || (token >= 'A' && token <= 'Z');
  return letter || token == ' ' || token == '.' || token == ',';
}

std::vector<float> english_bias() {
  std::vector<float> counts(size_t{kVocabulary} * 256, 0.0F);
  for (size_t i = 1; i < kSample.size(); ++i) {
    const auto before = static_cast<uint8_t>(kSample[i - 1]);
    counts[size_t{before} * 256 + static_cast<uint8_t>(kSample[i])] += 1.0F;
  }
  std::vector<float> bias(size_t{kVocabulary} * kVocabulary, kNeverBias);
  for (uint32_t before = 0; before < kVocabulary; ++before) {
    // What follows a token that the sample does not have is what follows a space.
    const float* row = &counts[size_t{before} * 256];
    float total = 0;
    for (uint32_t next = 0; next < 256; ++next) total += row[next];
    if (total == 0) {
      row = &counts[size_t{' '} * 256];
      for (uint32_t next = 0; next < 256; ++next) total += row[next];
    }
    float* out = &bias[size_t{before} * kVocabulary];
    for (uint32_t next = 0; next < 256; ++next) {
      if (row[next] > 0)
        out[next] = std::log(row[next] / total);
      else if (printable(next))
        out[next] = kRareBias;
    }
    if (before == '.') out[kEnd] = std::log(kEndAfterStop);
  }
  return bias;
}

}  // namespace

uint32_t in_outputs(const Options& o, LayerKind kind) {
  if (kind == LayerKind::recurrent) return 3 * o.dim + (o.heads + kLanes - 1) / kLanes * kLanes;
  return o.dim + 2 * o.kv_dim();
}

Weights::Weights(const Options& options) : seed_(options.seed), dim_(options.dim) {
  storage_.reserve(size_t{options.layers} * 5 + 1);
  layers_.resize(options.layers);
  for (uint32_t layer = 0; layer < options.layers; ++layer) fill_layer(options, layer);
  embedding_.resize(size_t{kVocabulary} * dim_);
  Generator generator = generator_of(seed_, 1);
  for (float& value : embedding_) value = generator.uniform(1.0F);
  positions_.resize(size_t{kPositionPeriod} * dim_);
  for (float& value : positions_) value = generator.uniform(1.0F);
  output_ = make_matrix(2, dim_, kVocabulary, 1.5F);
  bias_ = english_bias();
}

void Weights::fill_layer(const Options& o, uint32_t index) {
  const uint64_t tensor = 16 + uint64_t{index} * 16;
  LayerWeights& layer = layers_[index];
  const LayerKind kind = o.kind(index);
  // A gain above 1 makes attention pick tokens instead of averaging all of them, so that far tokens matter.
  layer.in = make_matrix(tensor, o.dim, in_outputs(o, kind), 1.6F);
  layer.out = make_matrix(tensor + 1, o.dim, o.dim, 2.0F);
  layer.gate = make_matrix(tensor + 2, o.dim, o.ffn, 1.4F);
  layer.up = make_matrix(tensor + 3, o.dim, o.ffn, 1.0F);
  layer.down = make_matrix(tensor + 4, o.ffn, o.dim, 1.0F);
  if (kind != LayerKind::recurrent) return;
  for (uint32_t head = 0; head < o.heads; ++head)  // from tens to hundreds of tokens of memory
    layer.decay_bias.push_back(2.0F + 5.0F * static_cast<float>(head) / static_cast<float>(o.heads));
}

Matrix Weights::make_matrix(uint64_t tensor, uint32_t inputs, uint32_t outputs, float gain) {
  Generator generator = generator_of(seed_, tensor);
  std::vector<float>& values = storage_.emplace_back(size_t{inputs} * outputs);
  const float limit = limit_of(inputs, gain);
  for (float& value : values) value = generator.uniform(limit);
  return Matrix{inputs, outputs, values.data()};
}

const float* Weights::embedding(int32_t token) const {
  return &embedding_[static_cast<size_t>(token) * dim_];
}

const float* Weights::position_embedding(uint32_t position) const {
  return &positions_[size_t{position % kPositionPeriod} * dim_];
}

const float* Weights::output_bias(int32_t token) const {
  return &bias_[static_cast<size_t>(token) * kVocabulary];
}

uint64_t Weights::parameters(const Options& o) {
  uint64_t sum = (uint64_t{2} * kVocabulary + kPositionPeriod) * o.dim;
  for (uint32_t layer = 0; layer < o.layers; ++layer)
    sum += uint64_t{o.dim} * (in_outputs(o, o.kind(layer)) + o.dim + 3 * uint64_t{o.ffn});
  return sum;
}

}  // namespace strata::reference
