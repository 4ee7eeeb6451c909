// Memory as a test says it is. One thread at a time.
#pragma once

#include <functional>

#include "core/memory_probe.hpp"

namespace strata::testing {

class FakeMemoryProbe final : public MemoryProbe {
 public:
  explicit FakeMemoryProbe(uint64_t available_bytes = uint64_t{64} << 30,
                           uint64_t total_bytes = uint64_t{64} << 30)
      : state_{available_bytes, total_bytes} {}
  Result<MemoryState> probe() override {
    if (on_probe) on_probe(state_);
    if (unknown_) return make_error(ErrorCode::unavailable, "available memory: unknown");
    return state_;
  }
  std::function<void(MemoryState&)> on_probe;  // may change what this probe and later ones say
  void set_available(uint64_t bytes) { state_.available_bytes = bytes; }
  void set_unknown(bool unknown) { unknown_ = unknown; }

 private:
  MemoryState state_;
  bool unknown_ = false;
};

}  // namespace strata::testing
