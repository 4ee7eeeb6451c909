#include "tests/support/fake_file_system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "core/check.hpp"
#include "core/limits.hpp"

namespace strata::testing {

namespace {
std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Calls visit(page, offset in page, offset in the range, length) for each page of a range.
template <class Visit>
void each_page(uint64_t page_bytes, uint64_t offset, uint64_t length, Visit visit) {
  for (uint64_t done = 0; done < length;) {
    const uint64_t at = offset + done;
    const uint64_t step = std::min(page_bytes - at % page_bytes, length - done);
    visit(at / page_bytes, at % page_bytes, done, step);
    done += step;
  }
}
}  // namespace

FakeFileSystem::FakeFileSystem() : FakeFileSystem(Options{}) {}
FakeFileSystem::FakeFileSystem(Options options) : options_(options) {}

// ---- for tests

void FakeFileSystem::set_capacity(uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  options_.capacity_bytes = bytes;
}

void FakeFileSystem::put(const std::string& path, std::span<const std::byte> bytes) {
  const std::lock_guard guard(mutex_);
  FileRef file = std::make_shared<File>();
  store(*file, bytes, 0);
  file->modified_ns = ++ticks_ns_;
  files_[path] = file;
}

std::vector<std::byte> FakeFileSystem::get(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  const auto at = files_.find(path);
  return at == files_.end() ? std::vector<std::byte>{} : load(*at->second);
}

bool FakeFileSystem::exists(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  return files_.contains(path) || folders_.contains(path);
}

FakeFileSystem::File& FakeFileSystem::existing(const std::string& path) {
  const auto at = files_.find(path);
  STRATA_CHECK(at != files_.end());
  return *at->second;
}

void FakeFileSystem::flip_byte(const std::string& path, uint64_t offset) {
  const std::lock_guard guard(mutex_);
  File& file = existing(path);
  STRATA_CHECK(offset < file.size);
  std::unique_ptr<Page>& page = file.pages[offset / kPage];
  if (!page) page = std::make_unique<Page>(Page{});
  (*page)[offset % kPage] ^= std::byte{0xFF};
}

void FakeFileSystem::cut(const std::string& path, uint64_t length) {
  const std::lock_guard guard(mutex_);
  shrink(existing(path), length);
}

void FakeFileSystem::add_symlink(const std::string& path) {
  const std::lock_guard guard(mutex_);
  files_[path] = std::make_shared<File>();
  files_[path]->symlink = true;
}

void FakeFileSystem::add_hard_link(const std::string& path, const std::string& existing_path) {
  const std::lock_guard guard(mutex_);
  File& file = existing(existing_path);
  ++file.links;
  files_[path] = files_[existing_path];
}

void FakeFileSystem::drop_locks() {
  const std::lock_guard guard(mutex_);
  for (auto& [path, file] : files_) file->locked = false;
  std::erase_if(open_, [](const auto& entry) { return entry.second.lock; });
}

uint64_t FakeFileSystem::allocated_locked() const {
  std::unordered_set<const File*> seen;
  uint64_t pages = 0;
  const auto count = [&](const FileRef& file) {
    if (seen.insert(file.get()).second) pages += file->pages.size();
  };
  for (const auto& [path, file] : files_) count(file);
  for (const auto& [handle, open] : open_) count(open.file);
  return pages * kPage;
}

uint64_t FakeFileSystem::allocated_bytes() const {
  const std::lock_guard guard(mutex_);
  return allocated_locked();
}

size_t FakeFileSystem::open_files() const {
  const std::lock_guard guard(mutex_);
  return open_.size();
}

std::vector<std::string> FakeFileSystem::paths() const {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> names;
  for (const auto& [path, file] : files_) names.push_back(path);
  return names;
}

// ---- opening

Status FakeFileSystem::check_parent(const std::string& path) const {
  if (!folders_.contains(parent_of(path))) return errno_error(ENOENT, path);
  return {};
}

Result<FileHandle> FakeFileSystem::open_locked(const std::string& path, bool create, bool exclusive,
                                               Open open) {
  STRATA_TRY(check_parent(path));
  if (open.direct && !options_.direct)
    return Error{ErrorCode::unsupported, EINVAL, path + ": the file system refuses O_DIRECT"};
  if (folders_.contains(path)) return errno_error(exclusive ? EEXIST : EISDIR, path);
  const auto at = files_.find(path);
  if (at != files_.end() && exclusive) return errno_error(EEXIST, path);
  if (at == files_.end() && !create) return errno_error(ENOENT, path);
  if (at != files_.end() && at->second->symlink)
    return Error{ErrorCode::invalid, ELOOP, path + ": is a link"};
  if (at != files_.end() && at->second->links != 1)
    return make_error(ErrorCode::invalid, path + ": has several links");
  if (at == files_.end()) {
    open.file = files_[path] = std::make_shared<File>();
    open.file->modified_ns = ++ticks_ns_;
  } else {
    open.file = at->second;
  }
  const int handle = next_handle_++;
  open_[handle] = std::move(open);
  return FileHandle{handle};
}

Result<FileHandle> FakeFileSystem::open(const std::string& path, OpenMode mode, Caching caching) {
  const std::lock_guard guard(mutex_);
  const bool create = mode == OpenMode::create_exclusive;
  return open_locked(path, create, create,
                     Open{nullptr, mode != OpenMode::read, caching == Caching::direct, false});
}

void FakeFileSystem::close(FileHandle file) {
  const std::lock_guard guard(mutex_);
  if (file) STRATA_CHECK(open_.erase(file.value) == 1);  // closing twice is a bug of the caller
}

Result<FakeFileSystem::Open*> FakeFileSystem::opened(FileHandle file) {
  const auto at = open_.find(file.value);
  if (at == open_.end()) return errno_error(EBADF, "file handle");
  return &at->second;
}

// ---- transfers

Status FakeFileSystem::check_direct(const Open& open, const void* data, uint64_t length,
                                    uint64_t offset) const {
  const bool aligned = reinterpret_cast<uintptr_t>(data) % limits::kAlignment == 0 &&
                       length % limits::kAlignment == 0 && offset % limits::kAlignment == 0;
  if (open.direct && !aligned) return errno_error(EINVAL, "unaligned direct transfer");
  return {};
}

Result<size_t> FakeFileSystem::read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) {
  const std::lock_guard guard(mutex_);
  STRATA_ASSIGN(Open * open, opened(file));
  STRATA_TRY(check_direct(*open, to.data(), to.size(), offset));
  const File& content = *open->file;
  if (offset >= content.size) return size_t{0};
  const uint64_t length = std::min<uint64_t>(to.size(), content.size - offset);
  each_page(kPage, offset, length, [&](uint64_t page, uint64_t at, uint64_t done, uint64_t step) {
    const auto found = content.pages.find(page);
    const bool data = found != content.pages.end() && found->second;
    if (data)
      std::memcpy(to.data() + done, found->second->data() + at, step);
    else
      std::memset(to.data() + done, 0, step);
  });
  return static_cast<size_t>(length);
}

