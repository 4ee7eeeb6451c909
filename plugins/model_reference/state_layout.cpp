#include "plugins/model_reference/state_layout.hpp"

#include <algorithm>

namespace strata::reference {

StateLayout::StateLayout(const Options& options) : options_(options) {
  state_bytes_ = uint64_t{options.heads} * options.head_dim() * options.head_dim() * sizeof(float);
  for (uint32_t layer = 0; layer < options.layers; ++layer) {
    const LayerKind kind = options.kind(layer);
    const uint64_t tokens = kind == LayerKind::full ? options.context : ring_tokens();
    const uint64_t half = kind == LayerKind::recurrent ? 0 : tokens * row_bytes();
    offsets_.push_back(region_bytes_);
    values_.push_back(half);
    region_bytes_ += kind == LayerKind::recurrent ? state_bytes_ : 2 * half;
  }
}

uint64_t StateLayout::block_bytes(uint32_t count) const {
  if (options_.whole) return 0;
  const uint32_t full =
      options_.layout == Layout::attention ? options_.layers_per_stage() : options_.layers_per_stage() / 2;
  return uint64_t{2} * full * count * row_bytes();
}

uint64_t StateLayout::checkpoint_bytes(uint32_t position) const {
  uint64_t bytes = 0;
  for (uint32_t layer = 0; layer < options_.layers_per_stage(); ++layer) {
    switch (options_.kind(layer)) {  // every stage has the same kinds in the same order
      case LayerKind::full:
        bytes += options_.whole ? uint64_t{2} * position * row_bytes() : 0;
        break;
      case LayerKind::window:
        bytes += uint64_t{2} * std::min(position, ring_tokens()) * row_bytes();
        break;
      case LayerKind::recurrent:
        bytes += state_bytes_;
        break;
    }
  }
  return bytes;
}

std::vector<Segment> StateLayout::block(uint32_t stage, uint32_t first, uint32_t count, uint32_t take) const {
  std::vector<Segment> segments;
  const uint64_t part = count * row_bytes();
  uint64_t image = 0;
  for (uint32_t i = 0; i < options_.layers_per_stage(); ++i) {
    const uint32_t layer = stage * options_.layers_per_stage() + i;
    if (options_.kind(layer) != LayerKind::full) continue;
    for (const uint64_t region : {keys_offset(layer), values_offset(layer)}) {
      segments.push_back({region + first * row_bytes(), image, take * row_bytes()});
      image += part;
    }
  }
  return segments;
}

std::vector<Segment> StateLayout::checkpoint(uint32_t stage, uint32_t position) const {
  std::vector<Segment> segments;
  uint64_t image = 0;
  for (uint32_t i = 0; i < options_.layers_per_stage(); ++i) {
    const uint32_t layer = stage * options_.layers_per_stage() + i;
    const LayerKind kind = options_.kind(layer);
    if (kind == LayerKind::recurrent) {
      segments.push_back({offsets_[layer], image, state_bytes_});
      image += state_bytes_;
    } else if (kind == LayerKind::window) {
      add_ring(keys_offset(layer), position, image, segments);
      add_ring(values_offset(layer), position, image, segments);
    } else if (options_.whole) {
      for (const uint64_t region : {keys_offset(layer), values_offset(layer)}) {
        segments.push_back({region, image, position * row_bytes()});
        image += position * row_bytes();
      }
    }
  }
  return segments;
}

void StateLayout::add_ring(uint64_t region, uint32_t position, uint64_t& image,
                           std::vector<Segment>& segments) const {
  uint32_t from = position - std::min(position, ring_tokens());
  while (from < position) {
    const uint32_t place = from % ring_tokens();
    const uint32_t run = std::min(position - from, ring_tokens() - place);
    segments.push_back({region + place * row_bytes(), image, run * row_bytes()});
    image += run * row_bytes();
    from += run;
  }
}

}  // namespace strata::reference
