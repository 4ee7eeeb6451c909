#include "plugins/model_llama/retired_cells.hpp"

#include <algorithm>

namespace strata::llama {

RetiredCells::RetiredCells(llama_memory_t memory, llama_seq_id first, uint32_t regions)
    : memory_(memory), crumbs_(first), regions_(regions) {
  for (uint32_t i = 0; i < regions; ++i) regions_[i].sequence = first + 1 + static_cast<llama_seq_id>(i);
}

uint32_t RetiredCells::tokens() const {
  uint32_t sum = crumb_tokens_;
  for (const Region& region : regions_) sum += region.tokens;
  return sum;
}

uint32_t RetiredCells::unwanted() const {
  uint32_t sum = crumb_tokens_;
  for (const Region& region : regions_)
    sum += region.tokens - (region.owner == kNobody ? 0 : std::min(region.tokens, region.expected));
  return sum;
}

bool RetiredCells::owns(llama_seq_id sequence) const {
  return std::ranges::find(regions_, sequence, &Region::owner) != regions_.end();
}

RetiredCells::Region* RetiredCells::owned(llama_seq_id sequence) {
  const auto found = std::ranges::find(regions_, sequence, &Region::owner);
  return found == regions_.end() ? nullptr : &*found;
}

// Where all are in use the smallest that nobody owns becomes crumbs, if it is smaller than what comes.
RetiredCells::Region* RetiredCells::unused(uint32_t count) {
  Region* smallest = nullptr;
  for (Region& region : regions_) {
    if (region.owner != kNobody) continue;
    if (smallest == nullptr || region.tokens < smallest->tokens) smallest = &region;
  }
  if (smallest == nullptr || smallest->tokens >= count) return nullptr;
  if (smallest->tokens > 0) {
    llama_memory_seq_cp(memory_, smallest->sequence, crumbs_, -1, -1);
    llama_memory_seq_rm(memory_, smallest->sequence, -1, -1);
    crumb_tokens_ += smallest->tokens;
    empty(*smallest);
  }
  return smallest;
}

void RetiredCells::empty(Region& region) {
  region.owner = kNobody;
  region.expected = 0;
  region.tokens = 0;
  region.runs.clear();
}

void RetiredCells::move(llama_seq_id from, llama_seq_id to, uint32_t first, uint32_t count) {
  const auto begin = static_cast<llama_pos>(first);
  llama_memory_seq_cp(memory_, from, to, begin, static_cast<llama_pos>(first + count));
  llama_memory_seq_rm(memory_, from, begin, -1);
}

void RetiredCells::retire(llama_seq_id sequence, uint32_t first, uint32_t count) {
  Region* region = owned(sequence);
  if (count == 0) {
    if (first == 0) withdraw(sequence);
    return;
  }
  // What is left of a region comes after what was taken of it, in cells and in positions.
  const bool follows =
      region == nullptr || region->runs.empty() || region->runs.back().first >= first + count;
  if (region == nullptr || !follows) {
    withdraw(sequence);
    region = unused(count);
  }
  if (region == nullptr) {
    move(sequence, crumbs_, first, count);
    crumb_tokens_ += count;
    return;
  }
  move(sequence, region->sequence, first, count);
  region->runs.push_back({first, count});
  region->tokens += count;
  region->expected = 0;
  region->owner = first == 0 ? kNobody : sequence;
}

void RetiredCells::offer(llama_seq_id sequence, uint32_t expected) {
  if (Region* already = owned(sequence)) {
    already->expected = expected;
    return;
  }
  Region* best = nullptr;
  const auto fits = [&](const Region& region) { return region.tokens >= expected; };
  for (Region& region : regions_) {
    if (region.owner != kNobody || region.tokens == 0) continue;
    const bool better = best == nullptr || (fits(*best) ? fits(region) && region.tokens < best->tokens
                                                        : region.tokens > best->tokens);
    if (better) best = &region;
  }
  if (best == nullptr) return;
  best->owner = sequence;
  best->expected = expected;
}

void RetiredCells::make_way(llama_seq_id sequence, uint32_t count) {
  Region* region = owned(sequence);
  if (region == nullptr) return;
  region->expected -= std::min(region->expected, count);
  uint32_t left = std::min(count, region->tokens);
  region->tokens -= left;
  while (left > 0) {
    Run& run = region->runs.back();
    const uint32_t taken = std::min(left, run.count);
    llama_memory_seq_rm(memory_, region->sequence, static_cast<llama_pos>(run.first),
                        static_cast<llama_pos>(run.first + taken));
    run.first += taken;
    run.count -= taken;
    left -= taken;
    if (run.count == 0) region->runs.pop_back();
  }
  if (region->tokens == 0) empty(*region);
}

void RetiredCells::withdraw(llama_seq_id sequence) {
  Region* region = owned(sequence);
  if (region == nullptr) return;
  region->owner = kNobody;
  region->expected = 0;
}

void RetiredCells::hand_over(llama_seq_id from, llama_seq_id to) {
  withdraw(to);
  if (Region* region = owned(from)) region->owner = to;
}

void RetiredCells::release() {
  llama_memory_seq_rm(memory_, crumbs_, -1, -1);
  crumb_tokens_ = 0;
  for (Region& region : regions_) {
    if (region.tokens > 0) llama_memory_seq_rm(memory_, region.sequence, -1, -1);
    empty(region);
  }
}

}  // namespace strata::llama
