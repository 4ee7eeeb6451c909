#include "plugins/model_reference/slot_store.hpp"

#include <algorithm>

#include "plugins/model_reference/failure.hpp"

namespace strata::reference {
namespace {

unsigned long long wide(uint64_t value) { return value; }  // for %llu

}  // namespace

SlotStore::SlotStore(const Options& options, const StateLayout& layout, BoundDevice device)
    : options_(options), layout_(layout), device_(std::move(device)) {}

SlotStore::~SlotStore() {
  for (const Region& region : regions_) {
    // Nothing may be written into memory that is given back; when the device cannot say, it is lost anyway.
    strata_error ignored = {};
    if (region.recorded) static_cast<void>(device_.wait(region.event, &ignored));
    if (region.event != nullptr) device_.destroy_event(region.event);
    if (region.memory != nullptr) device_.free(region.memory);
  }
}

strata_status SlotStore::allocate(strata_error* error) {
  slots_.resize(options_.slots);
  for (uint32_t i = 0; i < options_.slots + kStagedImports; ++i) {
    Region& region = regions_.emplace_back();
    strata_status status = device_.allocate(layout_.region_bytes(), region.memory, error);
    if (status == STRATA_OK) status = device_.create_event(region.event, error);
    if (status != STRATA_OK) return status;
    if (i < options_.slots)
      slots_[i].region = i;
    else
      spare_.push_back(i);
  }
  return STRATA_OK;
}

std::byte* SlotStore::region(int32_t slot) const {
  return regions_[slots_[static_cast<size_t>(slot)].region].memory;
}

uint32_t SlotStore::blocks_of(uint32_t tokens) const {
  return (tokens + options_.tokens_per_block - 1) / options_.tokens_per_block;
}

strata_status SlotStore::check_range(uint32_t stage, uint32_t first, uint32_t count,
                                     strata_error* error) const {
  if (options_.whole) return fail(error, STRATA_UNSUPPORTED, "the state has no blocks");
  if (stage >= options_.stages)
    return fail(error, STRATA_INVALID, "stage %u of %u does not exist", stage, options_.stages);
  if (first % options_.tokens_per_block != 0 || count == 0 || count > options_.tokens_per_block)
    return fail(error, STRATA_INVALID, "tokens [%u, +%u) are not a block of at most %u", first, count,
                options_.tokens_per_block);
  return STRATA_OK;
}

strata_status SlotStore::export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count, void* to,
                                      uint64_t capacity, void* stream, strata_error* error) {
  if (!is_slot(slot)) return fail(error, STRATA_INVALID, "slot %d does not exist", slot);
  if (const strata_status status = check_range(stage, first, count, error); status != STRATA_OK)
    return status;
  if (uint64_t{first} + count > length(slot))
    return fail(error, STRATA_INVALID, "block [%u, +%u) ends beyond the slot's %u tokens", first, count,
                length(slot));
  const uint64_t bytes = layout_.block_bytes(count);
  if (capacity != bytes)
    return fail(error, STRATA_INVALID, "block of %u tokens has %llu bytes, not %llu", count, wide(bytes),
                wide(capacity));
  return device_.read(region(slot), static_cast<std::byte*>(to), layout_.block(stage, first, count, count),
                      stream, error);
}

strata_status SlotStore::export_checkpoint(int32_t slot, uint32_t stage, void* to, uint64_t capacity,
                                           void* stream, uint64_t* bytes, strata_error* error) {
  if (!is_slot(slot)) return fail(error, STRATA_INVALID, "slot %d does not exist", slot);
  if (!options_.needs_checkpoints()) return fail(error, STRATA_UNSUPPORTED, "the state has no checkpoints");
  if (stage >= options_.stages)
    return fail(error, STRATA_INVALID, "stage %u of %u does not exist", stage, options_.stages);
  if (length(slot) == 0) return fail(error, STRATA_INVALID, "slot %d is empty", slot);
  const uint64_t need = layout_.checkpoint_bytes(length(slot));
  if (capacity < need)
    return fail(error, STRATA_INVALID, "checkpoint has %llu bytes, more than the %llu there is room for",
                wide(need), wide(capacity));
  *bytes = need;
  return device_.read(region(slot), static_cast<std::byte*>(to), layout_.checkpoint(stage, length(slot)),
                      stream, error);
}

strata_status SlotStore::begin(int32_t slot, uint32_t tokens, uint64_t* id, strata_error* error) {
  if (!is_slot(slot)) return fail(error, STRATA_INVALID, "slot %d does not exist", slot);
  if (tokens == 0 || tokens > options_.context)
    return fail(error, STRATA_INVALID, "import of %u tokens into a context of %u", tokens, options_.context);
  for (const Import& open : imports_)
    if (open.slot == slot) return fail(error, STRATA_INVALID, "slot %d already has an open import", slot);
  if (spare_.empty()) return fail(error, STRATA_UNAVAILABLE, "%u imports are already open", kStagedImports);
  Import import;
  import.id = next_import_;
  import.slot = slot;
  import.region = spare_.back();
  import.tokens = tokens;
  import.blocks.resize(options_.whole ? 0 : size_t{options_.stages} * blocks_of(tokens));
  import.checkpoints.resize(options_.stages);
  Region& region = regions_[import.region];
  // An error means that the earlier import's copies failed: they ended all the same, and will be overwritten.
  strata_error ignored = {};
  if (region.recorded) static_cast<void>(device_.wait(region.event, &ignored));
  region.recorded = false;
  imports_.push_back(std::move(import));
  spare_.pop_back();
  *id = next_import_++;
  return STRATA_OK;
}

