// Planner: for one prompt, the best source over all tiers (RAM-3) and why the rest must be read (OBS-1).
// The longest usable prefix wins; ties go to the cheaper tier, then to the more recent. Tokens are compared
// one by one. Reads only; decides nothing about room. One thread at a time.
#pragma once

#include <cstdint>
#include <set>

#include "core/model.hpp"
#include "core/reasons.hpp"
#include "tiers/cost_model.hpp"
#include "tiers/disk_tier.hpp"
#include "tiers/prefix_index.hpp"
#include "tiers/ram_tier.hpp"
#include "tiers/slot_table.hpp"

namespace strata {

struct Plan {
  enum class Source : uint8_t { none, slot, ram, disk } source = Source::none;
  SlotId slot = kNoSlot;  // source slot
  uint64_t key = 0;       // source ram or disk
  uint32_t usable_tokens = 0;
  bool in_place = false;  // source slot: can go on there (after a truncate at most), nothing must be copied
  bool loses_conversation = false;  // in place, but the slot holds more than an answer behind the match
  bool needs_body = false;          // source disk: tokens are not known yet, plan again when they are
  ReadCause cause;
};

// Removed conversations, by prefix, so that a later request learns why it is read again. Bounded.
class Ghosts {
 public:
  void remember(std::vector<uint64_t> chain, uint32_t length, ReadReason reason);
  // The reason of the one that shares most with the prompt, if that is more than `shared` tokens.
  [[nodiscard]] std::optional<ReadReason> find(TokenSpan prompt, uint64_t salt, uint32_t shared) const;
  [[nodiscard]] uint64_t memory_bytes() const { return index_.memory_bytes(); }

 private:
  PrefixIndex index_;
  std::map<uint64_t, ReadReason> reasons_;  // by key, oldest first
  uint64_t next_key_ = 1;
};

class Planner {
 public:
  struct View {
    const ModelInfo& model;
    const SlotTable& slots;
    RamTier& ram;
    DiskTier* disk = nullptr;
    const PrefixIndex& index;
    const Ghosts& ghosts;
    const CostModel& cost;
    bool can_park = false;  // forks of what a slot holds go through the RAM tier
  };
  struct Request {
    TokenSpan prompt;
    bool may_load_bodies = true;  // false: stored conversations whose tokens are not known are left out
    uint64_t salt = 0;
    std::optional<SlotId> only_slot;
    std::optional<SlotId> claimed;  // taken for this request already
    bool use_cache = true;
    bool weigh_cost = true;      // false: restore even where reading is predicted to be cheaper
    bool may_fork_slots = true;  // false: parking the donor was tried and refused
    bool may_cut_slots = true;   // false: not what another conversation holds
    const std::set<uint64_t>* avoid = nullptr;  // keys that failed for this request
  };

  explicit Planner(const View& view) : view_(view) {}
  [[nodiscard]] Plan plan(const Request& request) const;

 private:
  struct Best;
  void consider_slots(const Request& request, Best& best) const;
  void consider_stored(const Request& request, Best& best) const;
  void consider_ram(const Request& request, const RamTier::Entry& entry, Best& best) const;
  void consider_disk(const Request& request, const DiskTier::Entry& entry,
                     const PrefixIndex::Candidate& candidate, Best& best) const;
  [[nodiscard]] uint32_t usable_of(std::span<const PartRef> parts, uint32_t shared) const;
  [[nodiscard]] bool cheaper_to_read(const Plan& plan) const;
  [[nodiscard]] ReadCause cause(const Request& request, const Best& best) const;

  View view_;
};

}  // namespace strata
