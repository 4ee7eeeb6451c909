// Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace strata {

// The text when it is one JSON object, else "{}": a model's answer may hold arguments that are none.
[[nodiscard]] std::string json_object_or_empty(std::string_view text);

}  // namespace strata
