// Filling a strata_error, for plugin authors. Every function may be given a null error: then only the code is
// returned. Any thread.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "plugins/abi/strata_plugin.h"

namespace strata::sdk {

// Returns code, so that a refusal is one line: return fail(error, STRATA_INVALID, "depth: not a number").
inline strata_status fail(strata_error* error, strata_status code, std::string_view message,
                          int os_errno = 0) {
  if (error == nullptr) return code;
  *error = strata_error{};
  error->code = code;
  error->os_errno = os_errno;
  const size_t length = message.size() < sizeof error->message ? message.size() : sizeof error->message - 1;
  std::memcpy(error->message, message.data(), length);
  return code;
}

// What an errno means to the host, the same as everywhere in Strata: a full resource, something that is not there, not
// possible here or now, wrong in the call, or the system's failure.
[[nodiscard]] inline strata_status status_of_errno(int os_errno) {
  switch (os_errno) {
    case 0: return STRATA_OK;
    case ENOENT: return STRATA_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EFBIG:
    case EMFILE:
    case ENFILE: return STRATA_EXHAUSTED;
    case EAGAIN:
    case EBUSY:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENODEV:
    case ENXIO: return STRATA_UNAVAILABLE;
    case EINVAL:
    case EEXIST: return STRATA_INVALID;
    case ENOSYS:
    case EOPNOTSUPP: return STRATA_UNSUPPORTED;
    case ECANCELED: return STRATA_CANCELLED;
    default: return STRATA_IO;
  }
}

// "context: text of the errno"
inline strata_status fail_errno(strata_error* error, int os_errno, const char* context) {
  char text[sizeof(strata_error::message)];
  std::snprintf(text, sizeof text, "%s: %s", context, strerrordesc_np(os_errno));
  return fail(error, status_of_errno(os_errno), text, os_errno);
}

}  // namespace strata::sdk
