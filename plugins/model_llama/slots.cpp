#include "plugins/model_llama/slots.hpp"

#include <algorithm>
#include <utility>

#include "plugins/model_llama/failure.hpp"

namespace strata::llama {
namespace {

constexpr uint32_t kFewTokens = 1024;  // retired tokens that cost nothing worth speaking of

unsigned long long wide(uint64_t value) { return value; }

// Of cells that can be taken over one by one: a window's or a recurrent state's cannot.
uint32_t regions_of(const Options& options, const StateAbilities& abilities) {
  constexpr uint32_t kMostSequences = 256;  // of llama.cpp
  if (!abilities.blocks || abilities.layout.has_side()) return 0;
  const uint32_t others = 2 + options.slots + options.staged_imports;
  return std::min(2 * (options.slots + options.staged_imports),
                  kMostSequences - std::min(kMostSequences, others));
}

}  // namespace

ContextShape shape_of(const Options& options, const StateAbilities& abilities, uint32_t context_tokens,
                      uint32_t tokens_per_block) {
  ContextShape shape;
  shape.cells = (options.slots + options.staged_imports) * context_tokens + tokens_per_block;
  shape.sequences = 2 + options.slots + options.staged_imports + regions_of(options, abilities);
  shape.outputs = shape.sequences;  // llama.cpp asks for no fewer
  return shape;
}

Slots::Slots(const LoadedModel& model, const Options& options, StateAbilities abilities,
             uint32_t context_tokens, uint32_t tokens_per_block, bool in_order)
    : model_(model),
      abilities_(std::move(abilities)),
      context_tokens_(context_tokens),
      tokens_per_block_(tokens_per_block),
      window_(static_cast<uint32_t>(std::max(0, llama_model_n_swa(model.get())))),
      keeps_order_(abilities_.layout.has_blocks()),
      in_order_(in_order),
      context_(make_context(model, options, shape_of(options, abilities_, context_tokens, tokens_per_block))),
      retired_(llama_get_memory(context_.get()),
               static_cast<llama_seq_id>(options.slots + options.staged_imports + 1),
               regions_of(options, abilities_)),
      state_(context_.get()),
      lengths_(options.slots, 0),
      rows_(options.slots, -1) {
  for (uint32_t i = options.staged_imports; i > 0; --i)
    free_staging_.push_back(static_cast<llama_seq_id>(options.slots + i));
}

void Slots::check_slot(int32_t slot) const {
  if (!is_slot(slot)) raise(STRATA_INVALID, "slot %d does not exist", slot);
}

void Slots::check_stage(uint32_t stage) const {
  if (stage != 0) raise(STRATA_INVALID, "stage %u of 1 does not exist", stage);
}

int32_t Slots::logits_row(int32_t slot) const {
  return is_slot(slot) ? rows_[static_cast<size_t>(slot)] : -1;
}

void Slots::check_item(std::span<const strata_batch_item> items, size_t index) const {
  const strata_batch_item& item = items[index];
  check_slot(item.slot);
  for (size_t i = 0; i < index; ++i)
    if (items[i].slot == item.slot) raise(STRATA_INVALID, "slot %d is twice in the batch", item.slot);
  if (item.token_count == 0) raise(STRATA_INVALID, "slot %d: no tokens", item.slot);
  const uint32_t held = length(item.slot);
  if (item.position != held)
    raise(STRATA_INVALID, "slot %d: position %u, but it holds %u tokens", item.slot, item.position, held);
  if (item.token_count > context_tokens_ - held)
    raise(STRATA_INVALID, "slot %d: %u tokens after %u exceed the context of %u", item.slot, item.token_count,
          held, context_tokens_);
  model_.check_tokens(item.tokens, item.token_count);
}

void Slots::decode(std::span<const strata_batch_item> items, const float** logits) {
  for (size_t i = 0; i < items.size(); ++i) check_item(items, i);
  fill_batch(items);
  if (const int32_t result = run_batch(); result != 0) {
    undo_decode(items);
    raise(result == 1 ? STRATA_EXHAUSTED : STRATA_INTERNAL, "llama.cpp cannot decode the batch (%d)", result);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    lengths_[static_cast<size_t>(items[i].slot)] += items[i].token_count;
    const int32_t row = rows_[static_cast<size_t>(items[i].slot)];
    logits[i] = row < 0 ? nullptr : llama_get_logits_ith(context_.get(), row);
  }
}

// Who takes over cells comes first: the lowest free ones are those that were freed for it.
void Slots::fill_batch(std::span<const strata_batch_item> items) {
  batch_.clear();
  std::fill(rows_.begin(), rows_.end(), -1);
  const strata_batch_item* first = make_way(items);
  if (first != nullptr) add_to_batch(*first);
  for (const strata_batch_item& item : items)
    if (&item != first) add_to_batch(item);
}

void Slots::add_to_batch(const strata_batch_item& item) {
  for (uint32_t t = 0; t < item.token_count; ++t)
    batch_.add(item.tokens[t], item.position + t, sequence(item.slot),
               item.want_logits != 0 && t + 1 == item.token_count);
  if (item.want_logits != 0) rows_[static_cast<size_t>(item.slot)] = batch_.size() - 1;
}

// One of a batch can take over cells: of two it is not known whose lie lower.
const strata_batch_item* Slots::make_way(std::span<const strata_batch_item> items) {
  for (const strata_batch_item& item : items)
    if (length(item.slot) == 0) retired_.offer(sequence(item.slot), item.token_count);
  tidy();
  const strata_batch_item* first = nullptr;
  for (const strata_batch_item& item : items) {
    if (!retired_.owns(sequence(item.slot))) continue;
    if (first == nullptr || item.token_count > first->token_count) first = &item;
  }
  if (first == nullptr) return nullptr;
  for (const strata_batch_item& item : items)
    if (&item != first) retired_.withdraw(sequence(item.slot));
  retired_.make_way(sequence(first->slot), first->token_count);
  return first;
}

int32_t Slots::run_batch() {
  const int32_t result = llama_decode(context_.get(), batch_.view());
  if (result != 1 || retired_.tokens() == 0) return result;
  release_retired();  // no cells: nothing has changed, and now there are some
  return llama_decode(context_.get(), batch_.view());
}

uint32_t Slots::placed_tokens(const Import& import) const {
  return import.placed == 0 ? 0 : (import.placed - 1) * tokens_per_block_ + import.held[import.placed - 1];
}

uint32_t Slots::living() const {
  uint32_t tokens = 0;
  for (const uint32_t length : lengths_) tokens += length;
  for (const Import& import : imports_) tokens += placed_tokens(import);
  return tokens;
}

void Slots::retire(llama_seq_id sequence, uint32_t first, uint32_t count) {
  if (!keeps_order_) return state_.remove(sequence);
  retired_.retire(sequence, first, count);
}

// Before something grows: dead cells cost time with every token, laying anew costs it once.
void Slots::tidy() {
  const uint32_t lives = living();
  const bool free_of_charge = lives == 0 && retired_.tokens() > 0;
  if (gaps_ || free_of_charge || retired_.unwanted() > std::max(lives, kFewTokens)) release_retired();
}

void Slots::release_retired() {
  retired_.release();
  gaps_ = false;
  if (keeps_order_ && in_order_) lay_anew();
}

// The cells that were given back lie among those of what lives. What cannot be laid anew is lost, and says
// so: its slot is empty, its import incomplete.
void Slots::lay_anew() {
  for (size_t slot = 0; slot < lengths_.size(); ++slot) {
    if (lengths_[slot] == 0) continue;
    const uint32_t length = std::exchange(lengths_[slot], 0);
    state_.lay_anew(sequence(static_cast<int32_t>(slot)));
    lengths_[slot] = length;
  }
  for (Import& import : imports_) {
    if (import.placed == 0) continue;
    const uint32_t placed = std::exchange(import.placed, 0);
    state_.lay_anew(import.staging);
    import.placed = placed;
  }
}

// Computed passes of a failed batch remain in the cache.
void Slots::undo_decode(std::span<const strata_batch_item> items) {
  std::fill(rows_.begin(), rows_.end(), -1);
  for (const strata_batch_item& item : items) {
    const bool restored = !abilities_.needs_checkpoints() && state_.cut(sequence(item.slot), item.position);
    const llama_pos last = llama_memory_seq_pos_max(llama_get_memory(context_.get()), sequence(item.slot));
    if (!restored && last + 1 != static_cast<llama_pos>(item.position)) clear(item.slot);
  }
  gaps_ = true;
}

void Slots::truncate(int32_t slot, uint32_t tokens) {
  check_slot(slot);
  const uint32_t held = length(slot);
  if (tokens > held)
    raise(STRATA_INVALID, "slot %d holds %u tokens and cannot be cut to %u", slot, held, tokens);
  if (tokens == held) return;
  if (tokens == 0) return clear(slot);
  // With a window llama.cpp says yes although the tokens before `tokens` are gone, and the next answer is
  // wrong.
  const uint32_t needed_from = window_ > 0 ? tokens - std::min(tokens, window_) : 0;
  const bool in_window = state_.first_position(sequence(slot)) <= static_cast<llama_pos>(needed_from);
  const bool possible = abilities_.blocks && in_window && !llama_model_is_recurrent(model_.get()) &&
                        !llama_model_is_hybrid(model_.get());
  if (!possible)
    raise(STRATA_UNSUPPORTED, "slot %d: this state exists only at %u tokens and cannot be cut to %u", slot,
          held, tokens);
  lengths_[static_cast<size_t>(slot)] = tokens;
  retire(sequence(slot), tokens, held - tokens);
}

void Slots::clear(int32_t slot) {
  check_slot(slot);
  const uint32_t held = length(slot);
  lengths_[static_cast<size_t>(slot)] = 0;
  retire(sequence(slot), 0, held);
}

uint64_t Slots::block_bytes(uint32_t stage, uint32_t count) const {
  return stage == 0 && abilities_.blocks ? abilities_.layout.block.of(count) : 0;
}

void Slots::check_block(uint32_t stage, uint32_t first, uint32_t count) const {
  if (!abilities_.blocks) raise(STRATA_UNSUPPORTED, "the state has no blocks");
  check_stage(stage);
  if (first % tokens_per_block_ != 0 || count == 0 || count > tokens_per_block_)
    raise(STRATA_INVALID, "tokens [%u, +%u) are not a block of at most %u", first, count, tokens_per_block_);
}

void Slots::export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count,
                         std::span<std::byte> to) {
  check_slot(slot);
  check_block(stage, first, count);
  if (uint64_t{first} + count > length(slot))
    raise(STRATA_INVALID, "block [%u, +%u) ends beyond the slot's %u tokens", first, count, length(slot));
  if (to.size() != block_bytes(stage, count))
    raise(STRATA_INVALID, "block of %u tokens has %llu bytes, not %llu", count,
          wide(block_bytes(stage, count)), wide(to.size()));
  state_.export_block(abilities_.layout, sequence(slot), first, count, to);
}

