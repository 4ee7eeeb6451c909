#include "tests/support/power_loss_file_system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "core/limits.hpp"

namespace strata::testing {
namespace {

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

uint64_t pages_up_to(uint64_t bytes, uint64_t page) { return (bytes + page - 1) / page; }

}  // namespace

const char* to_string(DiskChange change) {
  constexpr const char* kNames[] = {"create",   "write",  "sync",   "allocate",      "punch",
                                    "truncate", "rename", "unlink", "create folder", "sync folder"};
  return kNames[static_cast<size_t>(change)];
}

PowerLossFileSystem::PowerLossFileSystem() { folders_["/"].durable = true; }

// ---- content

void PowerLossFileSystem::Content::reach(uint64_t end) {
  const uint64_t pages = pages_up_to(end, kPage);
  if (allocated.size() >= pages) return;
  allocated.resize(pages);
  bytes.resize(pages * kPage);
}

uint64_t PowerLossFileSystem::Content::allocated_bytes() const {
  return static_cast<uint64_t>(std::count(allocated.begin(), allocated.end(), 1)) * kPage;
}

// Nobody ever sees bytes behind the end: they are zero when the file grows.
void PowerLossFileSystem::Content::clear_behind_end() {
  if (size < bytes.size()) std::fill(bytes.begin() + static_cast<ptrdiff_t>(size), bytes.end(), std::byte{});
}

// The part [from, from + length) of an effect; only data and holes have parts.
void PowerLossFileSystem::apply(Content& content, const Effect& effect, uint64_t from, uint64_t length) {
  const uint64_t start = effect.offset + from;
  switch (effect.kind) {
    case Kind::data:
      content.reach(start + length);
      std::memcpy(content.bytes.data() + start, effect.bytes.data() + from, length);
      std::fill(content.allocated.begin() + static_cast<ptrdiff_t>(start / kPage),
                content.allocated.begin() + static_cast<ptrdiff_t>(pages_up_to(start + length, kPage)), 1);
      return;
    case Kind::extend:
      content.reach(effect.length);
      content.size = std::max(content.size, effect.length);
      return;
    case Kind::allocate:
      content.reach(start + length);
      std::fill(content.allocated.begin() + static_cast<ptrdiff_t>(start / kPage),
                content.allocated.begin() + static_cast<ptrdiff_t>(pages_up_to(start + length, kPage)), 1);
      return;
    case Kind::punch: {
      const uint64_t end = std::min<uint64_t>(start + length, content.bytes.size());
      if (start >= end) return;
      std::memset(content.bytes.data() + start, 0, end - start);
      const uint64_t last = end == content.bytes.size() ? content.allocated.size() : end / kPage;
      for (uint64_t page = pages_up_to(start, kPage); page < last; ++page) content.allocated[page] = 0;
      return;
    }
    case Kind::truncate:
      content.allocated.resize(pages_up_to(effect.length, kPage));
      content.bytes.resize(content.allocated.size() * kPage);
      content.size = effect.length;
      content.clear_behind_end();
      return;
  }
}

void PowerLossFileSystem::change(File& file, Effect effect) {
  apply_whole(file.now, effect);
  file.unsynced.push_back(std::move(effect));
}

void PowerLossFileSystem::change_names(Folder& folder, NameEffect effect) {
  for (const Name& name : effect) {
    if (name.file) {
      folder.now[name.path] = name.file;
    } else {
      folder.now.erase(name.path);
    }
  }
  folder.unsynced.push_back(std::move(effect));
}

// ---- power

Status PowerLossFileSystem::powered() const {
  if (off_) return errno_error(EIO, "the power is off");
  return {};
}

Status PowerLossFileSystem::spend() {
  STRATA_TRY(powered());
  if (calls_left_ != UINT64_MAX && calls_left_-- <= 1) cut_now();
  return {};
}

void PowerLossFileSystem::cut_now() {
  off_ = true;
  calls_left_ = UINT64_MAX;
}

Status PowerLossFileSystem::ended(DiskChange change, const std::string& path, const std::string& to) {
  last_change_ = change;
  if (on_change) on_change(change, path, to);
  return powered();
}

PowerLossFileSystem::Chances PowerLossFileSystem::chances(FakeRandom& random, Survival survival) {
  if (survival == Survival::everything) return {8, 8, 8, 0, false};
  if (survival == Survival::nothing) return {0, 0, 0, 0, false};
  constexpr uint64_t kEighths[] = {0, 1, 4, 4, 7, 8};
  constexpr uint64_t kPieces[] = {0, kPage, kPage, 512};
  Chances chances;
  chances.data = kEighths[random.below(6)];
  chances.size = kEighths[random.below(6)];
  chances.names = kEighths[random.below(6)];
  chances.piece = kPieces[random.below(4)];
  chances.halves = random.below(4) == 0;
  return chances;
}

void PowerLossFileSystem::survive(File& file, const Chances& chances, FakeRandom& random) {
  for (const Effect& effect : file.unsynced) {
    const bool is_size = effect.kind != Kind::data;
    const uint64_t piece =
        is_size || chances.piece == 0 ? std::max<uint64_t>(effect.length, 1) : chances.piece;
    const uint64_t all = std::max<uint64_t>(effect.length, 1);
    for (uint64_t at = 0; at < all; at += piece) {
      if (random.below(8) >= (is_size ? chances.size : chances.data)) continue;
      apply(file.durable, effect, at, std::min(piece, effect.length - std::min(effect.length, at)));
    }
  }
  file.unsynced.clear();
  file.durable.clear_behind_end();
  file.now = file.durable;
}

void PowerLossFileSystem::survive(Folder& folder, const Chances& chances, FakeRandom& random) {
  for (const NameEffect& effect : folder.unsynced) {
    bool kept = random.below(8) < chances.names;
    for (const Name& name : effect) {
      if (chances.halves) kept = random.below(8) < chances.names;
      if (!kept) continue;
      if (name.file) {
        folder.durable_names[name.path] = name.file;
      } else {
        folder.durable_names.erase(name.path);
      }
    }
  }
  folder.unsynced.clear();
  folder.now = folder.durable_names;
}

void PowerLossFileSystem::come_back(uint64_t seed, Survival survival) {
  FakeRandom random(seed);
  const Chances odds = chances(random, survival);
  std::set<std::string> gone;
  for (auto& [path, folder] : folders_) {
    const bool lost = !folder.durable && random.below(8) >= odds.names;
    if (lost || gone.contains(parent_of(path))) {
      gone.insert(path);
      continue;
    }
    folder.durable = true;
    survive(folder, odds, random);
    std::set<const File*> done;  // two names of one file, when a rename survived by half
    for (const auto& [name, file] : folder.now) {
      if (done.insert(file.get()).second) survive(*file, odds, random);
    }
  }
  for (const std::string& path : gone) folders_.erase(path);
  open_.clear();
  calls_left_ = UINT64_MAX;
  off_ = false;
}

// ---- looks from outside

const PowerLossFileSystem::FileRef* PowerLossFileSystem::find(const std::string& path) const {
  const auto folder = folders_.find(parent_of(path));
  if (folder == folders_.end()) return nullptr;
  const auto file = folder->second.now.find(path);
  return file == folder->second.now.end() ? nullptr : &file->second;
}

std::optional<std::vector<std::byte>> PowerLossFileSystem::content(const std::string& path) const {
  const FileRef* file = find(path);
  if (file == nullptr) return std::nullopt;
  std::vector<std::byte> bytes = (*file)->now.bytes;
  bytes.resize((*file)->now.size);
  return bytes;
}

std::vector<std::string> PowerLossFileSystem::paths() const {
  std::vector<std::string> all;
  for (const auto& [path, folder] : folders_) {
    for (const auto& [name, file] : folder.now) all.push_back(name);
  }
  std::sort(all.begin(), all.end());
  return all;
}

uint64_t PowerLossFileSystem::allocated_bytes(const std::string& path) const {
  const FileRef* file = find(path);
  return file == nullptr ? 0 : (*file)->now.allocated_bytes();
}

uint64_t PowerLossFileSystem::unsynced_changes() const {
  uint64_t sum = 0;
  for (const auto& [path, folder] : folders_) {
    sum += folder.unsynced.size() + (folder.durable ? 0 : 1);
    for (const auto& [name, file] : folder.now) sum += file->unsynced.size();
  }
  return sum;
}

// ---- files

Result<PowerLossFileSystem::Open*> PowerLossFileSystem::opened(FileHandle file, bool to_write) {
  STRATA_TRY(powered());
  const auto at = open_.find(file.value);
  if (at == open_.end() || (to_write && !at->second.writable)) return errno_error(EBADF, "file handle");
  return &at->second;
}

Result<PowerLossFileSystem::Folder*> PowerLossFileSystem::folder_of(const std::string& path) {
  STRATA_TRY(powered());
  const auto at = folders_.find(parent_of(path));
  if (at == folders_.end()) return errno_error(ENOENT, path);
  return &at->second;
}

Result<FileHandle> PowerLossFileSystem::open(const std::string& path, OpenMode mode, Caching caching) {
  STRATA_ASSIGN(Folder * folder, folder_of(path));
  const bool create = mode == OpenMode::create_exclusive;
  if (folders_.contains(path)) return errno_error(create ? EEXIST : EISDIR, path);
  const FileRef* existing = find(path);
  if (create && existing != nullptr) return errno_error(EEXIST, path);
  if (!create && existing == nullptr) return errno_error(ENOENT, path);
  Open open{existing != nullptr ? *existing : nullptr, path, mode != OpenMode::read,
            caching == Caching::direct, false};
  if (create) {
    STRATA_TRY(spend());
    open.file = std::make_shared<File>();
    change_names(*folder, {{path, open.file}});
    STRATA_TRY(ended(DiskChange::create, path));
  }
  const int handle = next_handle_++;
  open_[handle] = std::move(open);
  return FileHandle{handle};
}

// A handle of before the cut is nobody's.
void PowerLossFileSystem::close(FileHandle file) { open_.erase(file.value); }

Result<size_t> PowerLossFileSystem::read_at(FileHandle file, std::span<std::byte> to, uint64_t offset) {
  STRATA_ASSIGN(const Open* open, opened(file));
  const Content& content = open->file->now;
  if (offset >= content.size) return size_t{0};
  const uint64_t length = std::min<uint64_t>(to.size(), content.size - offset);
  std::memcpy(to.data(), content.bytes.data() + offset, length);
  return static_cast<size_t>(length);
}

Status PowerLossFileSystem::write_at(FileHandle file, std::span<const std::byte> from, uint64_t offset) {
  STRATA_ASSIGN(Open * open, opened(file, true));
  const bool aligned = from.size() % limits::kAlignment == 0 && offset % limits::kAlignment == 0;
  if (open->direct && !aligned) return errno_error(EINVAL, "unaligned direct transfer");
  STRATA_TRY(spend());
  const uint64_t end = offset + from.size();
  const bool grows = end > open->file->now.size;
  change(*open->file, {Kind::data, offset, from.size(), {from.begin(), from.end()}});
  if (grows) change(*open->file, {Kind::extend, 0, end, {}});
  return ended(DiskChange::write, open->path);
}

Status PowerLossFileSystem::sync_data(FileHandle file) {
  STRATA_ASSIGN(Open * open, opened(file));
  STRATA_TRY(spend());
  STRATA_TRY(powered());  // the power went while the disk was flushed
  if (!forgets_sync || !forgets_sync(DiskChange::sync_data, open->path)) {
    for (const Effect& effect : open->file->unsynced) apply_whole(open->file->durable, effect);
    open->file->unsynced.clear();
  }
  return ended(DiskChange::sync_data, open->path);
}

FileInfo PowerLossFileSystem::info_of(const File& file) {
  FileInfo info;
  info.size_bytes = file.now.size;
  info.allocated_bytes = file.now.allocated_bytes();
  info.links = 1;
  info.regular = true;
  return info;
}

Result<FileInfo> PowerLossFileSystem::info(FileHandle file) {
  STRATA_ASSIGN(const Open* open, opened(file));
  return info_of(*open->file);
}

Result<FileInfo> PowerLossFileSystem::info(const std::string& path) {
  STRATA_TRY(powered());
  if (folders_.contains(path)) {
    FileInfo folder;
    folder.directory = true;
    folder.links = 2;
    return folder;
  }
  const FileRef* file = find(path);
  if (file == nullptr) return errno_error(ENOENT, path);
  return info_of(**file);
}

Status PowerLossFileSystem::allocate(FileHandle file, uint64_t offset, uint64_t length) {
  STRATA_ASSIGN(Open * open, opened(file, true));
  if (length == 0) return errno_error(EINVAL, "allocation of nothing");
  STRATA_TRY(spend());
  change(*open->file, {Kind::allocate, offset, length, {}});
  change(*open->file, {Kind::extend, 0, offset + length, {}});
  return ended(DiskChange::allocate, open->path);
}

Status PowerLossFileSystem::punch(FileHandle file, uint64_t offset, uint64_t length) {
  STRATA_ASSIGN(Open * open, opened(file, true));
  if (length == 0) return errno_error(EINVAL, "hole of nothing");
  STRATA_TRY(spend());
  change(*open->file, {Kind::punch, offset, length, {}});
  return ended(DiskChange::punch, open->path);
}

Status PowerLossFileSystem::truncate(FileHandle file, uint64_t length) {
  STRATA_ASSIGN(Open * open, opened(file));
  if (!open->writable) return errno_error(EINVAL, "file opened for reading");
  STRATA_TRY(spend());
  change(*open->file, {length < open->file->now.size ? Kind::truncate : Kind::extend, 0, length, {}});
  return ended(DiskChange::truncate, open->path);
}

// ---- names

// Times are nobody's promise: they are not kept.
Status PowerLossFileSystem::set_modified(const std::string& path, int64_t) {
  if (find(path) == nullptr) return errno_error(ENOENT, "time of " + path);
  return {};
}

Status PowerLossFileSystem::rename(const std::string& from, const std::string& to) {
  STRATA_ASSIGN(Folder * folder, folder_of(from));
  const FileRef* found = find(from);
  if (found == nullptr || !folders_.contains(parent_of(to))) return errno_error(ENOENT, "rename " + from);
  if (folders_.contains(to)) return errno_error(EISDIR, "rename " + from + " to " + to);
  if (parent_of(to) != parent_of(from)) return errno_error(EXDEV, "rename " + from + " to " + to);
  STRATA_TRY(spend());
  const FileRef file = *found;
  change_names(*folder, {{from, nullptr}, {to, file}});
  return ended(DiskChange::rename, from, to);
}

Status PowerLossFileSystem::unlink(const std::string& path) {
  STRATA_ASSIGN(Folder * folder, folder_of(path));
  if (folders_.contains(path)) return errno_error(EISDIR, "remove " + path);
  if (find(path) == nullptr) return errno_error(ENOENT, "remove " + path);
  STRATA_TRY(spend());
  change_names(*folder, {{path, nullptr}});
  return ended(DiskChange::unlink, path);
}

Status PowerLossFileSystem::create_directory(const std::string& path) {
  STRATA_TRY(powered());
  if (folders_.contains(path)) return {};
  STRATA_TRY(folder_of(path));
  if (find(path) != nullptr) return make_error(ErrorCode::invalid, path + ": exists and is not a folder");
  STRATA_TRY(spend());
  folders_[path];
  return ended(DiskChange::create_directory, path);
}

Status PowerLossFileSystem::sync_directory(const std::string& path) {
  STRATA_TRY(powered());
  const auto at = folders_.find(path);
  if (at == folders_.end()) return errno_error(ENOENT, path);
  STRATA_TRY(spend());
  STRATA_TRY(powered());
  if (!forgets_sync || !forgets_sync(DiskChange::sync_directory, path)) {
    at->second.durable_names = at->second.now;
    at->second.unsynced.clear();
    for (auto& [name, folder] : folders_) {
      if (name != "/" && parent_of(name) == path) folder.durable = true;
    }
  }
  return ended(DiskChange::sync_directory, path);
}

Result<std::vector<std::string>> PowerLossFileSystem::list(const std::string& path) {
  STRATA_TRY(powered());
  const auto at = folders_.find(path);
  if (at == folders_.end()) return errno_error(ENOENT, path);
  std::vector<std::string> names;
  for (const auto& [name, file] : at->second.now) names.push_back(name.substr(name.rfind('/') + 1));
  for (const auto& [name, folder] : folders_) {
    if (name != "/" && parent_of(name) == path) names.push_back(name.substr(name.rfind('/') + 1));
  }
  return names;
}

Result<SpaceInfo> PowerLossFileSystem::space(const std::string& path) {
  STRATA_TRY(powered());
  if (!folders_.contains(path) && find(path) == nullptr) return errno_error(ENOENT, path);
  return SpaceInfo{uint64_t{1} << 40, uint64_t{1} << 40};
}

Result<FileHandle> PowerLossFileSystem::lock(const std::string& path) {
  STRATA_ASSIGN(Folder * folder, folder_of(path));
  if (find(path) == nullptr) {
    STRATA_TRY(spend());
    change_names(*folder, {{path, std::make_shared<File>()}});
    STRATA_TRY(ended(DiskChange::create, path));
  }
  const FileRef file = *find(path);
  for (const auto& [handle, open] : open_) {
    if (open.lock && open.file == file)
      return Error{ErrorCode::unavailable, EWOULDBLOCK, path + ": in use by another process"};
  }
  const int handle = next_handle_++;
  open_[handle] = Open{file, path, true, false, true};
  return FileHandle{handle};
}

}  // namespace strata::testing
