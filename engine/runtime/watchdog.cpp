#include "engine/runtime/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace strata {

void ProgressWatch::beat(uint64_t now_ns, bool open_requests) {
  last_beat_ns_.store(now_ns);
  open_.store(open_requests);
}

bool ProgressWatch::stuck(uint64_t now_ns) const {
  const uint64_t last = last_beat_ns_.load();
  return open_.load() && now_ns > last && now_ns - last > allowance_ns_;
}

Watchdog::Watchdog(Clock& clock, uint64_t allowance_ns, std::function<void()> on_stuck)
    : clock_(clock), watch_(allowance_ns), on_stuck_(std::move(on_stuck)) {
  watch_.beat(clock_.monotonic_ns(), false);
  thread_ = std::thread(
      [this, period = std::clamp<uint64_t>(allowance_ns / 8, 1'000'000, 1'000'000'000)] { run(period); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Watchdog::run(uint64_t period_ns) {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::nanoseconds(period_ns), [this] { return end_; })) {
    if (!watch_.stuck(clock_.monotonic_ns())) continue;
    on_stuck_();
    return;
  }
}

}  // namespace strata
