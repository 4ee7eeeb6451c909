// Files in memory behind the FileSystem port: sparse, with a capacity, links, locks and the refusals of real
// systems. Paths are compared as text ("/a/b"); a parent folder must exist. Thread-safe.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "core/file_system.hpp"

namespace strata::testing {

class FakeFileSystem final : public FileSystem {
 public:
  struct Options {
    uint64_t capacity_bytes = UINT64_MAX;  // of allocated pages, all files together
    bool direct = true;                    // false: O_DIRECT is refused
    bool punch = true;
    bool sync_directory = true;  // false: EINVAL, as some network file systems
  };
  FakeFileSystem();
  explicit FakeFileSystem(Options options);

  // ---- for tests
  void set_capacity(uint64_t bytes);
  void put(const std::string& path, std::span<const std::byte> bytes);  // creates or replaces
  void put(const std::string& path, std::string_view text) { put(path, std::as_bytes(std::span(text))); }
  [[nodiscard]] std::vector<std::byte> get(const std::string& path) const;  // empty when missing
  [[nodiscard]] bool exists(const std::string& path) const;
  void flip_byte(const std::string& path, uint64_t offset);
  void cut(const std::string& path, uint64_t length);
  void add_symlink(const std::string& path);  // to nowhere in particular
  void add_hard_link(const std::string& path, const std::string& existing);
  void drop_locks();  // what the end of a process does
  [[nodiscard]] uint64_t allocated_bytes() const;
  [[nodiscard]] size_t open_files() const;
  [[nodiscard]] std::vector<std::string> paths() const;  // files, sorted

  // ---- FileSystem
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
  static constexpr uint64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;

  struct File {
    uint64_t size = 0;
    uint64_t links = 1;
    int64_t modified_ns = 0;
    bool symlink = false;
    bool locked = false;
    std::map<uint64_t, std::unique_ptr<Page>> pages;  // null: allocated, zero
  };
  using FileRef = std::shared_ptr<File>;
  struct Open {
    FileRef file;
    bool writable = false;
    bool direct = false;
    bool lock = false;
  };

  Result<FileHandle> open_locked(const std::string& path, bool create, bool exclusive, Open open);
  Result<Open*> opened(FileHandle file);
  Status check_parent(const std::string& path) const;
  Status check_direct(const Open& open, const void* data, uint64_t length, uint64_t offset) const;
  Status reserve_pages(File& file, uint64_t offset, uint64_t length);
  void store(File& file, std::span<const std::byte> from, uint64_t offset);
  [[nodiscard]] static std::vector<std::byte> load(const File& file);
  [[nodiscard]] FileInfo info_of(const File& file) const;
  void shrink(File& file, uint64_t length);
  [[nodiscard]] uint64_t allocated_locked() const;
  [[nodiscard]] File& existing(const std::string& path);

  mutable std::mutex mutex_;
  Options options_;
  std::map<std::string, FileRef> files_;
  std::set<std::string> folders_{"/"};
  std::map<int, Open> open_;
  int next_handle_ = 1000;
  int64_t ticks_ns_ = 0;  // modification times only grow
};

}  // namespace strata::testing