uint64_t Slots::export_checkpoint(int32_t slot, uint32_t stage, std::span<std::byte> to) {
  check_slot(slot);
  if (!abilities_.needs_checkpoints()) raise(STRATA_UNSUPPORTED, "the state has no checkpoints");
  check_stage(stage);
  if (length(slot) == 0) raise(STRATA_INVALID, "slot %d is empty", slot);
  return state_.export_framed(sequence(slot), length(slot), !abilities_.blocks, to);
}

uint64_t Slots::begin(int32_t slot, const int32_t* tokens, uint32_t count) {
  check_slot(slot);
  if (count == 0 || count > context_tokens_)
    raise(STRATA_INVALID, "import of %u tokens into a context of %u", count, context_tokens_);
  model_.check_tokens(tokens, count);
  for (const Import& open : imports_)
    if (open.slot == slot) raise(STRATA_INVALID, "slot %d already has an open import", slot);
  if (free_staging_.empty()) raise(STRATA_UNAVAILABLE, "%zu imports are already open", imports_.size());
  Import import;
  import.id = next_import_++;
  import.slot = slot;
  import.tokens = count;
  import.staging = free_staging_.back();
  const size_t blocks = abilities_.blocks ? (count + tokens_per_block_ - 1) / tokens_per_block_ : 0;
  import.held.resize(blocks);
  import.early.resize(blocks);
  free_staging_.pop_back();
  if (!import.held.empty()) retired_.offer(import.staging, count);
  imports_.push_back(std::move(import));
  tidy();
  return imports_.back().id;
}

