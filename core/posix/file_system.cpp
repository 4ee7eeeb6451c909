#include "core/posix/file_system.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "core/limits.hpp"

namespace strata {

namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;
// The kernel moves at most about 2 GiB in one call; a multiple of the alignment keeps direct transfers
// aligned.
constexpr size_t kMaxTransferBytes = size_t{1} << 30;
static_assert(kMaxTransferBytes % limits::kAlignment == 0);

template <class Call>
auto without_interrupts(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

// Closes the descriptor unless it was released.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int value) : value_(value) {}
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  ~OwnedDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  [[nodiscard]] int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

FileInfo info_of(const struct stat& status) {
  FileInfo info;
  info.size_bytes = static_cast<uint64_t>(status.st_size);
  info.allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512;
  info.links = status.st_nlink;
  info.modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  info.regular = S_ISREG(status.st_mode);
  info.directory = S_ISDIR(status.st_mode);
  return info;
}

Error refusal(const std::string& path, const char* what) {
  return make_error(ErrorCode::invalid, path + ": " + what);
}

// O_NONBLOCK keeps a FIFO or device that bears the name from blocking the open; regular files ignore it.
constexpr int kSafeFlags = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;

int open_flags(OpenMode mode, Caching caching) {
  int flags = kSafeFlags;
  if (mode == OpenMode::read)
    flags |= O_RDONLY;
  else
    flags |= O_RDWR;
  if (mode == OpenMode::create_exclusive) flags |= O_CREAT | O_EXCL;
  if (caching == Caching::direct) flags |= O_DIRECT;
  return flags;
}

Status check_opened(int descriptor, const std::string& path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return errno_error(errno, path);
  if (!S_ISREG(status.st_mode)) return refusal(path, "not a regular file");
  if (status.st_nlink != 1) return refusal(path, "has several links");
  return {};
}

Result<FileHandle> open_regular(const std::string& path, int flags) {
  OwnedDescriptor descriptor(without_interrupts([&] { return ::open(path.c_str(), flags, kFileMode); }));
  if (descriptor.get() < 0) {
    if (errno == ELOOP) return Error{ErrorCode::invalid, ELOOP, path + ": is a link"};
    if (errno == EINVAL && (flags & O_DIRECT) != 0)
      return Error{ErrorCode::unsupported, EINVAL, path + ": the file system refuses O_DIRECT"};
    return errno_error(errno, path);
  }
  STRATA_TRY(check_opened(descriptor.get(), path));
  return FileHandle{descriptor.release()};
}

Error descriptor_error(const char* what, uint64_t offset) {
  return errno_error(errno, std::string(what) + " at offset " + std::to_string(offset));
}

// After a short read: going on from an unaligned end would be EINVAL for a direct file.
bool at_end(int descriptor, uint64_t offset) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && offset >= static_cast<uint64_t>(status.st_size);
}

}  // namespace

Result<FileHandle> PosixFileSystem::open(const std::string& path, OpenMode mode, Caching caching) {
  if (caching == Caching::direct && refuses_direct_)
    return make_error(ErrorCode::unsupported, path + ": O_DIRECT does not work here");
  return open_regular(path, open_flags(mode, caching));
}

// Linux frees the descriptor even when close is interrupted, so it is not repeated; data errors surface in
// sync_data.
void PosixFileSystem::close(FileHandle file) {
  if (file) ::close(file.value);
}

Result<size_t> PosixFileSystem::read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) {
  size_t done = 0;
  while (done < to.size()) {
    const size_t step = std::min(to.size() - done, kMaxTransferBytes);
    const ssize_t got = without_interrupts(
        [&] { return pread(file.value, to.data() + done, step, static_cast<off_t>(offset + done)); });
    if (got < 0) return descriptor_error("read", offset + done);
    if (got == 0) break;
    done += static_cast<size_t>(got);
    if (static_cast<size_t>(got) < step && at_end(file.value, offset + done)) break;
  }
  return done;
}

Status PosixFileSystem::write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) {
  size_t done = 0;
  while (done < from.size()) {
    const size_t step = std::min(from.size() - done, kMaxTransferBytes);
    const ssize_t put = without_interrupts(
        [&] { return pwrite(file.value, from.data() + done, step, static_cast<off_t>(offset + done)); });
    if (put < 0) return descriptor_error("write", offset + done);
    if (put == 0)
      return make_error(ErrorCode::io, "write at offset " + std::to_string(offset + done) + ": no progress");
    done += static_cast<size_t>(put);
  }
  return {};
}

