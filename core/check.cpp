// Definitions shared by the vocabulary headers.
#include <cstdio>
#include <cstdlib>

#include "core/check.hpp"

namespace strata {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "strata: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace strata
