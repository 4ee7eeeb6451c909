// RunClock: the time of one run. It starts at what the wall clock shows and goes on with the monotonic clock,
// so that ages and orders within a run (TTL, least recently used) stay right while the wall clock jumps. What
// is stored carries the wall clock's time; on_the_wall() and of_stored() convert.
//
// Ownership: the clock inside must outlive it. Thread-safety: that of the clock inside. Units: nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.hpp"

namespace strata {

class RunClock final : public Clock {
 public:
  explicit RunClock(Clock& clock)
      : clock_(clock), start_ns_(clock.monotonic_ns()), start_wall_ns_(clock.wall_ns()) {}

  [[nodiscard]] uint64_t monotonic_ns() override { return clock_.monotonic_ns(); }
  // Not below what it was before, whatever the wall clock does.
  [[nodiscard]] uint64_t wall_ns() override { return start_wall_ns_ + (clock_.monotonic_ns() - start_ns_); }

  // What the wall clock, as it goes now, showed at a time of this run.
  [[nodiscard]] uint64_t on_the_wall(uint64_t run_ns) {
    const uint64_t now = wall_ns();
    const uint64_t wall = clock_.wall_ns();
    const uint64_t age = now - std::min(now, run_ns);
    return wall - std::min(wall, age);
  }
  // A stored time as one of this run: nothing was used later than now, whatever the clock of that day said.
  [[nodiscard]] uint64_t of_stored(uint64_t wall_ns_then) { return std::min(wall_ns_then, wall_ns()); }

 private:
  Clock& clock_;
  uint64_t start_ns_;
  uint64_t start_wall_ns_;
};

}  // namespace strata
