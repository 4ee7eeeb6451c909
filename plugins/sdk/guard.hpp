// No exception leaves a plugin: guard turns one into a status with its text. Any thread.
#pragma once

#include <exception>
#include <new>

#include "plugins/sdk/error.hpp"

namespace strata::sdk {

// body: a callable that returns strata_status.
template <class Body>
strata_status guard(strata_error* error, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(error, STRATA_EXHAUSTED, "out of memory", ENOMEM);
  } catch (const std::exception& exception) {
    return fail(error, STRATA_INTERNAL, exception.what());
  } catch (...) {
    return fail(error, STRATA_INTERNAL, "unknown exception");
  }
}

}  // namespace strata::sdk
