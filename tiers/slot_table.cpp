#include "tiers/slot_table.hpp"

namespace strata {

Slot* least_used_idle(SlotTable& slots, SlotId except) {
  Slot* best = nullptr;
  for (Slot& slot : slots) {
    if (!slot.idle()) continue;
    if (best == nullptr) {
      best = &slot;
      continue;
    }
    if ((slot.id == except) != (best->id == except)) {
      if (best->id == except) best = &slot;
      continue;
    }
    if (slot.empty() != best->empty()) {
      if (slot.empty()) best = &slot;
      continue;
    }
    if (slot.last_used_ns < best->last_used_ns) best = &slot;
  }
  return best;
}

}  // namespace strata
