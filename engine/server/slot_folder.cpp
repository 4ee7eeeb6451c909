#include "engine/server/slot_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

#include "core/posix/file_system.hpp"
#include "core/temporary_file.hpp"
#include "engine/server/file_name_policy.hpp"
#include "engine/server/utf8.hpp"

namespace strata {
namespace {

constexpr mode_t kFolderMode = 0700;

// A path is the rest of a protocol line, which holds neither control characters nor bytes that are no text.
bool fits_a_line(const std::string& path) {
  const bool plain =
      std::none_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  return plain && is_valid_utf8(path);
}

// What is saved there must not go with the folder's name when the power fails. A file system that cannot
// flush a folder says so at the first save.
Status make_folders(const std::string& path, const std::string& what) {
  PosixFileSystem files;
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), kFolderMode) == 0)
      (void)files.sync_directory(folder_of(folder));
    else if (errno != EEXIST)
      return errno_error(errno, what);
    if (slash == std::string::npos) return {};
  }
}

Result<std::string> real_path(const std::string& path, const std::string& what) {
  const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr), &std::free);
  if (!found) return errno_error(errno, what);
  return std::string(found.get());
}

}  // namespace

Result<SlotFolder> open_slot_folder(const std::string& asked) {
  if (!fits_a_line(asked))
    return make_error(ErrorCode::invalid,
                      "--slot-save-path: the folder's name has control characters or is not valid UTF-8");
  const std::string what = "--slot-save-path " + asked;
  STRATA_TRY(make_folders(asked, what));
  SlotFolder folder;
  STRATA_ASSIGN(folder.path, real_path(asked, what));
  // A link may lead to what the name itself did not show.
  if (!fits_a_line(folder.path) || folder.path.size() + 1 + kMaxSessionNameBytes >= PATH_MAX)
    return make_error(ErrorCode::invalid, what + ": the folder's real path cannot be used");
  struct stat found {};
  if (::stat(folder.path.c_str(), &found) != 0) return errno_error(errno, what);
  if (!S_ISDIR(found.st_mode)) return make_error(ErrorCode::invalid, what + ": is not a folder");
  if (::access(folder.path.c_str(), R_OK | W_OK | X_OK) != 0) return errno_error(errno, what);
  folder.writable_by_others = (found.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return folder;
}

}  // namespace strata
