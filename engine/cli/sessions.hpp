// strata sessions list | info | verify | gc | export: stored conversations, offline. list, info and verify
// never change anything and need no lock; gc takes the folder's lock; export writes one new file. Exit
// status: 0 done, 1 something is bad, cannot be read or written, or is in use, 2 wrong use.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/random.hpp"

namespace CLI {
class App;
}

namespace strata::cli {

enum class SessionsAction : uint8_t { list, info, verify, gc, export_one };

struct SessionsOptions {
  SessionsAction action = SessionsAction::list;
  std::string path;  // a folder; info, verify: also an index or session file
  std::string id;    // info, export in a folder: 16 hex digits or a file name; info: empty: all
  bool json = false;
  bool show_progress = false;  // verify, export: one line on `err` that is rewritten, for terminals
  bool dry_run = false;        // gc
  std::string older_than;      // gc: "30" or "30d" days, "12h", "90m"; empty: age does not matter
  std::optional<uint64_t> budget_mib = std::nullopt;  // gc
  std::string target = {};                            // export
  bool force = false;                                 // export: replaces a file that is there
};

struct SessionsPorts {
  FileSystem& files;
  Clock& clock;
  Random& random;
  std::ostream& out;
  std::ostream& err;
};

[[nodiscard]] int run_sessions(const SessionsOptions& options, const SessionsPorts& ports);

}  // namespace strata::cli
