// How this plugin fails: a status code and a message in the caller's strata_error.
#pragma once

#include <cstdarg>
#include <cstdio>

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

}  // namespace strata::reference