strata_status SlotStore::add_block(uint64_t id, uint32_t stage, uint32_t first, uint32_t count,
                                   const void* from, uint64_t bytes, void* stream, strata_error* error) {
  Import* import = find(id);
  if (import == nullptr) return fail(error, STRATA_INVALID, "import %llu is not open", wide(id));
  if (const strata_status status = check_range(stage, first, count, error); status != STRATA_OK)
    return status;
  if (first >= import->tokens)
    return fail(error, STRATA_INVALID, "block at %u lies beyond the import's %u tokens", first,
                import->tokens);
  if (bytes != layout_.block_bytes(count))
    return fail(error, STRATA_INVALID, "block of %u tokens has %llu bytes, not %llu", count,
                wide(layout_.block_bytes(count)), wide(bytes));
  const uint32_t used = std::min(count, import->tokens - first);
  uint32_t& held =
      import->blocks[size_t{stage} * blocks_of(import->tokens) + first / options_.tokens_per_block];
  held = 0;  // a block that comes again and fails may be half overwritten
  const strata_status status = take(*import, from, layout_.block(stage, first, count, used), stream, error);
  if (status == STRATA_OK) held = used;
  return status;
}

strata_status SlotStore::add_checkpoint(uint64_t id, uint32_t stage, uint32_t position, const void* from,
                                        uint64_t bytes, void* stream, strata_error* error) {
  Import* import = find(id);
  if (import == nullptr) return fail(error, STRATA_INVALID, "import %llu is not open", wide(id));
  if (!options_.needs_checkpoints()) return fail(error, STRATA_UNSUPPORTED, "the state has no checkpoints");
  if (stage >= options_.stages)
    return fail(error, STRATA_INVALID, "stage %u of %u does not exist", stage, options_.stages);
  if (position != import->tokens)
    return fail(error, STRATA_INVALID, "checkpoint at %u, but the import ends at %u", position,
                import->tokens);
  if (bytes != layout_.checkpoint_bytes(position))
    return fail(error, STRATA_INVALID, "checkpoint at %u has %llu bytes, not %llu", position,
                wide(layout_.checkpoint_bytes(position)), wide(bytes));
  import->checkpoints[stage] = 0;
  const strata_status status = take(*import, from, layout_.checkpoint(stage, position), stream, error);
  if (status == STRATA_OK) import->checkpoints[stage] = 1;
  return status;
}

// The region's event always comes after every copy queued into it, whatever streams they are on.
strata_status SlotStore::take(Import& import, const void* from, std::span<const Segment> segments,
                              void* stream, strata_error* error) {
  Region& region = regions_[import.region];
  if (region.recorded && region.stream != stream)
    if (const strata_status status = device_.stream_wait(stream, region.event, error); status != STRATA_OK)
      return status;
  const strata_status status =
      device_.write(region.memory, static_cast<const std::byte*>(from), segments, stream, error);
  strata_error second = {};  // a copy that failed may have queued some segments: record in any case
  const strata_status recorded = device_.record(region.event, stream, &second);
  region.recorded = region.recorded || recorded == STRATA_OK;
  region.stream = stream;
  if (status != STRATA_OK) return status;
  if (recorded != STRATA_OK && error != nullptr) *error = second;
  return recorded;
}

strata_status SlotStore::check_complete(const Import& import, strata_error* error) const {
  const uint32_t per_stage = blocks_of(import.tokens);
  for (size_t i = 0; i < import.blocks.size(); ++i) {
    const uint32_t first = static_cast<uint32_t>(i % per_stage) * options_.tokens_per_block;
    const uint32_t need = std::min(options_.tokens_per_block, import.tokens - first);
    if (import.blocks[i] < need)
      return fail(error, STRATA_INVALID, "stage %zu: %u of the %u tokens from %u are missing", i / per_stage,
                  need - import.blocks[i], need, first);
  }
  if (!options_.needs_checkpoints()) return STRATA_OK;
  for (size_t stage = 0; stage < import.checkpoints.size(); ++stage)
    if (import.checkpoints[stage] == 0)
      return fail(error, STRATA_INVALID, "stage %zu: the checkpoint at %u is missing", stage, import.tokens);
  return STRATA_OK;
}

strata_status SlotStore::commit(uint64_t id, strata_error* error) {
  Import* import = find(id);
  if (import == nullptr) return fail(error, STRATA_INVALID, "import %llu is not open", wide(id));
  strata_status status = check_complete(*import, error);
  bool done = true;
  Region& region = regions_[import->region];
  if (status == STRATA_OK && region.recorded) status = device_.done(region.event, done, error);
  if (status == STRATA_OK && !done)
    status = fail(error, STRATA_INVALID, "copies of the import are still in flight");
  if (status != STRATA_OK) {
    abort(id);
    return status;
  }
  region.recorded = false;
  Slot& slot = slots_[static_cast<size_t>(import->slot)];
  slot.length = import->tokens;
  std::swap(slot.region, import->region);
  abort(id);  // what is left of the import is the slot's former region
  return STRATA_OK;
}

void SlotStore::abort(uint64_t id) {
  Import* import = find(id);
  if (import == nullptr) return;
  spare_.push_back(import->region);
  imports_.erase(imports_.begin() + (import - imports_.data()));
}

SlotStore::Import* SlotStore::find(uint64_t id) {
  const auto found =
      std::find_if(imports_.begin(), imports_.end(), [id](const Import& i) { return i.id == id; });
  return found == imports_.end() ? nullptr : &*found;
}

}  // namespace strata::reference
