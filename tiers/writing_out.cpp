// Writing out: what goes to the disk before anybody needs its place, as the write policy says, and everything
// at shutdown (DISK-7).
#include <algorithm>

#include "tiers/stack.hpp"

namespace strata {

// --- write policies

void Stack::mark_unwritten(Slot& target) {
  if (target.unwritten) return;
  target.unwritten = true;
  target.unwritten_since_ns = ports_.clock.monotonic_ns();
}

// The write policy allows what has waited since then.
bool Stack::policy_allows(uint64_t since_ns) const {
  if (options_.write_policy == WritePolicy::through) return true;
  const uint64_t now = ports_.clock.monotonic_ns();
  const bool quiet = active_.empty() && now - last_active_ns_ >= limits::kQuietNs;
  return quiet || now - since_ns >= limits::kUnwrittenDeadlineNs;
}

// One idle slot after the other becomes an image; images that are not on the disk follow.
void Stack::step_write_policy() {
  if (!active_.empty()) last_active_ns_ = ports_.clock.monotonic_ns();
  step_background();
  if (options_.write_policy == WritePolicy::evict || !disk_ || !parks()) return;
  // In disk mode a slot is taken for as long as the write takes: not while somebody looks for one.
  const bool placing = std::any_of(active_.begin(), active_.end(),
                                   [](const Active& active) { return active.step != Step::settled; });
  if (options_.disk_mode && placing) return;
  for (Slot& from : slots_) {
    const bool worth_it = from.idle() && from.unwritten && !from.empty() && !from.one_shot;
    if (!background_ && worth_it && policy_allows(from.unwritten_since_ns)) park_in_background(from);
  }
  if (background_ || !spill_due_ns_ || !policy_allows(*spill_due_ns_)) return;
  spill_due_ns_.reset();
  ram_->spill_all();
}

void Stack::park_in_background(Slot& from) {
  from.unwritten = false;  // whatever comes of it: not tried again before it changes
  if (stored_state(from)) return;
  SkipReason why = SkipReason::off;
  background_ = start_parking(from, from.length(), why);
  if (!background_) skip_parking(from, why, 0);
}

void Stack::step_background() {
  if (background_ && !step_parking(*background_)) background_.reset();
}

// A request wants the slot. A copy to RAM is as good as done; what is streamed to the disk can wait.
void Stack::let_background_go(SlotId id) {
  if (background_ == nullptr || background_->slot != id || background_->stream == nullptr) return;
  background_->stream->cancel();
  mark_unwritten(slot(id));
}

// --- shutdown

void Stack::begin_shutdown() {
  if (shutting_down_) return;
  shutting_down_ = true;
  cancel_session();
  if (disk_) {
    disk_->remember_uses();
    disk_->stop_compacting();
  }
  if (disk_ && options_.disk_persist) ram_->keep_unwritten();
  if (disk_) {
    shutdown_base_bytes_ = disk_->done_bytes();
    shutdown_base_count_ = disk_->published_count();
  }
}

void Stack::step_shutdown() {
  if (!disk_ || !active_.empty() || session_running()) return;
  if (!options_.disk_persist) {
    step_background();
    disk_->remove_all();
    return;
  }
  if (!shutdown_parked_ && !park_idle_slots()) return;
  shutdown_parked_ = true;
  ram_->spill_all();
}

// True when every slot was parked, or cannot be.
bool Stack::park_idle_slots() {
  step_background();
  if (background_) return false;
  for (Slot& from : slots_) {
    if (from.empty() || from.one_shot || stored_state(from) || shutdown_tried_.contains(from.id)) continue;
    SkipReason why = SkipReason::off;
    background_ = start_parking(from, from.length(), why);
    if (background_) {
      shutdown_tried_.insert(from.id);
      return false;
    }
    // What is parked already makes room by being written; then this one is tried again.
    ram_->spill_all();
    const bool room_may_come = why == SkipReason::budget || why == SkipReason::min_free_ram;
    if (room_may_come && !disk_->settled()) return false;
    skip_parking(from, why, 0);
    shutdown_tried_.insert(from.id);
  }
  return true;
}

DrainProgress Stack::drain_progress() const {
  DrainProgress progress;
  if (!shutting_down_) return progress;
  if (!disk_) {
    progress.finished = active_.empty() && !session_running();
    return progress;
  }
  progress.done_bytes = disk_->done_bytes() - shutdown_base_bytes_;
  progress.total_bytes = progress.done_bytes + disk_->queue_bytes();
  progress.conversations = static_cast<uint32_t>(disk_->published_count() - shutdown_base_count_);
  const bool parked = !options_.disk_persist || shutdown_parked_;
  const bool removed = options_.disk_persist || disk_->entries().empty();
  progress.finished =
      active_.empty() && !session_running() && parked && removed && !background_ && disk_->settled();
  return progress;
}

}  // namespace strata
