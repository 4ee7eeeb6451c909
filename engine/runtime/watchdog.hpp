// Watchdog: notices that the engine loop stands still while a request is open, and calls `on_stuck` once.
// A loop that hangs in a device or system call cannot help itself; ending the process lets the server start a
// new one. Thread-safe. Units: nanoseconds of the monotonic clock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "core/clock.hpp"

namespace strata {

// The decision alone, without a thread.
class ProgressWatch {
 public:
  explicit ProgressWatch(uint64_t allowance_ns) : allowance_ns_(allowance_ns) {}
  // The loop moved on; `open_requests`: somebody waits for it.
  void beat(uint64_t now_ns, bool open_requests);
  [[nodiscard]] bool stuck(uint64_t now_ns) const;

 private:
  const uint64_t allowance_ns_;
  std::atomic<uint64_t> last_beat_ns_{0};
  std::atomic<bool> open_{false};
};

class Watchdog {
 public:
  Watchdog(Clock& clock, uint64_t allowance_ns, std::function<void()> on_stuck);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void beat(bool open_requests) { watch_.beat(clock_.monotonic_ns(), open_requests); }

 private:
  void run(uint64_t period_ns);

  Clock& clock_;
  ProgressWatch watch_;
  std::function<void()> on_stuck_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace strata
