// The operating system's files behind the FileSystem port. Opening resolves the folder part of a path as
// usual and never follows a link in the last component. Every call is repeated when a signal interrupts it,
// except fdatasync's failures, which are final. Thread-safety: as the port says.
#pragma once

#include "core/file_system.hpp"

namespace strata {

class PosixFileSystem final : public FileSystem {
 public:
  // O_DIRECT opens here and fails at the first transfer: from now on it is refused when a file is opened, as
  // other file systems do. Before other threads use this.
  void refuse_direct() { refuses_direct_ = true; }

  Result<FileHandle> open(const std::string& path, OpenMode mode, Caching caching) override;
  void close(FileHandle file) override;
  Result<size_t> read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) override;
  Status write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) override;
  Status sync_data(FileHandle file) override;
  Result<FileInfo> info(FileHandle file) override;
  Result<FileInfo> info(const std::string& path) override;
  Status allocate(FileHandle file, uint64_t offset, uint64_t length) override;
  Status punch(FileHandle file, uint64_t offset, uint64_t length) override;
  Status truncate(FileHandle file, uint64_t length) override;
  Status set_modified(const std::string& path, int64_t modified_ns) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status unlink(const std::string& path) override;
  Status create_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  Result<SpaceInfo> space(const std::string& path) override;
  Result<FileHandle> lock(const std::string& path) override;
  void unlock(FileHandle lock) override;

 private:
  bool refuses_direct_ = false;
};

}  // namespace strata
