#include "engine/protocol/slot_actions.hpp"

#include <algorithm>
#include <utility>

#include "core/limits.hpp"

namespace strata {

namespace {

constexpr uint64_t kWaitSeconds = 60;
constexpr uint64_t kWaitBytesASecond = 4 * limits::kMiB;
constexpr uint64_t kMaxWaitSeconds = 3600;

SessionRequest::Kind kind_of(lines::SlotActionKind kind) {
  switch (kind) {
    case lines::SlotActionKind::save:
      return SessionRequest::Kind::save;
    case lines::SlotActionKind::restore:
      return SessionRequest::Kind::restore;
    case lines::SlotActionKind::erase:
      break;
  }
  return SessionRequest::Kind::erase;
}

const char* name_of(SessionView::Phase phase) {
  constexpr const char* kNames[] = {"transfer", "validate", "flush", "publish"};
  return kNames[static_cast<size_t>(phase)];
}

uint32_t allowance_seconds(uint64_t bytes) {
  return static_cast<uint32_t>(std::min(kMaxWaitSeconds, kWaitSeconds + bytes / kWaitBytesASecond));
}

}  // namespace

void SlotActions::ask(const lines::SlotAction& action) {
  if (waiting_.size() >= limits::kMaxQueuedRequests)
    return refuse(SessionFault::io, false, "too many slot actions wait");
  waiting_.push_back(action);
  step();
}

void SlotActions::step() {
  while (open()) {
    if (!running_) begin_next();
    if (!running_) continue;
    report();
    if (running_) return;
  }
}

void SlotActions::begin_next() {
  const lines::SlotAction action = std::move(waiting_.front());
  waiting_.pop_front();
  if (ending_) return refuse(SessionFault::io, false, "the engine is shutting down");
  const Status begun = tiers_.begin_session({kind_of(action.kind), action.slot, action.path});
  if (!begun.ok()) {
    const bool theirs = begun.error().code == ErrorCode::invalid;
    return refuse(theirs ? SessionFault::invalid : SessionFault::io, false, begun.error().message);
  }
  running_ = action.kind;
  total_said_ = false;
  phase_ = SessionView::Phase::moving;
}

void SlotActions::report() {
  const std::vector<uint64_t> moved = tiers_.take_session_progress();
  const SessionView& view = *tiers_.session();
  if (view.total_bytes && !total_said_) events_.emit(lines::SessionProgress{0, *view.total_bytes});
  total_said_ = view.total_bytes.has_value();
  for (const uint64_t done : moved) events_.emit(lines::SessionProgress{done, *view.total_bytes});
  // Into the model a state may move in one piece: no line comes meanwhile.
  const bool blocks = view.phase != SessionView::Phase::moving || moved.empty();
  if (view.phase != phase_ && blocks)
    events_.emit(lines::SessionWait{name_of(view.phase), allowance_seconds(view.file_bytes)});
  phase_ = view.phase;
  if (view.state == SessionView::State::waiting || view.state == SessionView::State::running) return;
  answer(view);
  tiers_.end_session();
  running_.reset();
}

void SlotActions::answer(const SessionView& view) {
  const double ms = static_cast<double>(view.duration_ns) / 1e6;
  if (view.state == SessionView::State::fatal) {
    fatal_ = true;
    events_.emit(lines::Fatal{view.reason});
  } else if (view.state == SessionView::State::failed) {
    refuse(view.fault, view.published, view.reason);
  } else if (running_ == lines::SlotActionKind::save) {
    events_.emit(lines::Saved{view.tokens, view.file_bytes, ms});
  } else if (running_ == lines::SlotActionKind::restore) {
    events_.emit(lines::Restored{view.tokens, view.usable_tokens, view.file_bytes, ms});
  } else {
    events_.emit(lines::Erased{view.tokens});
  }
}

void SlotActions::refuse(SessionFault fault, bool published, const std::string& reason) {
  events_.emit(lines::SlotError{to_string(fault), published, reason});
}

void SlotActions::cancel_all() {
  tiers_.cancel_session();
  ending_ = true;
}

}  // namespace strata
