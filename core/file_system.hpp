// Port: files and folders. Opening never follows a link in the last component and yields regular files with
// one link only. Owner-only modes: files 0600, folders 0700. Calls block; the engine loop uses it at start
// and for metadata, the writer thread for everything it writes. Ownership: an open FileHandle belongs to the
// caller until close(). Thread-safety: any thread, one handle on one thread at a time. Errors: not_found,
// exhausted (ENOSPC, EDQUOT), invalid (a link, not a regular file, several links, exists), unavailable
// (locked by another process), unsupported (O_DIRECT, punch, directory sync refused), io.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace strata {

struct FileHandle {
  int value = -1;  // the file descriptor, as the IoQueue port needs it
  [[nodiscard]] explicit operator bool() const { return value >= 0; }
};

enum class OpenMode : uint8_t { read, read_write, create_exclusive };  // create: read_write, must not exist
enum class Caching : uint8_t { buffered, direct };  // direct: O_DIRECT, aligned transfers only

struct FileInfo {
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;  // st_blocks · 512
  uint64_t links = 0;
  int64_t modified_ns = 0;
  bool regular = false;
  bool directory = false;
};

struct SpaceInfo {
  uint64_t free_bytes = 0;  // to an unprivileged user
  uint64_t total_bytes = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<FileHandle> open(const std::string& path, OpenMode mode, Caching caching) = 0;
  virtual void close(FileHandle file) = 0;
  virtual Result<size_t> read_at(FileHandle file, std::span<std::byte> to,
                                 uint64_t offset) = 0;  // short only at the end
  virtual Status write_at(FileHandle file, std::span<const std::byte> from,
                          uint64_t offset) = 0;   // all or an error
  virtual Status sync_data(FileHandle file) = 0;  // a failure is final: never retried, the file is dropped
  virtual Result<FileInfo> info(FileHandle file) = 0;
  virtual Result<FileInfo> info(const std::string& path) = 0;                      // does not follow links
  virtual Status allocate(FileHandle file, uint64_t offset, uint64_t length) = 0;  // grows the file if needed
  virtual Status punch(FileHandle file, uint64_t offset, uint64_t length) = 0;     // keeps the size
  virtual Status truncate(FileHandle file, uint64_t length) = 0;

  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status unlink(const std::string& path) = 0;
  // FileInfo::modified_ns of a file or link; not flushed.
  virtual Status set_modified(const std::string& path, int64_t modified_ns) = 0;
  virtual Status create_directory(
      const std::string& path) = 0;  // one level, 0700; existing directory is fine
  virtual Status sync_directory(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> list(
      const std::string& path) = 0;  // names, unsorted, without . and ..
  virtual Result<SpaceInfo> space(const std::string& path) = 0;

  // flock on `path` (created 0600 if missing); unavailable when another process holds it. Held until unlock
  // or exit.
  virtual Result<FileHandle> lock(const std::string& path) = 0;
  virtual void unlock(FileHandle lock) = 0;
};

}  // namespace strata
