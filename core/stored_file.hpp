// A file of a conversation folder opened for reading, closed at the end of its scope. Reads are whole or an
// error. Ownership: holds the handle; the FileSystem must outlive it. Thread-safety: one thread at a time.
// Errors: those of the port; not_found for a file that ends too early.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.hpp"
#include "core/result.hpp"

namespace strata {

class StoredFile {
 public:
  static Result<StoredFile> open(FileSystem& files, const std::string& path) {
    STRATA_ASSIGN(const FileHandle handle, files.open(path, OpenMode::read, Caching::buffered));
    return StoredFile(files, handle);
  }
  StoredFile(StoredFile&& other) noexcept
      : files_(other.files_), handle_(std::exchange(other.handle_, FileHandle{})) {}
  StoredFile& operator=(StoredFile&&) = delete;
  ~StoredFile() {
    if (handle_) files_.close(handle_);
  }
  [[nodiscard]] Result<FileInfo> info() const { return files_.info(handle_); }

  // Exactly `bytes` long, or an error.
  [[nodiscard]] Status read(std::span<std::byte> to, uint64_t offset) const {
    STRATA_ASSIGN(const size_t got, files_.read_at(handle_, to, offset));
    if (got == to.size()) return {};
    return make_error(ErrorCode::not_found,
                      fmt::format("ends at {}, {} bytes expected", offset + got, offset + to.size()));
  }
  [[nodiscard]] Result<std::vector<std::byte>> read(uint64_t offset, uint64_t length) const {
    std::vector<std::byte> bytes(length);
    STRATA_TRY(read(std::span(bytes), offset));
    return bytes;
  }

 private:
  StoredFile(FileSystem& files, FileHandle handle) : files_(files), handle_(handle) {}
  FileSystem& files_;
  FileHandle handle_;
};

}  // namespace strata
