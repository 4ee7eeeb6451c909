#include "plugins/model_reference/transformer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plugins/model_reference/vocabulary.hpp"

namespace strata::reference {
namespace {

constexpr uint32_t kPassRows = 128;
constexpr uint64_t kWorthThreads = 1024;  // keys seen by a pass below which waking threads costs more
constexpr uint32_t kTileRows =
    16;  // rows of one task: enough to use a panel of weights while it is in the cache

uint32_t tiles(uint32_t rows) { return (rows + kTileRows - 1) / kTileRows; }

uint32_t thread_count(const Options& options) {
  return options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

Transformer::Transformer(const Options& options, const StateLayout& layout, const Kernels& kernels)
    : options_(options),
      layout_(layout),
      kernels_(kernels),
      weights_(options),
      pool_(thread_count(options)),
      scratch_(pool_.workers()) {
  for (uint32_t i = 0; i < options_.layers; ++i)
    in_stride_ = std::max(in_stride_, in_outputs(options_, options_.kind(i)));
  for (Scratch& scratch : scratch_) {
    scratch.norm.resize(size_t{kTileRows} * options_.dim);
    scratch.gate.resize(size_t{kTileRows} * options_.ffn);
    scratch.up.resize(size_t{kTileRows} * options_.ffn);
    scratch.scores.resize(attend_scratch(options_.context));
  }
  x_.resize(size_t{kPassRows} * options_.dim);
  in_.resize(size_t{kPassRows} * in_stride_);
  mixed_.resize(size_t{kPassRows} * options_.dim);
  run_of_row_.resize(kPassRows);
  if (options_.layout == Layout::sliding) {
    const uint64_t tokens = uint64_t{std::min(options_.slots, kPassRows)} * layout_.ring_tokens() + kPassRows;
    keys_.resize(tokens * options_.kv_dim());
    values_.resize(tokens * options_.kv_dim());
  }
  const uint32_t half = options_.head_dim() / 2;
  for (uint32_t position = 0; position < options_.context; ++position) {
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(double{kRopeBase}, -static_cast<double>(i) / half);
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void Transformer::run(std::span<const Row> rows) {
  while (!rows.empty()) {
    const size_t count = std::min<size_t>(rows.size(), kPassRows);
    pass(rows.first(count));
    rows = rows.subspan(count);
  }
}

void Transformer::pass(std::span<const Row> rows) {
  find_runs(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* token = weights_.embedding(rows[i].token);
    const float* position = weights_.position_embedding(rows[i].position);
    for (uint32_t d = 0; d < options_.dim; ++d) x_[i * options_.dim + d] = token[d] + position[d];
  }
  for (uint32_t i = 0; i < options_.layers; ++i) layer(rows, i);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].logits != nullptr) write_logits(rows[i], &x_[i * options_.dim]);
}

void Transformer::find_runs(std::span<const Row> rows) {
  runs_.clear();
  uint32_t linear = 0;
  for (uint32_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].region != rows[i - 1].region) {
      if (i != 0) linear += ring_length(rows[runs_.back().first]) + runs_.back().count;
      runs_.push_back({i, 0, linear});
    }
    ++runs_.back().count;
    run_of_row_[i] = static_cast<uint32_t>(runs_.size()) - 1;
  }
}

void Transformer::layer(std::span<const Row> rows, uint32_t index) {
  const auto count = static_cast<uint32_t>(rows.size());
  const LayerKind kind = options_.kind(index);
  if (kind == LayerKind::window) read_rings(rows, index);
  pool_.run(tiles(count),
            [&](uint32_t tile, uint32_t worker) { project(rows, index, tile, scratch_[worker]); });
  if (kind == LayerKind::recurrent) {
    pool_.run(static_cast<uint32_t>(runs_.size()) * options_.heads, [&](uint32_t task, uint32_t) {
      recur(rows, index, runs_[task / options_.heads], task % options_.heads);
    });
  } else {
    attend_all(rows, index);
  }
  if (kind == LayerKind::window) write_rings(rows, index);
  pool_.run(tiles(count),
            [&](uint32_t tile, uint32_t worker) { combine(count, index, tile, scratch_[worker]); });
}

void Transformer::project(std::span<const Row> rows, uint32_t index, uint32_t tile, Scratch& scratch) {
  const uint32_t first = tile * kTileRows;
  const uint32_t count = std::min(kTileRows, static_cast<uint32_t>(rows.size()) - first);
  const uint32_t dim = options_.dim;
  for (uint32_t r = 0; r < count; ++r)
    kernels_.rms_norm(&x_[size_t{first + r} * dim], dim, &scratch.norm[size_t{r} * dim]);
  kernels_.product(weights_.layer(index).in, scratch.norm.data(), dim, count,
                   &in_[size_t{first} * in_stride_], in_stride_);
  const float scale = 1.0F / std::sqrt(static_cast<float>(options_.head_dim()));
  for (uint32_t r = first; r < first + count; ++r) {
    float* query = &in_[size_t{r} * in_stride_];
    if (options_.kind(index) == LayerKind::recurrent) {
      for (uint32_t i = 0; i < dim; ++i) query[i] *= scale;
      continue;
    }
    rotate(query, options_.heads, rows[r].position, scale);
    rotate(query + dim, options_.kv_heads, rows[r].position, 1.0F);
    place_keys(rows[r], r, index);
  }
}

void Transformer::rotate(float* heads, uint32_t count, uint32_t position, float scale) const {
  const uint32_t half = options_.head_dim() / 2;
  const float* cosine = &cosines_[size_t{position} * half];
  const float* sine = &sines_[size_t{position} * half];
  for (uint32_t h = 0; h < count; ++h, heads += 2 * half) {
    for (uint32_t i = 0; i < half; ++i) {
      const float a = heads[i];
      const float b = heads[i + half];
      heads[i] = (a * cosine[i] - b * sine[i]) * scale;
      heads[i + half] = (a * sine[i] + b * cosine[i]) * scale;
    }
  }
}

// Full layers keep keys and values in the region; window layers in the scratch until the pass has used the
// old ring.
void Transformer::place_keys(const Row& row, uint32_t row_index, uint32_t index) {
  const uint32_t kv_dim = options_.kv_dim();
  const float* keys = &in_[size_t{row_index} * in_stride_ + options_.dim];
  float* key_to = nullptr;
  float* value_to = nullptr;
  if (options_.kind(index) == LayerKind::full) {
    key_to = state(row, layout_.keys_offset(index)) + size_t{row.position} * kv_dim;
    value_to = state(row, layout_.values_offset(index)) + size_t{row.position} * kv_dim;
  } else {
    const Run& run = runs_[run_of_row_[row_index]];
    const uint32_t old = ring_length((&row)[-static_cast<ptrdiff_t>(row_index - run.first)]);
    const size_t at = size_t{run.linear + old + (row_index - run.first)} * kv_dim;
    key_to = &keys_[at];
    value_to = &values_[at];
  }
  std::memcpy(key_to, keys, kv_dim * sizeof(float));
  std::memcpy(value_to, keys + kv_dim, kv_dim * sizeof(float));
}

uint32_t Transformer::parts() const {
  const uint32_t group = options_.heads / options_.kv_heads;
  return options_.kv_heads * ((group + kHeadsAtOnce - 1) / kHeadsAtOnce);
}

void Transformer::attend_all(std::span<const Row> rows, uint32_t index) {
  uint64_t seen = 0;
  for (const Row& row : rows) seen += row.position + 1;
  const auto tasks = static_cast<uint32_t>(rows.size()) * parts();
  const auto task = [&](uint32_t i, uint32_t worker) {
    attend(rows, index, i / parts(), i % parts(), scratch_[worker]);
  };
  if (seen >= kWorthThreads) return pool_.run(tasks, task);
  for (uint32_t i = 0; i < tasks; ++i) task(i, 0);
}

void Transformer::attend(std::span<const Row> rows, uint32_t index, uint32_t row_index, uint32_t part,
                         Scratch& scratch) {
  const Row& row = rows[row_index];
  const uint32_t group = options_.heads / options_.kv_heads;
  const uint32_t kv_head = part * options_.kv_heads / parts();
  const uint32_t first_head = part % (parts() / options_.kv_heads) * kHeadsAtOnce;  // in the group
  const uint32_t kv_dim = options_.kv_dim();
  const size_t head = (size_t{kv_head} * group + first_head) * options_.head_dim();
  AttendCall call;
  call.query = &in_[size_t{row_index} * in_stride_ + head];
  call.stride = kv_dim;
  call.count = row.position + 1;
  call.group = std::min(kHeadsAtOnce, group - first_head);
  call.head_dim = options_.head_dim();
  call.scores = scratch.scores.data();
  call.out = &mixed_[size_t{row_index} * options_.dim + head];
  size_t first = 0;
  if (options_.kind(index) == LayerKind::full) {
    call.keys = state(row, layout_.keys_offset(index));
    call.values = state(row, layout_.values_offset(index));
  } else {
    const Run& run = runs_[run_of_row_[row_index]];
    const uint32_t end = ring_length(rows[run.first]) + (row_index - run.first) + 1;  // in the run's scratch
    call.count = std::min(end, options_.window);
    first = size_t{run.linear + end - call.count} * kv_dim;
    call.keys = keys_.data();
    call.values = values_.data();
  }
  call.keys += first + size_t{kv_head} * options_.head_dim();
  call.values += first + size_t{kv_head} * options_.head_dim();
  kernels_.attend(call);
}

void Transformer::recur(std::span<const Row> rows, uint32_t index, const Run& run, uint32_t head) {
  const uint32_t size = options_.head_dim();
  RecurCall call;
  call.head_dim = size;
  call.state = state(rows[run.first], layout_.keys_offset(index)) + size_t{head} * size * size;
  if (rows[run.first].position == 0) std::fill_n(call.state, size_t{size} * size, 0.0F);
  for (uint32_t r = run.first; r < run.first + run.count; ++r) {
    const float* in = &in_[size_t{r} * in_stride_];
    call.query = in + size_t{head} * size;
    call.key = call.query + options_.dim;
    call.value = call.key + options_.dim;
    call.decay = in[size_t{3} * options_.dim + head] + weights_.layer(index).decay_bias[head];
    call.out = &mixed_[size_t{r} * options_.dim + size_t{head} * size];
    kernels_.recur(call);
    kernels_.rms_norm(call.out, size, call.out);
  }
}

void Transformer::combine(uint32_t rows, uint32_t index, uint32_t tile, Scratch& scratch) {
  const uint32_t first = tile * kTileRows;
  const uint32_t count = std::min(kTileRows, rows - first);
  const uint32_t dim = options_.dim;
  const uint32_t ffn = options_.ffn;
  const LayerWeights& weights = weights_.layer(index);
  float* x = &x_[size_t{first} * dim];
  kernels_.product_add(weights.out, &mixed_[size_t{first} * dim], dim, count, x, dim);
  for (uint32_t r = 0; r < count; ++r)
    kernels_.rms_norm(x + size_t{r} * dim, dim, &scratch.norm[size_t{r} * dim]);
  kernels_.product(weights.gate, scratch.norm.data(), dim, count, scratch.gate.data(), ffn);
  kernels_.product(weights.up, scratch.norm.data(), dim, count, scratch.up.data(), ffn);
  kernels_.gate(scratch.gate.data(), scratch.up.data(), count * ffn);
  kernels_.product_add(weights.down, scratch.gate.data(), ffn, count, x, dim);
}

void Transformer::read_rings(std::span<const Row> rows, uint32_t index) {
  const uint32_t ring = layout_.ring_tokens();
  const size_t kv_dim = options_.kv_dim();
  for (const Run& run : runs_) {
    const Row& row = rows[run.first];
    const float* keys = state(row, layout_.keys_offset(index));
    const float* values = state(row, layout_.values_offset(index));
    const uint32_t length = ring_length(row);
    for (uint32_t i = 0; i < length; ++i) {
      const size_t from = (row.position - length + i) % ring * kv_dim;
      std::copy_n(keys + from, kv_dim, &keys_[(run.linear + i) * kv_dim]);
      std::copy_n(values + from, kv_dim, &values_[(run.linear + i) * kv_dim]);
    }
  }
}

void Transformer::write_rings(std::span<const Row> rows, uint32_t index) {
  const uint32_t ring = layout_.ring_tokens();
  const size_t kv_dim = options_.kv_dim();
  for (const Run& run : runs_) {
    const Row& row = rows[run.first];
    float* keys = state(row, layout_.keys_offset(index));
    float* values = state(row, layout_.values_offset(index));
    const uint32_t old = ring_length(row);
    for (uint32_t i = run.count - std::min(run.count, ring); i < run.count; ++i) {
      const size_t to = (row.position + i) % ring * kv_dim;
      std::copy_n(&keys_[(run.linear + old + i) * kv_dim], kv_dim, keys + to);
      std::copy_n(&values_[(run.linear + old + i) * kv_dim], kv_dim, values + to);
    }
  }
}

void Transformer::write_logits(const Row& row, const float* x) {
  std::vector<float>& norm = scratch_[0].norm;
  kernels_.rms_norm(x, options_.dim, norm.data());
  kernels_.product(weights_.output(), norm.data(), options_.dim, 1, row.logits, kVocabulary);
  const float* bias = weights_.output_bias(row.token);
  for (uint32_t i = 0; i < kVocabulary; ++i) row.logits[i] += bias[i];
}

// Tokens before the pass that a window layer still has.
uint32_t Transformer::ring_length(const Row& first) const {
  return std::min(first.position, layout_.ring_tokens());
}

float* Transformer::state(const Row& row, uint64_t offset) const {
  return reinterpret_cast<float*>(row.region + offset);
}

}  // namespace strata::reference
