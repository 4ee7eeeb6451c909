// Compaction of session files, as the disk writer carries it out. Nobody waits for it: it goes through the
// page cache, piece by piece, lets foreground reads go first, and ends when something else is to be written.
#include <memory>
#include <new>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/pieces.hpp"
#include "tiers/disk_writer.hpp"

namespace strata {

namespace {

// Whatever happens, files are closed.
class Files {
 public:
  explicit Files(FileSystem& files) : files_(files) {}
  ~Files() {
    for (const FileHandle handle : open_) files_.close(handle);
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  Result<FileHandle> open(const std::string& path, OpenMode mode) {
    STRATA_ASSIGN(const FileHandle handle, files_.open(path, mode, Caching::buffered));
    open_.push_back(handle);
    return handle;
  }

 private:
  FileSystem& files_;
  std::vector<FileHandle> open_;
};

}  // namespace

Status DiskWriter::compact(const WriteJob& job, const CompactJob& work, WriteResult& result) {
  const std::string path = job.folder + "/" + session_file_name(work.header.id);
  Status status = copy_extents(job.folder, work, result);
  // An index must not outlive the name of the file it refers to.
  if (status.ok()) status = sync_folder(job.folder);
  if (status.ok()) status = publish_compacted(job, work, result);
  result.published = !result.index_bytes.empty();
  if (!result.published) {
    result.digests.clear();
    (void)remove_if_there(path);
  }
  report_size(job.folder, work.header.id, result);
  return status;
}

Status DiskWriter::copy_extents(const std::string& folder, const CompactJob& work, WriteResult& result) {
  Files files(files_);
  STRATA_ASSIGN(const FileHandle from,
                files.open(folder + "/" + session_file_name(work.from), OpenMode::read));
  STRATA_ASSIGN(const FileHandle to,
                files.open(folder + "/" + session_file_name(work.header.id), OpenMode::create_exclusive));
  const SessionHeaderBytes header = encode_session_header(work.header);
  STRATA_TRY(files_.write_at(to, header, 0));
  for (const CompactJob::Move& move : work.moves) {
    STRATA_ASSIGN(const Digest digest, copy_extent(from, to, move, *work.stop));
    result.digests.push_back(digest);
    result.written_bytes += align_up(move.bytes, limits::kAlignment);
  }
  return files_.sync_data(to);
}

// Checked while it is copied; returns the digest it has in its new place.
Result<Digest> DiskWriter::copy_extent(FileHandle from, FileHandle to, const CompactJob::Move& move,
                                       const StopFlag& stop) {
  std::vector<std::byte> piece(std::min(kPieceBytes, align_up(move.bytes, limits::kAlignment)));
  DigestStream before(move.from);
  DigestStream after(move.to);
  for (uint64_t done = 0; done < move.bytes; done += piece.size()) {
    if (gate_ != nullptr) gate_->before_background_transfer(stop);
    if (stop.is_set()) return make_error(ErrorCode::cancelled, "compaction gives way");
    const uint64_t count = std::min<uint64_t>(piece.size(), move.bytes - done);
    const auto payload = std::span(piece).first(count);
    STRATA_ASSIGN(const size_t got, files_.read_at(from, payload, move.from_offset + done));
    if (got != count) return make_error(ErrorCode::corrupt, "compaction: the file ends too early");
    std::fill(piece.begin() + static_cast<std::ptrdiff_t>(count), piece.end(), std::byte{0});
    before.update(payload);
    after.update(payload);
    const auto padded = std::span(piece).first(align_up(count, limits::kAlignment));
    STRATA_TRY(files_.write_at(to, padded, move.to_offset + done));
  }
  if (before.finish() != move.digest) {
    return make_error(ErrorCode::corrupt, "compaction: an extent does not match its digest");
  }
  return after.finish();
}

Status DiskWriter::publish_compacted(const WriteJob& job, const CompactJob& work, WriteResult& result) {
  for (const CompactJob::Index& index : work.indexes) {
    Manifest manifest = index.manifest;
    for (const auto& [part, move] : index.moved) manifest.parts[part].digest = result.digests[move];
    WriteResult one;
    const Status status = write_index(job, manifest, one);
    result.written_bytes += one.written_bytes;
    if (!one.published) {
      result.index_allocated_bytes = one.index_allocated_bytes;  // of a temporary one left behind
      return status;
    }
    result.index_bytes.push_back(one.index_allocated_bytes);
    STRATA_TRY(status);
  }
  return {};
}

}  // namespace strata
