// Port: how much physical RAM is available to this process. One thread at a time.
#pragma once
#include <cstdint>

#include "core/result.hpp"

namespace strata {

struct MemoryState {
  uint64_t available_bytes = 0;  // MemAvailable, or what the cgroup leaves if that is less
  uint64_t total_bytes = 0;      // physical, or the cgroup's limit if lower
};

class MemoryProbe {
 public:
  virtual ~MemoryProbe() = default;
  // unavailable: telemetry cannot be read; callers then refuse to take memory (RAM-1).
  virtual Result<MemoryState> probe() = 0;
};

}  // namespace strata
