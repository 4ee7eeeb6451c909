#include "tiers/conversation_folder.hpp"

namespace strata {

Status create_conversation_folder(FileSystem& files, const std::string& folder) {
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const Status made = files.create_directory(folder.substr(0, slash));
    if (!made.ok()) return with_context(made.error(), "conversation folder " + folder);
    if (slash == std::string::npos) return {};
  }
}

}  // namespace strata
