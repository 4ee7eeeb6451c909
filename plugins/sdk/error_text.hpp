// Fitting what went wrong into the room of a strata_error, in one line, so that what matters stays: the end
// of a path, where the file's name is, and the reason. Cuts are shown as "..." and never fall inside a UTF-8
// character. Lengths in bytes. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "plugins/abi/strata_plugin.h"

namespace strata::sdk {

inline constexpr size_t kErrorRoom = sizeof(strata_error::message) - 1;

// Lines become one, with single spaces; lines that only underline others (of '-', '=' or '^') are left out.
[[nodiscard]] std::string one_line(std::string_view text);

// At most `room` bytes, cut in the middle: a message's beginning says where, its end says why.
[[nodiscard]] std::string cut_in_the_middle(std::string_view text, size_t room);

// At most `room` bytes: the end of the path.
[[nodiscard]] std::string end_of_path(std::string_view path, size_t room);

// "what path: reason" within kErrorRoom, the reason on one line. The path gives way to the reason, down to
// its last kLeastPath bytes; the reason only after that.
inline constexpr size_t kLeastPath = 60;
[[nodiscard]] std::string about_file(std::string_view what, std::string_view path, std::string_view reason);

}  // namespace strata::sdk
