// The same numbers for the same seed on every machine (splitmix64). One thread at a time.
#pragma once

#include "core/random.hpp"

namespace strata::testing {

class FakeRandom final : public Random {
 public:
  explicit FakeRandom(uint64_t seed = 1) : state_(seed) {}
  [[nodiscard]] uint64_t next() override {
    state_ += 0x9E3779B97F4A7C15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  [[nodiscard]] uint64_t below(uint64_t limit) { return next() % limit; }

 private:
  uint64_t state_;
};

}  // namespace strata::testing
