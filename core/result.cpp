#include "core/result.hpp"

#include <cerrno>
#include <system_error>

namespace strata {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid:
      return "invalid";
    case ErrorCode::not_found:
      return "not_found";
    case ErrorCode::exhausted:
      return "exhausted";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::io:
      return "io";
    case ErrorCode::cancelled:
      return "cancelled";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

Error with_context(Error error, const std::string& context) {
  error.message = context + ": " + error.message;
  return error;
}

namespace {
ErrorCode code_of_errno(int os_errno) {
  switch (os_errno) {
    case ENOENT:
      return ErrorCode::not_found;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return ErrorCode::exhausted;
    case EAGAIN:
    case EBUSY:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENODEV:
    case ENXIO:
      return ErrorCode::unavailable;
    case EINVAL:
    case EEXIST:
    case ELOOP:
    case EISDIR:
    case ENOTDIR:
    case ENAMETOOLONG:
      return ErrorCode::invalid;
    case EOPNOTSUPP:
    case ENOSYS:
      return ErrorCode::unsupported;
    case ECANCELED:
      return ErrorCode::cancelled;
    default:
      return ErrorCode::io;
  }
}
}  // namespace

Error errno_error(int os_errno, const std::string& context) {
  return Error{code_of_errno(os_errno), os_errno, context + ": " + std::generic_category().message(os_errno)};
}

}  // namespace strata
