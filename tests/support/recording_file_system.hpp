// Writes down every changing call of any FileSystem in words, and watches the crash promise (B-6, invariant
// 4): no index is renamed into its place while a session file or the index itself has bytes that were not
// synced. Thread-safe when the inner one is used by one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/file_system.hpp"

namespace strata::testing {

class RecordingFileSystem final : public FileSystem {
 public:
  explicit RecordingFileSystem(FileSystem& inner) : inner_(inner) {}

  std::vector<std::string> calls;       // "write conv-….sess 4096+8192"; names without folders
  std::vector<std::string> violations;  // renames that published unsynced bytes

  Result<FileHandle> open(const std::string& path, OpenMode mode, Caching caching) override {
    auto handle = inner_.open(path, mode, caching);
    if (!handle.ok()) return handle;
    names_[handle->value] = name_of(path);
    if (mode != OpenMode::read) {
      note(std::string(mode == OpenMode::create_exclusive ? "create " : "open ") + name_of(path) +
           (caching == Caching::direct ? " direct" : ""));
    }
    return handle;
  }
  void close(FileHandle file) override {
    names_.erase(file.value);
    inner_.close(file);
  }
  Result<size_t> read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) override {
    return inner_.read_at(file, to, offset);
  }
  Status write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) override {
    unsynced_.insert(names_[file.value]);
    const bool index =
        names_[file.value].find(".idx") != std::string::npos;  // its length is the codec's matter
    note("write " + names_[file.value] + " " + std::to_string(offset) +
         (index ? "" : "+" + std::to_string(from.size())));
    return inner_.write_at(file, from, offset);
  }
  Status sync_data(FileHandle file) override {
    note("sync " + names_[file.value]);
    Status status = inner_.sync_data(file);
    if (status.ok()) unsynced_.erase(names_[file.value]);
    return status;
  }
  Result<FileInfo> info(FileHandle file) override { return inner_.info(file); }
  Result<FileInfo> info(const std::string& path) override { return inner_.info(path); }
  Status allocate(FileHandle file, uint64_t offset, uint64_t length) override {
    note("allocate " + names_[file.value] + " " + std::to_string(offset) + "+" + std::to_string(length));
    return inner_.allocate(file, offset, length);
  }
  Status punch(FileHandle file, uint64_t offset, uint64_t length) override {
    note("punch " + names_[file.value] + " " + std::to_string(offset) + "+" + std::to_string(length));
    return inner_.punch(file, offset, length);
  }
  Status truncate(FileHandle file, uint64_t length) override {
    note("truncate " + names_[file.value] + " " + std::to_string(length));
    return inner_.truncate(file, length);
  }
  Status set_modified(const std::string& path, int64_t modified_ns) override {
    return inner_.set_modified(path, modified_ns);
  }
  Status rename(const std::string& from, const std::string& to) override {
    note("rename " + name_of(from) + " " + name_of(to));
    if (to.ends_with(".idx") && !unsynced_.empty())
      violations.push_back(*unsynced_.begin() + " before " + calls.back());
    return inner_.rename(from, to);
  }
  Status unlink(const std::string& path) override {
    Status status = inner_.unlink(path);
    note("unlink " + name_of(path) + (status.ok() ? "" : " failed"));
    if (status.ok()) unsynced_.erase(name_of(path));
    return status;
  }
  Status create_directory(const std::string& path) override { return inner_.create_directory(path); }
  Status sync_directory(const std::string& path) override {
    note("sync folder");
    return inner_.sync_directory(path);
  }
  Result<std::vector<std::string>> list(const std::string& path) override { return inner_.list(path); }
  Result<SpaceInfo> space(const std::string& path) override { return inner_.space(path); }
  Result<FileHandle> lock(const std::string& path) override { return inner_.lock(path); }
  void unlock(FileHandle lock) override { inner_.unlock(lock); }

 private:
  static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
  void note(std::string call) { calls.push_back(std::move(call)); }

  FileSystem& inner_;
  std::map<int, std::string> names_;
  std::set<std::string> unsynced_;
};

}  // namespace strata::testing
