// strata sessions list | info | verify: stored conversations, looked at offline. Never changes the folder and
// needs no lock. Exit status: 0 done, 1 something is bad or cannot be read, 2 wrong use.
#pragma once

#include <iosfwd>
#include <string>

#include "core/clock.hpp"
#include "core/file_system.hpp"

namespace CLI {
class App;
}

namespace strata::cli {

enum class SessionsAction : uint8_t { list, info, verify };

struct SessionsOptions {
  SessionsAction action = SessionsAction::list;
  std::string path;  // a folder; info: also an index or session file
  std::string id;    // info in a folder: 16 hex digits or a file name; empty: all
  bool json = false;
  bool show_progress = false;  // verify: one line on `err` that is rewritten, for terminals
};

[[nodiscard]] int run_sessions(const SessionsOptions& options, FileSystem& files, Clock& clock,
                               std::ostream& out, std::ostream& err);

}  // namespace strata::cli
