// STRATA_CHECK: a condition only a bug in this program can break. Aborts in every build.
// Never for data, device or disk errors: those are a Result.
#pragma once

namespace strata {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}

#define STRATA_CHECK(condition)                                               \
  do {                                                                        \
    if (!(condition)) ::strata::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
