// The "messages" of a chat request → turns of plain text, for models without a tool format of their own.
// Included by the request parsers only. Pure, thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "engine/server/json_reader.hpp"

namespace strata {

// What a role is called in a chat template; empty: not a role.
[[nodiscard]] std::string_view template_role(std::string_view role);

// Errors are reported through the reader.
[[nodiscard]] std::vector<ChatMessage> read_messages(JsonReader& request);

}  // namespace strata
