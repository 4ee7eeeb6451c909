#include "tiers/conversation_folder.hpp"

namespace strata {

namespace {

// Of an absolute or relative path without a slash at its end.
std::string parent_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status create_conversation_folder(FileSystem& files, const std::string& folder) {
  for (size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string path = folder.substr(0, slash);
    const auto before = files.info(path);
    const Status made = files.create_directory(path);
    if (!made.ok()) return with_context(made.error(), "conversation folder " + folder);
    // What is published must not go with the folder's own name. Whose folder we may not flush keeps its
    // names.
    const bool fresh = !before.ok() && before.error().code == ErrorCode::not_found;
    if (fresh || slash == std::string::npos) (void)files.sync_directory(parent_folder(path));
    if (slash == std::string::npos) return {};
  }
}

}  // namespace strata
