// No exception leaves a plugin: guard turns one into a status with its text. Any thread.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "plugins/sdk/error.hpp"
#include "plugins/sdk/failure.hpp"

namespace strata::sdk {

// body: a callable that returns strata_status, or nothing and throws when it fails.
template <class Body>
strata_status guard(strata_error* error, Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body&>>) {
      body();
      return STRATA_OK;
    } else {
      return body();
    }
  } catch (const Failure& failure) {
    fail(error, failure.status(), failure.what(), failure.error().os_errno);
    if (error != nullptr) error->vendor_code = failure.error().vendor_code;
    if (error != nullptr) error->flags = failure.error().flags;
    return failure.status();
  } catch (const std::bad_alloc&) {
    return fail(error, STRATA_EXHAUSTED, "out of memory", ENOMEM);
  } catch (const std::exception& exception) {
    return fail(error, STRATA_INTERNAL, exception.what());
  } catch (...) {
    return fail(error, STRATA_INTERNAL, "unknown exception");
  }
}

}  // namespace strata::sdk
