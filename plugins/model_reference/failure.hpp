// How this plugin fails: a status code and a message in the caller's strata_error, and no exception beyond
// the table.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>

#include "plugins/abi/strata_plugin.h"

namespace strata::reference {

// Fills `error` (may be null) and returns `code`, so that a caller can write `return fail(…)`.
[[gnu::format(printf, 3, 4)]] inline strata_status fail(strata_error* error, strata_status code,
                                                        const char* format, ...) {
  if (error == nullptr) return code;
  *error = strata_error{};
  error->code = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return code;
}

// Runs one function of the table. Memory that cannot be had is EXHAUSTED, any other exception INTERNAL.
template <class Function>
strata_status guarded(strata_error* error, Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return fail(error, STRATA_EXHAUSTED, "reference model: out of memory");
  } catch (const std::exception& problem) {
    return fail(error, STRATA_INTERNAL, "reference model: %s", problem.what());
  } catch (...) {
    return fail(error, STRATA_INTERNAL, "reference model: unknown exception");
  }
}

}  // namespace strata::reference