Status FakeFileSystem::reserve_pages(File& file, uint64_t offset, uint64_t length) {
  uint64_t missing = 0;
  each_page(kPage, offset, length, [&](uint64_t page, uint64_t, uint64_t, uint64_t) {
    if (!file.pages.contains(page)) ++missing;
  });
  const uint64_t used = allocated_locked();
  const uint64_t left = options_.capacity_bytes - std::min(options_.capacity_bytes, used);
  if (missing * kPage > left) return errno_error(ENOSPC, "file system of the test");
  each_page(kPage, offset, length,
            [&](uint64_t page, uint64_t, uint64_t, uint64_t) { file.pages.try_emplace(page); });
  return {};
}

void FakeFileSystem::store(File& file, std::span<const std::byte> from, uint64_t offset) {
  each_page(kPage, offset, from.size(), [&](uint64_t page, uint64_t at, uint64_t done, uint64_t step) {
    std::unique_ptr<Page>& bytes = file.pages[page];
    if (!bytes) bytes = std::make_unique<Page>(Page{});
    std::memcpy(bytes->data() + at, from.data() + done, step);
  });
  file.size = std::max<uint64_t>(file.size, offset + from.size());
}

std::vector<std::byte> FakeFileSystem::load(const File& file) {
  std::vector<std::byte> bytes(file.size);
  each_page(kPage, 0, file.size, [&](uint64_t page, uint64_t, uint64_t done, uint64_t step) {
    const auto found = file.pages.find(page);
    if (found != file.pages.end() && found->second)
      std::memcpy(bytes.data() + done, found->second->data(), step);
  });
  return bytes;
}