Status PosixFileSystem::sync_data(FileHandle file) {
  if (without_interrupts([&] { return fdatasync(file.value); }) != 0)
    return errno_error(errno, "flush of file data");
  return {};
}

Result<FileInfo> PosixFileSystem::info(FileHandle file) {
  struct stat status {};
  if (fstat(file.value, &status) != 0) return errno_error(errno, "file status");
  return info_of(status);
}

Result<FileInfo> PosixFileSystem::info(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return errno_error(errno, path);
  return info_of(status);
}

Status PosixFileSystem::allocate(FileHandle file, uint64_t offset, uint64_t length) {
  const int result = without_interrupts(
      [&] { return fallocate(file.value, 0, static_cast<off_t>(offset), static_cast<off_t>(length)); });
  if (result != 0) return descriptor_error("allocation", offset);
  return {};
}

Status PosixFileSystem::punch(FileHandle file, uint64_t offset, uint64_t length) {
  const int result = without_interrupts([&] {
    return fallocate(file.value, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(length));
  });
  if (result != 0) return descriptor_error("punching a hole", offset);
  return {};
}

Status PosixFileSystem::truncate(FileHandle file, uint64_t length) {
  if (without_interrupts([&] { return ftruncate(file.value, static_cast<off_t>(length)); }) != 0)
    return descriptor_error("truncation", length);
  return {};
}

Status PosixFileSystem::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return errno_error(errno, "rename " + from + " to " + to);
  return {};
}

Status PosixFileSystem::set_modified(const std::string& path, int64_t modified_ns) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  const timespec times[2] = {{0, UTIME_OMIT}, {modified_ns / kSecondNs, modified_ns % kSecondNs}};
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
    return errno_error(errno, "time of " + path);
  return {};
}

Status PosixFileSystem::unlink(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return errno_error(errno, "remove " + path);
  return {};
}

Status PosixFileSystem::create_directory(const std::string& path) {
  if (mkdir(path.c_str(), kFolderMode) == 0) return {};
  const int mkdir_errno = errno;
  struct stat status {};
  if (mkdir_errno == EEXIST && stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return {};
  if (mkdir_errno == EEXIST) return refusal(path, "exists and is not a folder");
  return errno_error(mkdir_errno, "create folder " + path);
}

Status PosixFileSystem::sync_directory(const std::string& path) {
  const OwnedDescriptor folder(
      without_interrupts([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (folder.get() < 0) return errno_error(errno, path);
  if (without_interrupts([&] { return fsync(folder.get()); }) == 0) return {};
  if (errno == EINVAL) return Error{ErrorCode::unsupported, EINVAL, path + ": the folder cannot be flushed"};
  return errno_error(errno, "flush of folder " + path);
}

Result<std::vector<std::string>> PosixFileSystem::list(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  if (folder == nullptr) return errno_error(errno, path);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == limits::kMaxFolderEntries)
      return make_error(ErrorCode::exhausted,
                        path + ": more than " + std::to_string(limits::kMaxFolderEntries) + " entries");
    names.emplace_back(name);
  }
  if (errno != 0) return errno_error(errno, path);
  return names;
}

Result<SpaceInfo> PosixFileSystem::space(const std::string& path) {
  struct statvfs status {};
  if (without_interrupts([&] { return statvfs(path.c_str(), &status); }) != 0)
    return errno_error(errno, path);
  return SpaceInfo{uint64_t{status.f_bavail} * status.f_frsize, uint64_t{status.f_blocks} * status.f_frsize};
}

Result<FileHandle> PosixFileSystem::lock(const std::string& path) {
  STRATA_ASSIGN(const FileHandle opened, open_regular(path, kSafeFlags | O_RDWR | O_CREAT));
  OwnedDescriptor descriptor(opened.value);
  if (without_interrupts([&] { return flock(descriptor.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno == EWOULDBLOCK)
      return Error{ErrorCode::unavailable, EWOULDBLOCK, path + ": in use by another process"};
    return errno_error(errno, path);
  }
  return FileHandle{descriptor.release()};
}

// The lock goes with the open file description; a child that inherited it before exec would not, thanks to
// O_CLOEXEC.
void PosixFileSystem::unlock(FileHandle lock) { close(lock); }

}  // namespace strata
