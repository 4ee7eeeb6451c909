// A request of OpenAI's Responses API → the same request in OpenAI's chat form, which the rest of the server
// reads, and what its answers repeat of it. Errors name the Responses API's keys. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/server/api_error.hpp"

namespace strata {

struct ResponsesRequest {
  std::string chat_json;
  // Members of every response object, as JSON, in their order: what was asked, or what stands for it.
  std::vector<std::pair<std::string, std::string>> echo;
};

ApiResult<ResponsesRequest> chat_from_responses(std::string_view body);

}  // namespace strata
