// What is one for the whole process in llama.cpp: its start, its log, and what it complained about. Any
// thread.
#pragma once

#include <string>

#include "plugins/abi/strata_plugin.h"

namespace strata::llama {

// Starts the library once, and sends its lines to this host's log from now on, as debug lines: what matters
// of them is in the errors and lines of this plugin.
void start_library(const strata_host* host);
// The host goes away.
void leave_library(const strata_host* host);

// The first error line since forget_complaint, without its line end: later ones only say that something
// failed. Empty when there was none.
[[nodiscard]] std::string complaint();
void forget_complaint();

}  // namespace strata::llama