Slots::Import& Slots::find(uint64_t id) {
  const auto found = std::ranges::find(imports_, id, &Import::id);
  if (found == imports_.end()) raise(STRATA_INVALID, "import %llu is not open", wide(id));
  return *found;
}

uint32_t Slots::used_tokens(const Import& import, uint32_t block, uint32_t count) const {
  return std::min(count, import.tokens - block * tokens_per_block_);
}

// Cells are given out in the order of import, and attention sums in the order of cells: a block that comes
// before its predecessors waits for them, so that the restored conversation adds up as the stored one did.
void Slots::add_block(uint64_t id, uint32_t stage, uint32_t first, uint32_t count,
                      std::span<const std::byte> from) {
  Import& import = find(id);
  check_block(stage, first, count);
  if (first >= import.tokens)
    raise(STRATA_INVALID, "block at %u lies beyond the import's %u tokens", first, import.tokens);
  if (from.size() != block_bytes(stage, count))
    raise(STRATA_INVALID, "block of %u tokens has %llu bytes, not %llu", count,
          wide(block_bytes(stage, count)), wide(from.size()));
  const uint32_t block = first / tokens_per_block_;
  if (block > import.placed) {
    import.early[block].assign(from.begin(), from.end());
    import.held[block] = used_tokens(import, block, count);
    return;
  }
  place(import, block, count, from);
  place_early(import);
}

