// A file that is written under a hidden name and gets its own by rename: whole, or not at all (SES-1).
// Removed at the end of its scope unless it was renamed. Ownership: holds the handle; the FileSystem must
// outlive it. Thread-safety: one thread at a time. Errors: those of the port; exhausted before anything is
// written where space can be taken ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/file_system.hpp"
#include "core/result.hpp"

namespace strata {

// The folder a path lies in; "." without one.
[[nodiscard]] std::string folder_of(const std::string& path);

// Flushes the folder of a file that just got its name. Errors: the file "is written, but may not outlive a
// power loss". A file system that cannot flush folders is no error: its reason is returned then, otherwise
// nothing.
Result<std::string> flush_name(FileSystem& files, const std::string& path);

class TemporaryFile {
 public:
  TemporaryFile(FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { drop(); }

  // Exclusively; takes the space where the file system can.
  Status create(uint64_t length);
  Status write(std::span<const std::byte> bytes, uint64_t offset);
  Status cut(uint64_t length);
  Status sync();  // a failure is final
  // Closes it and gives it its name; the folder is not flushed.
  Status rename_to(const std::string& target);
  // Closes and removes it, unless it has its name.
  void drop();

 private:
  void close();
  FileSystem& files_;
  std::string path_;
  FileHandle handle_;
  bool created_ = false;
};

}  // namespace strata
