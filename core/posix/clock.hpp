// The system's clocks. Thread-safe.
#pragma once

#include "core/clock.hpp"

namespace strata {

class PosixClock final : public Clock {
 public:
  [[nodiscard]] uint64_t monotonic_ns() override;
  [[nodiscard]] uint64_t wall_ns() override;
};

}  // namespace strata