void Slots::place(Import& import, uint32_t block, uint32_t count, std::span<const std::byte> from) {
  const uint32_t first = block * tokens_per_block_;
  const bool dead_cells = retired_.tokens() > 0;
  if (block < import.placed) {  // it comes again, and takes the earlier one's place
    llama_memory_seq_rm(llama_get_memory(context_.get()), import.staging, static_cast<llama_pos>(first),
                        static_cast<llama_pos>(first + tokens_per_block_));
    gaps_ = true;
  } else {
    retired_.make_way(import.staging, count);
  }
  import.held[block] = 0;
  try {
    place_block(import, block, count, from);
  } catch (const Failure&) {
    if (!dead_cells) throw;
    release_retired();  // cells may be what was missing; and what was freed for the block is no gap then
    place_block(import, block, count, from);
  }
  import.held[block] = used_tokens(import, block, count);
  import.placed = std::max(import.placed, block + 1);
}

void Slots::place_block(const Import& import, uint32_t block, uint32_t count,
                        std::span<const std::byte> from) {
  const uint32_t used = used_tokens(import, block, count);
  state_.import_block(abilities_.layout, import.staging, block * tokens_per_block_, count, used, from,
                      retired_.crumbs());
  retired_.add_crumbs(count - used);
}

void Slots::place_early(Import& import) {
  while (import.placed < import.early.size() && !import.early[import.placed].empty()) {
    const std::vector<std::byte> bytes = std::move(import.early[import.placed]);
    import.early[import.placed].clear();
    const auto count = static_cast<uint32_t>((bytes.size() - abilities_.layout.block.base) /
                                             abilities_.layout.block.per_token);
    place(import, import.placed, count, bytes);
  }
}

void Slots::add_checkpoint(uint64_t id, uint32_t stage, uint32_t position, std::span<const std::byte> from) {
  Import& import = find(id);
  if (!abilities_.needs_checkpoints()) raise(STRATA_UNSUPPORTED, "the state has no checkpoints");
  check_stage(stage);
  if (position != import.tokens)
    raise(STRATA_INVALID, "checkpoint at %u, but the import ends at %u", position, import.tokens);
  if (!SequenceState::frame_fits(from, position))
    raise(STRATA_INVALID, "%llu bytes are no checkpoint at %u", wide(from.size()), position);
  import.checkpoint.assign(from.begin(), from.end());
}

void Slots::check_complete(const Import& import) const {
  for (uint32_t block = 0; block < import.held.size(); ++block) {
    const uint32_t need = used_tokens(import, block, tokens_per_block_);
    const uint32_t held = block < import.placed ? import.held[block] : 0;
    if (held < need)
      raise(STRATA_INVALID, "%u of the %u tokens from %u are missing", need - held, need,
            block * tokens_per_block_);
  }
  if (abilities_.needs_checkpoints() && import.checkpoint.empty())
    raise(STRATA_INVALID, "the checkpoint at %u is missing", import.tokens);
}

void Slots::place_checkpoint(const Import& import) {
  try {
    state_.import_framed(import.staging, !abilities_.blocks, import.checkpoint);
  } catch (const Failure&) {
    if (retired_.tokens() == 0) throw;
    release_retired();
    state_.import_framed(import.staging, !abilities_.blocks, import.checkpoint);
  }
}

void Slots::commit(uint64_t id) {
  Import& import = find(id);
  try {
    check_complete(import);
    if (!import.checkpoint.empty()) place_checkpoint(import);
  } catch (...) {
    abort(id);
    throw;
  }
  clear(import.slot);
  state_.move(import.staging, sequence(import.slot));
  retired_.hand_over(import.staging, sequence(import.slot));
  lengths_[static_cast<size_t>(import.slot)] = import.tokens;
  rows_[static_cast<size_t>(import.slot)] = -1;
  import.placed = 0;  // nothing is left in the staging sequence
  abort(id);
}

void Slots::abort(uint64_t id) {
  const auto found = std::ranges::find(imports_, id, &Import::id);
  if (found == imports_.end()) return;
  const uint32_t placed = placed_tokens(*found);
  found->placed = 0;
  retire(found->staging, 0, placed);
  free_staging_.push_back(found->staging);
  imports_.erase(found);
}

}  // namespace strata::llama
