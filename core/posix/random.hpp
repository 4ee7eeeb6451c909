// Random numbers from the kernel (getrandom). Thread-safe.
#pragma once

#include "core/random.hpp"

namespace strata {

class PosixRandom final : public Random {
 public:
  [[nodiscard]] uint64_t next() override;
};

}  // namespace strata