Status FakeFileSystem::write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) {
  const std::lock_guard guard(mutex_);
  STRATA_ASSIGN(Open * open, opened(file));
  if (!open->writable) return errno_error(EBADF, "file opened for reading");
  STRATA_TRY(check_direct(*open, from.data(), from.size(), offset));
  STRATA_TRY(reserve_pages(*open->file, offset, from.size()));
  store(*open->file, from, offset);
  open->file->modified_ns = ++ticks_ns_;
  return {};
}

Status FakeFileSystem::sync_data(FileHandle file) {
  const std::lock_guard guard(mutex_);
  STRATA_TRY(opened(file));
  return {};
}

// ---- metadata

FileInfo FakeFileSystem::info_of(const File& file) const {
  FileInfo info;
  info.size_bytes = file.size;
  info.allocated_bytes = file.pages.size() * kPage;
  info.links = file.links;
  info.modified_ns = file.modified_ns;
  info.regular = !file.symlink;
  return info;
}

Result<FileInfo> FakeFileSystem::info(FileHandle file) {
  const std::lock_guard guard(mutex_);
  STRATA_ASSIGN(Open * open, opened(file));
  return info_of(*open->file);
}

Result<FileInfo> FakeFileSystem::info(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (folders_.contains(without_slash(path))) {
    FileInfo folder;
    folder.directory = true;
    folder.links = 2;
    return folder;
  }
  const auto at = files_.find(path);
  if (at == files_.end()) return errno_error(ENOENT, path);
  return info_of(*at->second);
}

Status FakeFileSystem::allocate(FileHandle file, uint64_t offset, uint64_t length) {
  const std::lock_guard guard(mutex_);
  STRATA_ASSIGN(Open * open, opened(file));
  if (!open->writable) return errno_error(EBADF, "file opened for reading");
  if (length == 0) return errno_error(EINVAL, "allocation of nothing");
  STRATA_TRY(reserve_pages(*open->file, offset, length));
  open->file->size = std::max(open->file->size, offset + length);
  return {};
}

Status FakeFileSystem::punch(FileHandle file, uint64_t offset, uint64_t length) {
  const std::lock_guard guard(mutex_);
  STRATA_ASSIGN(Open * open, opened(file));
  if (!options_.punch) return errno_error(EOPNOTSUPP, "punching a hole");
  if (!open->writable) return errno_error(EBADF, "file opened for reading");
  if (length == 0) return errno_error(EINVAL, "hole of nothing");
  auto& pages = open->file->pages;
  each_page(kPage, offset, length, [&](uint64_t page, uint64_t at, uint64_t, uint64_t step) {
    const auto found = pages.find(page);
    if (found == pages.end()) return;
    if (step == kPage)
      pages.erase(found);
    else if (found->second)
      std::memset(found->second->data() + at, 0, step);
  });
  return {};
}

