// The parts of a chat request that only a model with a chat format of its own can honour: tools, tool_choice,
// response_format. Checked here, understood by Model::chat_format. Included by the request parsers only.
// Pure, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/server/api_request.hpp"
#include "engine/server/json_reader.hpp"

namespace strata {

// Errors are reported through the reader. ChatSupport::text answers 501, but only where the client really
// asked for tools.
void check_tools(JsonReader& request, ChatSupport support);

// The request for Model::chat_format: as received, but for roles that no template knows ("developer",
// "function"), which become those that they mean.
[[nodiscard]] std::string chat_json(const JsonReader& request, std::string_view body);

}  // namespace strata
