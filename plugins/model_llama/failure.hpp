// How the code below the table fails: a Failure with its status. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "plugins/sdk/error_text.hpp"
#include "plugins/sdk/failure.hpp"

namespace strata::llama {

using sdk::Failure;
using sdk::raise;

// "what path: reason": the end of the path, and the whole reason wherever the error has room for it.
[[noreturn]] inline void raise_about_file(strata_status status, std::string_view what, std::string_view path,
                                          std::string_view reason) {
  throw Failure(status, sdk::about_file(what, path, reason).c_str());
}

// What a library of llama.cpp said, in one line behind `what`.
[[noreturn]] inline void raise_said(strata_status status, const std::string& what, const char* said) {
  const std::string text = what + ": " + sdk::one_line(said);
  throw Failure(status, sdk::cut_in_the_middle(text, sdk::kErrorRoom).c_str());
}

}  // namespace strata::llama
