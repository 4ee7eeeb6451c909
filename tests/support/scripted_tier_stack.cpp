#include "tests/support/scripted_tier_stack.hpp"

#include <algorithm>

namespace strata::testing {

Status ScriptedTierStack::admit(TierRequest request) {
  if (request.tokens.empty()) return make_error(ErrorCode::invalid, "the prompt is empty");
  if (request.tokens.size() >= model_.info().context_tokens)
    return make_error(ErrorCode::exhausted, "the prompt is longer than the context");
  const RequestId id = request.id;
  const uint32_t steps = placing_steps.contains(id) ? placing_steps.at(id) : 0;
  requests_[id] = Entry{std::move(request), RequestState::waiting, {}, steps};
  return {};
}

bool ScriptedTierStack::advance(RequestId id, Entry& entry) {
  if (entry.state == RequestState::waiting) {
    for (size_t slot = 0; slot < holders_.size() && entry.state == RequestState::waiting; ++slot) {
      if (holders_[slot] || (entry.request.slot && *entry.request.slot != static_cast<SlotId>(slot)))
        continue;
      holders_[slot] = id;
      if (placements.contains(id)) entry.placement = placements.at(id);
      entry.placement.slot = static_cast<SlotId>(slot);
      entry.state = RequestState::placing;
    }
  }
  if (entry.state != RequestState::placing) return false;
  if (entry.steps_left > 0) return --entry.steps_left, true;
  entry.state = failures.contains(id) ? RequestState::failed : RequestState::serving;
  const Placement& placed = entry.placement;
  model_.set_length(placed.slot, placed.reused_tokens);
  held_tokens[placed.slot].assign(entry.request.tokens.begin(),
                                  entry.request.tokens.begin() + placed.reused_tokens);
  return false;
}

bool ScriptedTierStack::step() {
  on_step();
  bool moving = false;
  for (auto& [id, entry] : requests_) moving = advance(id, entry) || moving;
  if (shutdown_begun && !drain_script.empty()) drain_script.erase(drain_script.begin());
  return moving;
}

void ScriptedTierStack::finish(RequestId id) {
  finished.push_back(id);
  std::ranges::replace(holders_, std::optional(id), std::optional<RequestId>());
  requests_.erase(id);
}

void ScriptedTierStack::appended(SlotId slot, std::span<const Token> tokens) {
  held_tokens[slot].insert(held_tokens[slot].end(), tokens.begin(), tokens.end());
}

TierStatus ScriptedTierStack::status() const {
  TierStatus status;
  for (size_t slot = 0; slot < holders_.size(); ++slot) {
    SlotStatus one;
    one.slot = static_cast<SlotId>(slot);
    one.request = holders_[slot];
    one.tokens = model_.length(one.slot);
    status.slots.push_back(one);
  }
  status.ram_on = true;
  status.ram_budget_bytes = 1024;
  status.disk_off_reason = "no folder";
  return status;
}

Result<uint32_t> ScriptedTierStack::erase(SlotId slot) {
  if (slot < 0 || static_cast<size_t>(slot) >= holders_.size())
    return make_error(ErrorCode::not_found, "no such slot");
  if (holders_[static_cast<size_t>(slot)]) return make_error(ErrorCode::unavailable, "the slot is in use");
  const uint32_t tokens = model_.length(slot);
  model_.set_length(slot, 0);
  return tokens;
}

Status ScriptedTierStack::begin_session(SessionRequest request) {
  if (request.slot < 0 || static_cast<size_t>(request.slot) >= holders_.size())
    return make_error(ErrorCode::invalid, "no such slot");
  session_requests.push_back(request);
  session_.emplace();
  if (request.kind != SessionRequest::Kind::erase) return {};
  const auto erased = erase(request.slot);
  session_->state = erased.ok() ? SessionView::State::done : SessionView::State::failed;
  if (erased.ok()) session_->tokens = *erased;
  return {};
}

std::vector<uint64_t> ScriptedTierStack::take_session_progress() {
  if (!session_ || session_->state == SessionView::State::done) return {};
  if (!session_script.empty()) {
    session_ = session_script.front();
    session_script.erase(session_script.begin());
  }
  return std::exchange(session_->moved_bytes, {});
}

void ScriptedTierStack::cancel_session() {
  if (!session_) return;
  session_script.clear();
  session_->state = SessionView::State::failed;
  session_->reason = "cancelled";
}

Status ScriptedTierStack::forget(ConversationId id) {
  if (std::erase_if(stored, [&](const StoredConversation& one) { return one.id == id; }) == 0)
    return make_error(ErrorCode::not_found, "no such conversation");
  return {};
}

Status ScriptedTierStack::pin(ConversationId id, bool pinned) {
  for (StoredConversation& one : stored) {
    if (one.id != id) continue;
    one.pinned = pinned;
    return {};
  }
  return make_error(ErrorCode::not_found, "no such conversation");
}

}  // namespace strata::testing
