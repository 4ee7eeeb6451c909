// Anthropic's request body → the same request in OpenAI's chat form, which the rest of the server reads.
// Errors name Anthropic's keys. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "engine/server/api_error.hpp"

namespace strata {

ApiResult<std::string> chat_from_anthropic(std::string_view body);

}  // namespace strata