void FakeFileSystem::shrink(File& file, uint64_t length) {
  if (length < file.size) {
    file.pages.erase(file.pages.lower_bound((length + kPage - 1) / kPage), file.pages.end());
    const auto last = file.pages.find(length / kPage);
    if (last != file.pages.end() && last->second)
      std::memset(last->second->data() + length % kPage, 0, kPage - length % kPage);
  }
  file.size = length;
}

Status FakeFileSystem::truncate(FileHandle file, uint64_t length) {
  const std::lock_guard guard(mutex_);
  STRATA_ASSIGN(Open * open, opened(file));
  if (!open->writable) return errno_error(EINVAL, "file opened for reading");
  shrink(*open->file, length);
  return {};
}

// ---- names

Status FakeFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard guard(mutex_);
  STRATA_TRY(check_parent(to));
  const auto at = files_.find(from);
  if (at == files_.end()) return errno_error(ENOENT, "rename " + from);
  if (folders_.contains(to)) return errno_error(EISDIR, "rename " + from + " to " + to);
  const FileRef moved = at->second;
  files_.erase(at);
  files_[to] = moved;
  return {};
}

Status FakeFileSystem::set_modified(const std::string& path, int64_t modified_ns) {
  const std::lock_guard guard(mutex_);
  const auto at = files_.find(path);
  if (at == files_.end()) return errno_error(ENOENT, "time of " + path);
  at->second->modified_ns = modified_ns;
  return {};
}

Status FakeFileSystem::unlink(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (folders_.contains(path)) return errno_error(EISDIR, "remove " + path);
  const auto at = files_.find(path);
  if (at == files_.end()) return errno_error(ENOENT, "remove " + path);
  --at->second->links;
  files_.erase(at);
  return {};
}

Status FakeFileSystem::create_directory(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const std::string folder = without_slash(path);
  if (folders_.contains(folder)) return {};
  STRATA_TRY(check_parent(folder));
  if (files_.contains(folder)) return make_error(ErrorCode::invalid, path + ": exists and is not a folder");
  folders_.insert(folder);
  return {};
}

Status FakeFileSystem::sync_directory(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!folders_.contains(without_slash(path))) return errno_error(ENOENT, path);
  if (!options_.sync_directory)
    return Error{ErrorCode::unsupported, EINVAL, path + ": the folder cannot be flushed"};
  return {};
}

Result<std::vector<std::string>> FakeFileSystem::list(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const std::string folder = without_slash(path);
  if (!folders_.contains(folder)) return errno_error(ENOENT, path);
  std::vector<std::string> names;
  const auto add = [&](const std::string& child) {
    if (child != folder && parent_of(child) == folder) names.push_back(child.substr(child.rfind('/') + 1));
  };
  for (const auto& [name, file] : files_) add(name);
  for (const std::string& name : folders_) add(name);
  return names;
}

Result<SpaceInfo> FakeFileSystem::space(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!folders_.contains(without_slash(path)) && !files_.contains(path)) return errno_error(ENOENT, path);
  const uint64_t used = allocated_locked();
  return SpaceInfo{options_.capacity_bytes - std::min(options_.capacity_bytes, used),
                   options_.capacity_bytes};
}

Result<FileHandle> FakeFileSystem::lock(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const auto at = files_.find(path);
  if (at != files_.end() && at->second->locked)
    return Error{ErrorCode::unavailable, EWOULDBLOCK, path + ": in use by another process"};
  STRATA_ASSIGN(const FileHandle handle, open_locked(path, true, false, Open{nullptr, true, false, true}));
  open_[handle.value].file->locked = true;
  return handle;
}

void FakeFileSystem::unlock(FileHandle lock) {
  const std::lock_guard guard(mutex_);
  const auto at = open_.find(lock.value);
  if (at == open_.end()) return;  // dropped with its process
  at->second.file->locked = false;
  open_.erase(at);
}

}  // namespace strata::testing
