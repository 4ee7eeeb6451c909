// A folder with one file that can only be read. Anything that would change it aborts: the code under test
// must not.
#pragma once

#include <algorithm>
#include <cerrno>

#include "core/check.hpp"
#include "core/file_system.hpp"

namespace strata::testing {

class OneFileSystem final : public FileSystem {
 public:
  OneFileSystem(std::string name, const std::vector<std::byte>& bytes)
      : name_(std::move(name)), bytes_(bytes) {}
  [[nodiscard]] int open_files() const { return open_files_; }

  Result<FileHandle> open(const std::string& path, OpenMode mode, Caching) override {
    STRATA_CHECK(mode == OpenMode::read);
    if (!path.ends_with("/" + name_)) return errno_error(ENOENT, path);
    ++open_files_;
    return FileHandle{1};
  }
  void close(FileHandle) override { --open_files_; }
  Result<size_t> read_at(FileHandle, std::span<std::byte> to, uint64_t offset) override {
    if (offset >= bytes_.size()) return size_t{0};
    const size_t length = std::min<size_t>(to.size(), bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), length, to.begin());
    return length;
  }
  Result<FileInfo> info(FileHandle) override { return file_info(); }
  Result<FileInfo> info(const std::string& path) override {
    if (!path.ends_with("/" + name_)) return errno_error(ENOENT, path);
    return file_info();
  }
  Result<std::vector<std::string>> list(const std::string&) override {
    return std::vector<std::string>{name_};
  }
  Result<SpaceInfo> space(const std::string&) override { return SpaceInfo{}; }

  Status write_at(FileHandle, std::span<const std::byte>, uint64_t) override { return refuse(); }
  Status sync_data(FileHandle) override { return refuse(); }
  Status allocate(FileHandle, uint64_t, uint64_t) override { return refuse(); }
  Status punch(FileHandle, uint64_t, uint64_t) override { return refuse(); }
  Status truncate(FileHandle, uint64_t) override { return refuse(); }
  Status rename(const std::string&, const std::string&) override { return refuse(); }
  Status set_modified(const std::string&, int64_t) override { return refuse(); }
  Status unlink(const std::string&) override { return refuse(); }
  Status create_directory(const std::string&) override { return refuse(); }
  Status sync_directory(const std::string&) override { return refuse(); }
  Result<FileHandle> lock(const std::string&) override { return refuse().error(); }
  void unlock(FileHandle) override { (void)refuse(); }

 private:
  [[nodiscard]] FileInfo file_info() const {
    FileInfo info;
    info.size_bytes = bytes_.size();
    info.links = 1;
    info.regular = true;
    return info;
  }
  static Status refuse() {
    STRATA_CHECK(!"the folder is only looked at");
    return errno_error(EROFS, "folder");
  }

  std::string name_;
  const std::vector<std::byte>& bytes_;
  int open_files_ = 0;
};

}  // namespace strata::testing
