#include "tiers/planner.hpp"

#include <algorithm>

#include "core/limits.hpp"
#include "tiers/part_list.hpp"

namespace strata {

void Ghosts::remember(std::vector<uint64_t> chain, uint32_t length, ReadReason reason) {
  if (reasons_.size() >= limits::kMaxGhosts) {
    index_.erase(reasons_.begin()->first);
    reasons_.erase(reasons_.begin());
  }
  index_.insert(next_key_, std::move(chain), length);
  reasons_[next_key_++] = reason;
}

std::optional<ReadReason> Ghosts::find(TokenSpan prompt, uint64_t salt, uint32_t shared) const {
  const auto found = index_.find(prompt, salt, 1);
  const auto most = std::max_element(found.begin(), found.end(),
                                     [](const auto& a, const auto& b) { return a.at_least < b.at_least; });
  if (most == found.end() || most->at_least <= shared) return std::nullopt;
  return reasons_.at(most->key);
}

struct Planner::Best {
  Plan plan;
  uint64_t recency = 0;        // position among equals: later is more recent
  uint32_t shared = 0;         // longest common prefix with anything
  uint32_t shared_length = 0;  // length of what shares most
  uint32_t limit = 0;          // n − 1

  void share(uint32_t tokens, uint32_t length) {
    if (tokens < shared || (tokens == shared && shared_length <= length)) return;
    shared = tokens;
    shared_length = length;
  }
  // Among equals: a slot that just goes on, RAM, a slot that would lose what it holds, disk.
  [[nodiscard]] static int rank(const Plan& plan) {
    switch (plan.source) {
      case Plan::Source::slot:
        return plan.loses_conversation ? 2 : 0;
      case Plan::Source::ram:
        return 1;
      case Plan::Source::disk:
        return 3;
      case Plan::Source::none:
        break;
    }
    return 4;
  }
  [[nodiscard]] bool improves(const Plan& offer, uint64_t offer_recency) const {
    if (offer.usable_tokens < limits::kMinReuseTokens) return false;
    if (offer.usable_tokens != plan.usable_tokens) return offer.usable_tokens > plan.usable_tokens;
    if (rank(offer) != rank(plan)) return rank(offer) < rank(plan);
    return offer_recency > recency;
  }
  void take(const Plan& offer, uint64_t offer_recency) {
    if (!improves(offer, offer_recency)) return;
    plan = offer;
    recency = offer_recency;
  }
};

Plan Planner::plan(const Request& request) const {
  Best best;
  best.limit = static_cast<uint32_t>(request.prompt.tokens.size()) - 1;
  if (!request.use_cache) return best.plan;
  consider_slots(request, best);
  consider_stored(request, best);
  if (best.plan.needs_body) return best.plan;
  if (cheaper_to_read(best.plan)) {
    best.plan = Plan{};
    best.plan.cause.reason = ReadReason::cheaper_to_read;
    return best.plan;
  }
  best.plan.cause = cause(request, best);
  return best.plan;
}

// Where a state that ends at `shared` tokens or before can be taken up again.
uint32_t Planner::usable_of(std::span<const PartRef> parts, uint32_t shared) const {
  if (!view_.model.needs_checkpoints && view_.model.state_in_blocks) return shared;
  uint32_t usable = 0;
  std::vector<PartRef> at_hand;
  for (const PartRef& part : parts) {
    if (!part->is_block() && (part->ram || part->disk)) at_hand.push_back(part);
  }
  for (const uint32_t position : resume_positions(at_hand)) {
    if (position <= shared) usable = position;
  }
  return usable;
}

void Planner::consider_slots(const Request& request, Best& best) const {
  for (const Slot& slot : view_.slots) {
    if (slot.empty() || slot.salt != request.salt) continue;
    const uint32_t shared = common_prefix(slot.span(), request.prompt);
    best.share(shared, slot.length());
    const bool claimed = request.claimed == slot.id;
    const bool here =
        claimed ? slot.copies_out == 0 : slot.idle() && (!request.only_slot || *request.only_slot == slot.id);
    Plan offer;
    offer.source = Plan::Source::slot;
    offer.slot = slot.id;
    if (here && shared == slot.length() && shared <= best.limit) {
      offer.usable_tokens = shared;
      offer.in_place = true;
    } else if (here && view_.model.can_truncate) {
      offer.usable_tokens = std::min(shared, best.limit);
      offer.in_place = true;
      offer.loses_conversation = shared + 1 < slot.answer_start && !claimed;
      if (offer.loses_conversation && !request.may_cut_slots) continue;
    } else if (view_.can_park && request.may_fork_slots && !slot.placing) {
      offer.usable_tokens = usable_of(slot.parts, std::min(shared, best.limit));
      // An idle slot's own live state becomes a checkpoint by parking it.
      if (slot.idle() && shared == slot.length() && shared <= best.limit) offer.usable_tokens = shared;
    }
    const bool copies = !offer.in_place || offer.loses_conversation;
    if (copies && offer.usable_tokens < view_.model.tokens_per_block) continue;  // nothing whole to share
    best.take(offer, slot.last_used_ns);
  }
}

void Planner::consider_stored(const Request& request, Best& best) const {
  const auto found = view_.index.find(request.prompt, request.salt, limits::kMaxPlanCandidates);
  uint64_t order = found.size();
  for (const PrefixIndex::Candidate& candidate : found) {
    if (candidate.at_most < best.plan.usable_tokens) continue;
    if (request.avoid != nullptr && request.avoid->contains(candidate.key)) continue;
    if (const RamTier::Entry* entry = view_.ram.find(candidate.key)) {
      consider_ram(request, *entry, best);
    } else if (view_.disk != nullptr) {
      if (const DiskTier::Entry* stored = view_.disk->find(candidate.key)) {
        consider_disk(request, *stored, candidate, best);
      }
    }
    --order;
  }
}

void Planner::consider_ram(const Request& request, const RamTier::Entry& entry, Best& best) const {
  if (entry.image->salt != request.salt) return;
  const uint32_t shared = common_prefix(entry.image->span(), request.prompt);
  best.share(shared, entry.image->length());
  Plan offer;
  offer.source = Plan::Source::ram;
  offer.key = entry.key;
  offer.usable_tokens = usable_of(entry.image->parts, std::min(shared, best.limit));
  best.take(offer, entry.image->last_used_ns);
}

void Planner::consider_disk(const Request& request, const DiskTier::Entry& entry,
                            const PrefixIndex::Candidate& candidate, Best& best) const {
  if (entry.head.salt != request.salt || !view_.disk->may_read(entry)) return;
  Plan offer;
  offer.source = Plan::Source::disk;
  offer.key = entry.key;
  if (entry.image) {
    const uint32_t shared = common_prefix(entry.image->span(), request.prompt);
    best.share(shared, entry.image->length());
    offer.usable_tokens = usable_of(entry.image->parts, std::min(shared, best.limit));
  } else {
    if (!request.may_load_bodies) return;
    const uint32_t bound = std::min(candidate.at_most, best.limit);
    offer.needs_body = true;
    offer.usable_tokens = bound;
    if (view_.model.needs_checkpoints || !view_.model.state_in_blocks) {
      offer.usable_tokens = 0;
      for (const uint32_t position : entry.head.resume_positions) {
        if (position <= bound) offer.usable_tokens = position;
      }
    }
    // Less than a chunk in common is not worth reading a body for: any two conversations share their first
    // tokens.
    if (candidate.at_least == 0 && !candidate.whole) return;
  }
  best.take(offer, entry.last_used_ns);
}

bool Planner::cheaper_to_read(const Plan& plan) const {
  if (plan.source != Plan::Source::ram && plan.source != Plan::Source::disk) return false;
  const Image* image = nullptr;
  if (plan.source == Plan::Source::ram) image = view_.ram.find(plan.key)->image.get();
  if (plan.source == Plan::Source::disk) image = view_.disk->find(plan.key)->image.get();
  uint64_t copy_bytes = 0;
  uint64_t disk_bytes = 0;
  for (const PartRef& part : image->parts) {
    const bool needed =
        part->is_block() ? part->first < plan.usable_tokens : part->first == plan.usable_tokens;
    if (!needed) continue;
    copy_bytes += part->bytes;
    if (!part->ram) disk_bytes += part->bytes;
  }
  const uint64_t restore_ns = view_.cost.predict_restore_ns(disk_bytes, copy_bytes);
  if (restore_ns < limits::kMinDecidingNs) return false;
  return view_.cost.cheaper_to_read(disk_bytes, copy_bytes, plan.usable_tokens);
}

ReadCause Planner::cause(const Request& request, const Best& best) const {
  ReadCause cause;
  if (best.plan.usable_tokens >= best.limit) {
    cause.reason = ReadReason::none;
    return cause;
  }
  const uint32_t shared = std::min(best.shared, best.limit);
  const bool cuttable = !view_.model.needs_checkpoints && view_.model.state_in_blocks;
  if (auto ghost = view_.ghosts.find(request.prompt, request.salt, shared)) {
    cause.reason = *ghost;
  } else if (!cuttable && shared > best.plan.usable_tokens && shared >= limits::kMinReuseTokens) {
    cause.reason = ReadReason::no_checkpoint;
  } else if (cuttable && shared >= best.plan.usable_tokens + view_.model.tokens_per_block) {
    cause.reason = ReadReason::evicted;  // only a slot holds it, and no tier had room
  } else if (best.shared < best.shared_length && best.shared >= limits::kMinReuseTokens) {
    cause.reason = ReadReason::prefix_changed;
    cause.at = best.shared;
  } else {
    cause.reason = ReadReason::fresh;
  }
  return cause;
}

}  // namespace strata
