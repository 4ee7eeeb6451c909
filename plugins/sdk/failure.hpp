// The other way for plugin code to fail: a Failure with its status, thrown, which guard
// (plugins/sdk/guard.hpp) turns into a strata_error at the table. Any thread.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <stdexcept>

#include "plugins/abi/strata_plugin.h"

namespace strata::sdk {

class Failure : public std::runtime_error {
 public:
  Failure(strata_status status, const char* text) : std::runtime_error(text) { error_.code = status; }
  Failure(strata_status status, const strata_error& error)
      : std::runtime_error(error.message), error_(error) {
    error_.code = status;
  }
  [[nodiscard]] strata_status status() const { return error_.code; }
  [[nodiscard]] const strata_error& error() const {
    return error_;
  }  // its message may be empty: what() has it

 private:
  strata_error error_{};
};

[[noreturn, gnu::format(printf, 2, 3)]] inline void raise(strata_status status, const char* format, ...) {
  char text[sizeof(strata_error::message)];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Failure(status, text);
}

// For code of the kind that returns a status and fills an error: body(strata_error*), and a Failure unless it
// is OK.
template <class Body>
void checked(Body&& body) {
  strata_error error = {};
  if (const strata_status status = body(&error); status != STRATA_OK) throw Failure(status, error);
}

}  // namespace strata::sdk
