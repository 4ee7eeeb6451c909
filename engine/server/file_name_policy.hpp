// Names of session files that a client may choose (docs/http-api.md): one plain component that means the same
// on every system and cannot leave the folder. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace strata {

inline constexpr size_t kMaxSessionNameBytes = 200;

// Empty when the name is allowed, else why it is not.
[[nodiscard]] std::string refuse_session_name(std::string_view name);

}  // namespace strata
