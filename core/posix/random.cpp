#include "core/posix/random.hpp"

#include <sys/random.h>

#include <cerrno>

#include "core/check.hpp"

namespace strata {

uint64_t PosixRandom::next() {
  uint64_t value = 0;
  ssize_t got = 0;
  do {  // requests of up to 256 bytes are never cut short once the pool is ready
    got = getrandom(&value, sizeof value, 0);
  } while (got < 0 && errno == EINTR);
  STRATA_CHECK(got == static_cast<ssize_t>(sizeof value));
  return value;
}

}  // namespace strata
