// The errors of the HTTP API: status, type and message as docs/http-api.md lists them. Values; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace strata {

struct ApiError {
  int status = 500;
  std::string message;
  std::string kind{};                       // slot actions: invalid | storage | memory | io
  bool published = false;                   // slot actions: the new file is in place although the call failed
  std::optional<uint32_t> prompt_tokens{};  // exceed_context_size_error only
  std::optional<uint32_t> context{};
  uint32_t retry_after_s = 0;  // 0: no Retry-After header
};

template <class T>
using ApiResult = tl::expected<T, ApiError>;

[[nodiscard]] ApiError invalid_request(std::string message);  // 400
[[nodiscard]] ApiError not_supported(std::string message);    // 501
[[nodiscard]] ApiError unavailable(std::string message);      // 503
[[nodiscard]] ApiError server_error(std::string message);     // 500
[[nodiscard]] ApiError exceeds_context(uint32_t prompt_tokens, uint32_t context);
// kind is one of the protocol's SERR kinds; anything else is treated as io.
[[nodiscard]] ApiError slot_error(const std::string& kind, bool published, std::string message);

// How a family of clients reads errors: {"error":{"code","message","type"}}, or Anthropic's
// {"type":"error","error":{"type","message"}}.
enum class ErrorShape : uint8_t { openai, anthropic };
[[nodiscard]] ErrorShape error_shape(std::string_view path);  // of the endpoint

[[nodiscard]] const char* error_type(const ApiError& error);  // "invalid_request_error", …
[[nodiscard]] std::string to_json(const ApiError& error, ErrorShape shape = ErrorShape::openai);

}  // namespace strata
