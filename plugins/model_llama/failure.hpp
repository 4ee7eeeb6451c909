// How the code below the table fails: a Failure with its status, which the table turns into a strata_error.
// One thread.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "plugins/sdk/error.hpp"

namespace strata::llama {

class Failure : public std::runtime_error {
 public:
  Failure(strata_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  [[nodiscard]] strata_status status() const { return status_; }

 private:
  strata_status status_;
};

[[noreturn, gnu::format(printf, 2, 3)]] inline void fail(strata_status status, const char* format, ...) {
  char text[sizeof(strata_error::message)];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Failure(status, text);
}

// Runs one function of the table.
template <class Body>
strata_status guarded(strata_error* error, Body&& body) noexcept {
  try {
    body();
    return STRATA_OK;
  } catch (const Failure& failure) {
    return sdk::fail(error, failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return sdk::fail(error, STRATA_EXHAUSTED, "out of memory", ENOMEM);
  } catch (const std::exception& problem) {
    return sdk::fail(error, STRATA_INTERNAL, problem.what());
  } catch (...) {
    return sdk::fail(error, STRATA_INTERNAL, "unknown exception");
  }
}

}  // namespace strata::llama
