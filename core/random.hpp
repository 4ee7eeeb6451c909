// Port: randomness for names (conversation ids, the run number). Not for cryptography. One thread at a time.
#pragma once
#include <cstdint>

namespace strata {

class Random {
 public:
  virtual ~Random() = default;
  [[nodiscard]] virtual uint64_t next() = 0;
};

}  // namespace strata
