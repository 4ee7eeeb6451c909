// The folder of --slot-save-path, looked at once before the server listens: made when it is not there,
// refused when it cannot be used. Blocking; any thread. Errors: one line that names the option and the
// folder.
#pragma once

#include <string>

#include "core/result.hpp"

namespace strata {

struct SlotFolder {
  std::string path;  // absolute, without links: it goes to the engine, which may stand elsewhere
  bool writable_by_others = false;  // who can put a file there can put a conversation into a slot
};

// With the folders above it, each 0700. One that is there is fine, whatever its mode.
Result<SlotFolder> open_slot_folder(const std::string& asked);

}  // namespace strata
