// Shorter beginnings of a chat request, for finding out where in the prompt its messages end. Pure,
// thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace strata {

// One request for each count: only its first messages, and "add_generation_prompt": false. `chat_json` was
// checked before.
[[nodiscard]] std::vector<std::string> chat_beginnings(const std::string& chat_json,
                                                       const std::vector<size_t>& counts);

}  // namespace strata
