// Lets planned calls of any FileSystem fail, be cut short or return damaged bytes. Everything else goes
// through. Thread-safe when the inner one is.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "core/file_system.hpp"

namespace strata::testing {

enum class FileCall : uint8_t {
  open,
  read,
  write,
  sync_data,
  info,
  allocate,
  punch,
  truncate,
  set_modified,
  rename,
  unlink,
  create_directory,
  sync_directory,
  list,
  space,
  lock,
  any,
};
inline constexpr size_t kFileCalls = 17;

struct FileFault {
  FileCall call = FileCall::any;
  uint64_t nth = 1;        // the first call of that kind is 1; with `any`: of all kinds together
  int os_errno = 0;        // the error; 0 with flip_at or keep_bytes alone
  bool and_later = false;  // every call from the nth on
  std::optional<size_t> keep_bytes =
      std::nullopt;  // read: returns at most so many; write: carries out so many, then fails
  std::optional<size_t> flip_at = std::nullopt;  // read: this byte of what was read arrives damaged
};

class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& inner, std::vector<FileFault> plan = {})
      : inner_(inner), plan_(std::move(plan)) {}

  void set_plan(std::vector<FileFault> plan);         // counts start again
  [[nodiscard]] uint64_t calls(FileCall call) const;  // since the plan was set
  [[nodiscard]] uint64_t faults() const;              // that came up

  Result<FileHandle> open(const std::string& path, OpenMode mode, Caching caching) override;
  void close(FileHandle file) override { inner_.close(file); }
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
  void unlock(FileHandle lock) override { inner_.unlock(lock); }

 private:
  std::optional<FileFault> due(FileCall call);  // counts the call
  Status fail_if_due(FileCall call, const std::string& context);

  FileSystem& inner_;
  mutable std::mutex mutex_;
  std::vector<FileFault> plan_;
  std::array<uint64_t, kFileCalls> calls_{};
  uint64_t faults_ = 0;
};

}  // namespace strata::testing
