// A real folder with many conversations as intake meets it: indexes with true heads and sparse bodies,
// session files that are one hole. Ownership: removed with the object. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/posix/file_system.hpp"

namespace strata::bench {

class StoredFolder {
 public:
  // A new folder under `parent`, with conversations of 200,000 tokens whose last use is their number.
  StoredFolder(const std::string& parent, uint32_t conversations);
  ~StoredFolder();
  StoredFolder(const StoredFolder&) = delete;
  StoredFolder& operator=(const StoredFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] PosixFileSystem& files() { return files_; }
  [[nodiscard]] uint64_t head_bytes() const { return head_bytes_; }  // of each index

 private:
  PosixFileSystem files_;
  std::string path_;
  uint64_t head_bytes_ = 0;
};

// A field of a file under /proc/self, such as VmRSS: in its own unit; 0 when it is not there.
[[nodiscard]] double proc_value(const char* file, const char* format);

}  // namespace strata::bench
