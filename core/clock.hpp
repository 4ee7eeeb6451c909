// Port: time. monotonic for durations and deadlines, wall for what is written into files. Thread-safe.
#pragma once
#include <cstdint>

namespace strata {

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual uint64_t monotonic_ns() = 0;
  [[nodiscard]] virtual uint64_t wall_ns() = 0;  // since the Unix epoch; may jump
};

}  // namespace strata
