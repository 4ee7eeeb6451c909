#include "tiers/ram_tier.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "tiers/part_list.hpp"

namespace strata {

namespace {

uint64_t cost(const Part& part) { return part.ram ? part.ram->bytes().size() : 0; }

// Counts what dropping one image after the other would free, each shared part once.
class FreedBytes {
 public:
  explicit FreedBytes(const std::unordered_map<const Part*, uint32_t>& users) : users_(users) {}
  void add(const Image& image) {
    for (const PartRef& part : image.parts) {
      auto at = users_.find(part.get());
      if (at != users_.end() && ++dropped_[part.get()] == at->second) bytes_ += cost(*part);
    }
  }
  void add_bytes(uint64_t bytes) { bytes_ += bytes; }
  [[nodiscard]] bool only_slot_left(const Part& part) const {
    auto at = users_.find(&part);
    if (at == users_.end()) return false;
    auto gone = dropped_.find(&part);
    return at->second - (gone == dropped_.end() ? 0 : gone->second) == 1;
  }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  const std::unordered_map<const Part*, uint32_t>& users_;
  std::unordered_map<const Part*, uint32_t> dropped_;
  uint64_t bytes_ = 0;
};

}  // namespace

RamTier::RamTier(const Options& options, PinnedPool& pool, MemoryProbe& probe, OnDrop on_drop)
    : options_(options), pool_(pool), probe_(probe), on_drop_(std::move(on_drop)) {}

void RamTier::hold(const PartRef& part) { ++users_[part.get()]; }

void RamTier::release(const PartRef& part) {
  auto at = users_.find(part.get());
  STRATA_CHECK(at != users_.end());
  if (--at->second > 0) return;
  users_.erase(at);
  part->ram.reset();
}

bool RamTier::droppable(const Entry& entry, bool may_lose) const {
  if (entry.pins > 0 || entry.held_by_user) return false;
  if (target_ == nullptr || may_lose) {
    return target_ == nullptr || target_->spill_state(*entry.image) != SpillState::writing;
  }
  return target_->spill_state(*entry.image) == SpillState::clean || entry.spill_refused;
}

// What must be dropped so that `bytes` fit the budget and at least `reclaim` bytes come from what is held
// now.
std::optional<RamTier::Victims> RamTier::choose_victims(uint64_t bytes, uint64_t reclaim, Loss loss) {
  Victims victims;
  FreedBytes freed(users_);
  const uint64_t left = options_.budget_bytes - std::min(options_.budget_bytes, pool_.in_use_bytes());
  const uint64_t wanted = std::max(bytes > left ? bytes - left : 0, reclaim);
  for (const bool may_lose : {false, true}) {
    for (const Entry& entry : lru_) {
      if (freed.bytes() >= wanted) return victims;
      if (!droppable(entry, may_lose)) continue;
      if (may_lose && droppable(entry, false)) continue;  // chosen in the first pass
      victims.keys.push_back(entry.key);
      freed.add(*entry.image);
    }
    // Without a disk both passes are the same.
    if (target_ == nullptr || !may_lose_ || loss == Loss::forbidden) break;
  }
  if (freed.bytes() >= wanted) return victims;
  std::vector<PartRef> copies;
  if (list_slot_copies_) list_slot_copies_(copies);
  for (const PartRef& part : copies) {
    if (freed.bytes() >= wanted) break;
    if (!part->ram || !freed.only_slot_left(*part)) continue;
    victims.slot_copies.push_back(part);
    freed.add_bytes(cost(*part));
  }
  if (freed.bytes() >= wanted) return victims;
  return std::nullopt;
}

Result<uint64_t> RamTier::short_of_floor(uint64_t bytes) {
  if (options_.min_free_bytes == 0) return uint64_t{0};
  STRATA_ASSIGN(const MemoryState memory, probe_.probe());
  const uint64_t above = memory.available_bytes - std::min(memory.available_bytes, options_.min_free_bytes);
  return bytes > above ? bytes - above : 0;
}

std::optional<SkipReason> RamTier::make_room(uint64_t bytes, Loss loss) {
  if (!on()) return SkipReason::off;
  if (bytes > options_.budget_bytes) return SkipReason::too_large;
  const auto missing = short_of_floor(bytes);
  if (!missing.ok()) return SkipReason::memory_unknown;
  // Kept buffers are paid for already.
  const uint64_t kept = pool_.allocated_bytes() - pool_.in_use_bytes();
  const uint64_t reclaim = *missing > kept ? *missing - kept : 0;
  auto victims = choose_victims(bytes, reclaim, loss);
  if (!victims) return reclaim > 0 ? SkipReason::min_free_ram : SkipReason::budget;
  for (const uint64_t key : victims->keys) {
    const Entry& entry = *find(key);
    const bool clean = target_ != nullptr && target_->spill_state(*entry.image) == SpillState::clean;
    if (target_ != nullptr && !clean) target_->cancel_spill(*entry.image);
    drop(key, clean ? Drop::evicted_clean : Drop::evicted_lost);
  }
  for (const PartRef& part : victims->slot_copies) part->ram.reset();
  // Near the floor what is kept goes back to the system first: the new buffers may be of other sizes.
  if (*missing > 0) pool_.trim(options_.budget_bytes);
  return std::nullopt;
}

bool RamTier::grow_ahead(uint64_t part_bytes) {
  if (!on()) return false;
  const auto missing = short_of_floor(PinnedPool::class_bytes(part_bytes));
  return missing.ok() && *missing == 0 && pool_.grow_ahead(part_bytes);
}

bool RamTier::evict_one(Evict which) {
  for (const Entry& entry : lru_) {
    const bool clean = target_ != nullptr && target_->spill_state(*entry.image) == SpillState::clean;
    if (!droppable(entry, true) || (which == Evict::stored && !clean)) continue;
    if (target_ != nullptr && !clean) target_->cancel_spill(*entry.image);
    drop(entry.key, clean ? Drop::evicted_clean : Drop::evicted_lost);
    return true;
  }
  return false;
}

bool RamTier::has_one_user(const Part& part) const {
  const auto at = users_.find(&part);
  return at != users_.end() && at->second == 1;
}

void RamTier::spill_ahead() {
  if (target_ == nullptr || !on()) return;
  const uint64_t quarter = options_.budget_bytes / 4;
  const uint64_t headroom = std::clamp(2 * largest_park_bytes_, quarter, 2 * quarter);
  FreedBytes freed(users_);
  freed.add_bytes(options_.budget_bytes - std::min(options_.budget_bytes, pool_.in_use_bytes()));
  size_t position = 0;
  const size_t over_count = options_.max_images > 0 && lru_.size() >= options_.max_images
                                ? lru_.size() - options_.max_images + 1
                                : 0;
  for (Entry& entry : lru_) {
    if (freed.bytes() >= headroom && position >= over_count) return;
    ++position;
    if (entry.pins > 0 || entry.held_by_user) continue;
    freed.add(*entry.image);
    if (entry.spill_refused || target_->spill_state(*entry.image) != SpillState::none) continue;
    if (!target_->spill(entry.image)) entry.spill_refused = true;
  }
}

void RamTier::spill_all() {
  if (target_ == nullptr) return;
  // Most recent first: if the disk budget cannot hold all, the youngest conversations are the ones to keep.
  for (auto entry = lru_.rbegin(); entry != lru_.rend(); ++entry) {
    if (entry->spill_refused || target_->spill_state(*entry->image) != SpillState::none) continue;
    if (!target_->spill(entry->image)) entry->spill_refused = true;
  }
}

bool RamTier::is_superseded(const Image& old, const Image& image) const {
  if (old.id == image.id) return true;
  if (old.salt != image.salt || common_prefix(old.span(), image.span()) != old.length()) return false;
  // Any match on the old state is a match on the new one, if the new one can be resumed wherever the old one
  // can.
  return std::all_of(old.parts.begin(), old.parts.end(), [&](const PartRef& part) {
    return part->is_block() || find_checkpoint(image.parts, part->stage, part->first) != nullptr;
  });
}

void RamTier::supersede(const Image& image, uint64_t except_key) {
  std::vector<uint64_t> old;
  for (const Entry& entry : lru_) {
    if (entry.key == except_key || entry.pins > 0 || entry.held_by_user) continue;
    if (is_superseded(*entry.image, image)) old.push_back(entry.key);
  }
  for (const uint64_t key : old) drop_superseded(key);
}

void RamTier::drop_superseded(uint64_t key) {
  if (target_ != nullptr) target_->cancel_spill(*find(key)->image);
  drop(key, Drop::superseded);
}

RamTier::Entry& RamTier::admit(uint64_t key, ImageRef image) {
  for (const PartRef& part : image->parts) {
    STRATA_CHECK(part->ram != nullptr || !part->is_block());  // an old checkpoint may be on disk only
    hold(part);
  }
  Entry entry;
  entry.key = key;
  entry.image = std::move(image);
  lru_.push_back(std::move(entry));
  by_key_[key] = std::prev(lru_.end());
  supersede(*lru_.back().image, key);
  enforce_count();
  return lru_.back();
}

void RamTier::enforce_count() {
  while (options_.max_images > 0 && lru_.size() > options_.max_images) {
    auto victim = lru_.end();
    for (const bool may_lose : {false, true}) {
      victim = std::find_if(lru_.begin(), std::prev(lru_.end()),
                            [&](const Entry& entry) { return droppable(entry, may_lose); });
      if (victim != std::prev(lru_.end())) break;
      victim = lru_.end();
    }
    if (victim == lru_.end()) return;
    const bool clean = target_ != nullptr && target_->spill_state(*victim->image) == SpillState::clean;
    if (target_ != nullptr && !clean) target_->cancel_spill(*victim->image);
    drop(victim->key, clean ? Drop::evicted_clean : Drop::evicted_lost);
  }
}

RamTier::Entry* RamTier::find(uint64_t key) {
  auto at = by_key_.find(key);
  return at == by_key_.end() ? nullptr : &*at->second;
}

RamTier::Entry* RamTier::find(ConversationId id) {
  Entry* newest = nullptr;
  for (Entry& entry : lru_) {
    if (entry.image->id != id) continue;
    if (newest == nullptr || entry.image->generation > newest->image->generation) newest = &entry;
  }
  return newest;
}

void RamTier::touch(uint64_t key) {
  auto at = by_key_.find(key);
  STRATA_CHECK(at != by_key_.end());
  lru_.splice(lru_.end(), lru_, at->second);
}

void RamTier::unpin(uint64_t key) {
  Entry* entry = find(key);
  STRATA_CHECK(entry != nullptr && entry->pins > 0);
  --entry->pins;
  if (entry->pins == 0 && !entry->held_by_user && find(entry->image->id) != entry) drop_superseded(key);
}

void RamTier::drop(uint64_t key, Drop why) {
  auto at = by_key_.find(key);
  STRATA_CHECK(at != by_key_.end());
  const Entry entry = *at->second;
  lru_.erase(at->second);
  by_key_.erase(at);
  for (const PartRef& part : entry.image->parts) release(part);
  on_drop_(entry, why);
}

}  // namespace strata
