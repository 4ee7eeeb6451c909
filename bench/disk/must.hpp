// A benchmark has nothing to say when a step fails: the error is printed and the program ends.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/result.hpp"

namespace strata::bench {

[[noreturn]] inline void give_up(const Error& error) {
  std::fprintf(stderr, "bench/disk: %s\n", error.message.c_str());
  std::exit(1);
}

inline void must(const Status& status) {
  if (!status.ok()) give_up(status.error());
}

template <class T>
T must(Result<T> result) {
  if (!result.ok()) give_up(result.error());
  return std::move(*result);
}

}  // namespace strata::bench
