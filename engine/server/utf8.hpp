// UTF-8 at the border between tokens and text. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata {

[[nodiscard]] bool is_valid_utf8(std::string_view text);

// Bytes in, whole characters out: an unfinished character at the end is held back until its rest comes, bytes
// that can never become a character are replaced by U+FFFD.
class Utf8Stream {
 public:
  [[nodiscard]] std::string feed(std::string_view bytes);
  [[nodiscard]] std::string finish();  // what was held back, as U+FFFD

 private:
  std::string pending_;
};

[[nodiscard]] std::string to_valid_utf8(std::string_view bytes);

}  // namespace strata
