// A clock that moves only when told. Thread-safe, as the port says.
#pragma once

#include <atomic>

#include "core/clock.hpp"

namespace strata::testing {

class FakeClock final : public Clock {
 public:
  [[nodiscard]] uint64_t monotonic_ns() override { return monotonic_ns_.load(); }
  [[nodiscard]] uint64_t wall_ns() override { return wall_ns_.load(); }

  void advance(uint64_t ns) {
    monotonic_ns_ += ns;
    wall_ns_ += ns;
  }
  void set_wall(uint64_t ns) { wall_ns_ = ns; }  // the wall clock may jump

 private:
  std::atomic<uint64_t> monotonic_ns_{1'000'000'000};
  std::atomic<uint64_t> wall_ns_{1'700'000'000'000'000'000};
};

}  // namespace strata::testing
