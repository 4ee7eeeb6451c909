#include "tests/support/faulty_file_system.hpp"

#include <algorithm>

namespace strata::testing {

void FaultyFileSystem::set_plan(std::vector<FileFault> plan) {
  const std::lock_guard guard(mutex_);
  plan_ = std::move(plan);
  calls_.fill(0);
  faults_ = 0;
}

uint64_t FaultyFileSystem::calls(FileCall call) const {
  const std::lock_guard guard(mutex_);
  return calls_[static_cast<size_t>(call)];
}

uint64_t FaultyFileSystem::faults() const {
  const std::lock_guard guard(mutex_);
  return faults_;
}

std::optional<FileFault> FaultyFileSystem::due(FileCall call) {
  const std::lock_guard guard(mutex_);
  ++calls_[static_cast<size_t>(call)];
  ++calls_[static_cast<size_t>(FileCall::any)];
  for (const FileFault& fault : plan_) {
    const bool same_kind = fault.call == call || fault.call == FileCall::any;
    const uint64_t count = calls_[static_cast<size_t>(fault.call)];
    if (!same_kind || (fault.and_later ? count < fault.nth : count != fault.nth)) continue;
    ++faults_;
    return fault;
  }
  return std::nullopt;
}

Status FaultyFileSystem::fail_if_due(FileCall call, const std::string& context) {
  const auto fault = due(call);
  if (fault && fault->os_errno != 0) return errno_error(fault->os_errno, context);
  return {};
}

Result<FileHandle> FaultyFileSystem::open(const std::string& path, OpenMode mode, Caching caching) {
  STRATA_TRY(fail_if_due(FileCall::open, path));
  return inner_.open(path, mode, caching);
}

Result<size_t> FaultyFileSystem::read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) {
  const auto fault = due(FileCall::read);
  if (fault && fault->os_errno != 0) return errno_error(fault->os_errno, "read");
  STRATA_ASSIGN(size_t got, inner_.read_at(file, to, offset));
  if (fault && fault->keep_bytes) got = std::min(got, *fault->keep_bytes);
  if (fault && fault->flip_at && *fault->flip_at < got) to[*fault->flip_at] ^= std::byte{0xFF};
  return got;
}

Status FaultyFileSystem::write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) {
  const auto fault = due(FileCall::write);
  if (fault && fault->keep_bytes)
    STRATA_TRY(inner_.write_at(file, from.first(std::min(from.size(), *fault->keep_bytes)), offset));
  if (fault && fault->os_errno != 0) return errno_error(fault->os_errno, "write");
  return inner_.write_at(file, from, offset);
}

Status FaultyFileSystem::sync_data(FileHandle file) {
  STRATA_TRY(fail_if_due(FileCall::sync_data, "flush of file data"));
  return inner_.sync_data(file);
}

Result<FileInfo> FaultyFileSystem::info(FileHandle file) {
  STRATA_TRY(fail_if_due(FileCall::info, "file status"));
  return inner_.info(file);
}

Result<FileInfo> FaultyFileSystem::info(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::info, path));
  return inner_.info(path);
}

Status FaultyFileSystem::allocate(FileHandle file, uint64_t offset, uint64_t length) {
  STRATA_TRY(fail_if_due(FileCall::allocate, "allocation"));
  return inner_.allocate(file, offset, length);
}

Status FaultyFileSystem::punch(FileHandle file, uint64_t offset, uint64_t length) {
  STRATA_TRY(fail_if_due(FileCall::punch, "punching a hole"));
  return inner_.punch(file, offset, length);
}

Status FaultyFileSystem::truncate(FileHandle file, uint64_t length) {
  STRATA_TRY(fail_if_due(FileCall::truncate, "truncation"));
  return inner_.truncate(file, length);
}

Status FaultyFileSystem::set_modified(const std::string& path, int64_t modified_ns) {
  STRATA_TRY(fail_if_due(FileCall::set_modified, "time of " + path));
  return inner_.set_modified(path, modified_ns);
}

Status FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  STRATA_TRY(fail_if_due(FileCall::rename, "rename " + from + " to " + to));
  return inner_.rename(from, to);
}

Status FaultyFileSystem::unlink(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::unlink, "remove " + path));
  return inner_.unlink(path);
}

Status FaultyFileSystem::create_directory(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::create_directory, "create folder " + path));
  return inner_.create_directory(path);
}

Status FaultyFileSystem::sync_directory(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::sync_directory, "flush of folder " + path));
  return inner_.sync_directory(path);
}

Result<std::vector<std::string>> FaultyFileSystem::list(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::list, path));
  return inner_.list(path);
}

Result<SpaceInfo> FaultyFileSystem::space(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::space, path));
  return inner_.space(path);
}

Result<FileHandle> FaultyFileSystem::lock(const std::string& path) {
  STRATA_TRY(fail_if_due(FileCall::lock, path));
  return inner_.lock(path);
}

}  // namespace strata::testing
