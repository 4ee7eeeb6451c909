// Result<T>: a value or an Error. Every operation that can fail for a reason outside the program returns one.
// Programmer errors abort instead (check.hpp). Errors carry a context-first message a user can read.
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace strata {

// Stable meanings, the same numbers as strata_status in the plugin ABI (plugins/abi/strata_plugin.h).
enum class ErrorCode : int32_t {
  invalid = 1,      // the caller's or the file's content is wrong
  not_found = 2,    // no such file, slot, conversation
  exhausted = 3,    // a budget, quota, memory or disk is full
  unavailable = 4,  // cannot work here or now (busy, locked, no device)
  unsupported = 5,  // this implementation cannot do it
  corrupt = 6,      // bytes do not match their digest or format
  io = 7,           // the operating system or device reported a failure
  cancelled = 8,
  internal = 9,
};

[[nodiscard]] const char* to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::internal;
  int os_errno = 0;  // 0 when the operating system had no part in it
  std::string message;
};

// "context: message", same code and errno.
[[nodiscard]] Error with_context(Error error, const std::string& context);
// The one place where errno becomes an Error: ENOSPC/EDQUOT → exhausted, ENOENT → not_found, …
[[nodiscard]] Error errno_error(int os_errno, const std::string& context);

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(Error error)
      : tl::expected<T, Error>(tl::unexpect, std::move(error)) {}  // NOLINT: implicit on purpose
  [[nodiscard]] bool ok() const { return this->has_value(); }
};

using Status = Result<void>;

[[nodiscard]] inline Error make_error(ErrorCode code, std::string message) {
  return Error{code, 0, std::move(message)};
}

}  // namespace strata

#define STRATA_CONCAT_INNER(a, b) a##b
#define STRATA_CONCAT(a, b) STRATA_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression to the caller.
#define STRATA_TRY(expression)                                            \
  do {                                                                    \
    auto strata_try_result = (expression);                                \
    if (!strata_try_result.has_value()) return strata_try_result.error(); \
  } while (false)

// STRATA_ASSIGN(auto x, f()): x = value, or returns the error.
#define STRATA_ASSIGN(target, expression)                      \
  auto STRATA_CONCAT(strata_assign_, __LINE__) = (expression); \
  if (!STRATA_CONCAT(strata_assign_, __LINE__).has_value())    \
    return STRATA_CONCAT(strata_assign_, __LINE__).error();    \
  target = std::move(*STRATA_CONCAT(strata_assign_, __LINE__))
