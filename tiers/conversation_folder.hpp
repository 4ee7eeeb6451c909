// The folder of stored conversations: made when it is not there. Errors: those of the port, with the folder's
// name.
#pragma once

#include <string>

#include "core/file_system.hpp"
#include "core/result.hpp"

namespace strata {

// With the folders above it, each 0700. One that is there is fine.
Status create_conversation_folder(FileSystem& files, const std::string& folder);

}  // namespace strata
