#include "core/posix/clock.hpp"

#include <ctime>

#include "core/check.hpp"

namespace strata {

namespace {
uint64_t now_ns(clockid_t clock) {
  timespec now{};
  STRATA_CHECK(clock_gettime(clock, &now) == 0);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}
}  // namespace

uint64_t PosixClock::monotonic_ns() { return now_ns(CLOCK_MONOTONIC); }
uint64_t PosixClock::wall_ns() { return now_ns(CLOCK_REALTIME); }

}  // namespace strata
