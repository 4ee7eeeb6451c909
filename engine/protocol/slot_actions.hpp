// SlotActions: SAVE, RESTORE and ERASE lines, one after the other in the order of their lines, because their
// answers name no slot. Writes SESSION and SWAIT while one runs, then its one last line. Ownership: the ports
// outlive it. One thread, the engine loop's.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "core/lines.hpp"
#include "engine/runtime/event_sink.hpp"
#include "tiers/tier_stack.hpp"

namespace strata {

class SlotActions {
 public:
  SlotActions(TierStack& tiers, EventSink& events) : tiers_(tiers), events_(events) {}

  void ask(const lines::SlotAction& action);
  // After each step of the tiers.
  void step();
  // The one that runs ends as soon as it can; those that wait, and those that come, are refused.
  void cancel_all();

  [[nodiscard]] bool open() const { return running_.has_value() || !waiting_.empty(); }
  [[nodiscard]] bool fatal() const { return fatal_; }  // a slot is lost: the engine must end

 private:
  void begin_next();
  void report();
  void answer(const SessionView& view);
  void refuse(SessionFault fault, bool published, const std::string& reason);

  TierStack& tiers_;
  EventSink& events_;
  std::deque<lines::SlotAction> waiting_;
  std::optional<lines::SlotActionKind> running_;
  bool total_said_ = false;
  SessionView::Phase phase_ = SessionView::Phase::moving;
  bool ending_ = false;
  bool fatal_ = false;
};

}  // namespace strata
