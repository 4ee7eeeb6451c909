#include "core/temporary_file.hpp"

#include <algorithm>

namespace strata {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

Result<std::string> flush_name(FileSystem& files, const std::string& path) {
  const Status synced = files.sync_directory(folder_of(path));
  if (synced) return std::string();
  if (synced.error().code != ErrorCode::unsupported)
    return with_context(synced.error(), path + " is written, but may not outlive a power loss");
  return synced.error().message;
}

Status TemporaryFile::create(uint64_t length) {
  STRATA_ASSIGN(handle_, files_.open(path_, OpenMode::create_exclusive, Caching::buffered));
  created_ = true;
  const Status allocated =
      files_.allocate(handle_, 0, length);  // a full disk is known before anything is copied
  if (!allocated && allocated.error().code != ErrorCode::unsupported) return allocated;
  return {};
}

Status TemporaryFile::write(std::span<const std::byte> bytes, uint64_t offset) {
  return files_.write_at(handle_, bytes, offset);
}

Status TemporaryFile::cut(uint64_t length) { return files_.truncate(handle_, length); }

Status TemporaryFile::sync() { return files_.sync_data(handle_); }

Status TemporaryFile::rename_to(const std::string& target) {
  close();
  STRATA_TRY(files_.rename(path_, target));
  created_ = false;
  return {};
}

void TemporaryFile::drop() {
  close();
  if (created_) (void)files_.unlink(path_);
  created_ = false;
}

void TemporaryFile::close() {
  if (handle_) files_.close(handle_);
  handle_ = {};
}

}  // namespace strata
