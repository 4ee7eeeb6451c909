// strata_error → Error, in one place.
#pragma once

#include "core/result.hpp"
#include "plugins/abi/strata_plugin.h"

namespace strata {

[[nodiscard]] inline strata_error empty_abi_error() { return strata_error{}; }

// OK becomes success; otherwise the code, errno and message of `error`, with `what` in front.
[[nodiscard]] inline Status from_abi(strata_status status, const strata_error& error, const char* what) {
  if (status == STRATA_OK) return {};
  const ErrorCode code = status >= STRATA_INVALID && status <= STRATA_INTERNAL ? static_cast<ErrorCode>(status)
                                                                               : ErrorCode::internal;
  std::string message = std::string(what) + ": " + (error.message[0] != '\0' ? error.message : "failed");
  return Error{code, error.os_errno, std::move(message)};
}

}  // namespace strata
