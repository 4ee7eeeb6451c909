#include "tiers/disk_writer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/check.hpp"
#include "core/digest.hpp"
#include "core/limits.hpp"

namespace strata {
namespace {

constexpr uint64_t kPollTimeoutNs = 100'000'000;  // of one wait; the loop goes on waiting
constexpr uint64_t kRefusedSubmitWaitNs = 1'000'000;
constexpr uint32_t kMaxRefusedSubmits = 1000;  // in a row, with nothing in flight
constexpr uint32_t kMaxPollErrors = 8;         // in a row
constexpr uint32_t kCookieBatchShift = 32;

// Closes the file at the end of the scope.
class OpenFile {
 public:
  OpenFile(FileSystem& files, FileHandle handle) : files_(files), handle_(handle) {}
  ~OpenFile() { files_.close(handle_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  [[nodiscard]] FileHandle get() const { return handle_; }

 private:
  FileSystem& files_;
  FileHandle handle_;
};

std::string session_path(const std::string& folder, ConversationId id) {
  return folder + "/" + session_file_name(id);
}
std::string index_path(const std::string& folder, ConversationId id) {
  return folder + "/" + index_file_name(id);
}
std::string temporary_path(const std::string& folder, ConversationId id) {
  return index_path(folder, id) + ".tmp";
}

Status first_error(Status first, Status second) { return first.ok() ? std::move(second) : std::move(first); }

Status in_context(Status status, const char* what) {
  if (status.ok()) return status;
  return with_context(std::move(status).error(), what);
}

struct Range {
  uint64_t offset = 0;
  uint64_t length = 0;
};

using OptionalHeader = std::optional<std::span<std::byte>>;  // of a new file

// The file ranges that the job writes, neighbours joined.
std::vector<Range> written_ranges(const OptionalHeader& header, const std::vector<PartWrite>& writes) {
  std::vector<Range> pieces;
  if (header) pieces.push_back({0, header->size()});
  for (const PartWrite& write : writes)
    pieces.push_back({write.offset, align_up(write.bytes, limits::kAlignment)});
  std::sort(pieces.begin(), pieces.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
  std::vector<Range> joined;
  for (const Range& piece : pieces) {
    if (piece.length == 0) continue;
    if (!joined.empty() && joined.back().offset + joined.back().length == piece.offset) {
      joined.back().length += piece.length;
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

// Transfers of at most kMaxPartBytes, in the order of the writes. The header goes with them: a write of its
// own, waited for, took as long as one of a block.
std::vector<IoOp> transfers_of(FileHandle file, const OptionalHeader& header,
                               const std::vector<PartWrite>& writes, uint32_t batch) {
  std::vector<IoOp> ops;
  const auto add = [&](std::byte* data, uint64_t length, uint64_t offset) {
    const uint64_t cookie = (uint64_t{batch} << kCookieBatchShift) | ops.size();
    ops.push_back({IoKind::write, file, data, length, offset, cookie});
  };
  if (header) add(header->data(), header->size(), 0);
  for (const PartWrite& write : writes) {
    const uint64_t padded = align_up(write.bytes, limits::kAlignment);
    STRATA_CHECK(write.source != nullptr && write.source->bytes().size() >= padded);
    for (uint64_t done = 0; done < padded; done += limits::kMaxPartBytes)
      add(write.source->bytes().data() + done, std::min(limits::kMaxPartBytes, padded - done),
          write.offset + done);
  }
  return ops;
}

// One job's transfers through the queue. Ends only when the queue holds none of them any more, whatever
// failed: their buffers and file are free to go then.
class TransferRun {
 public:
  TransferRun(IoQueue& io, TransferGate* gate, std::vector<IoOp> ops, uint32_t batch)
      : io_(io),
        gate_(gate),
        ops_(std::move(ops)),
        batch_(batch),
        depth_(
            std::min<size_t>(limits::kWriteDepth, std::max<uint32_t>(1, io.requirements().max_in_flight))) {}

  [[nodiscard]] bool to_submit() const { return status_.ok() && next_ < ops_.size(); }
  [[nodiscard]] bool busy() const { return in_flight_ > 0; }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] uint64_t written_bytes() const { return written_bytes_; }

  // Fills the queue as far as it goes.
  void submit() {
    if (!to_submit() || in_flight_ == depth_) return;
    if (gate_ != nullptr) gate_->before_transfer();
    const size_t wanted = std::min(depth_ - in_flight_, ops_.size() - next_);
    const auto accepted = io_.submit(std::span(ops_).subspan(next_, wanted));
    if (!accepted.ok()) return fail(accepted.error());
    next_ += *accepted;
    in_flight_ += *accepted;
    if (in_flight_ > 0) {
      refused_ = 0;
    } else if (++refused_ == kMaxRefusedSubmits) {
      fail(make_error(ErrorCode::unavailable, "the I/O queue accepts no transfer"));
    }
  }

  // Nothing more is submitted.
  void stop(const Error& error) {
    if (status_.ok()) status_ = error;
  }

  // Takes completions; waits for one unless `now`.
  void collect(bool now) {
    const bool idle = in_flight_ == 0;
    if (idle && (now || !to_submit())) return;
    std::array<IoDone, limits::kWriteDepth> done;
    const auto count = io_.poll(now ? 0 : 1, idle ? kRefusedSubmitWaitNs : kPollTimeoutNs, done);
    if (!count.ok()) return poll_failed(count.error());
    poll_errors_ = 0;
    for (size_t i = 0; i < *count; ++i) finish(done[i]);
  }

 private:
  void finish(const IoDone& done) {
    if (done.cookie >> kCookieBatchShift != batch_) return;  // left over from a job that gave its queue up
    --in_flight_;
    if (!done.status.ok()) return fail(done.status.error());
    written_bytes_ += ops_[done.cookie & ((uint64_t{1} << kCookieBatchShift) - 1)].length_bytes;
  }

  void poll_failed(const Error& error) {
    fail(error);
    if (++poll_errors_ == kMaxPollErrors)
      in_flight_ = 0;  // the queue is broken; nothing more can be learnt from it
  }

  void fail(const Error& error) { stop(with_context(error, "writing extents")); }

  IoQueue& io_;
  TransferGate* gate_;
  std::vector<IoOp> ops_;
  uint32_t batch_;
  size_t depth_;
  size_t next_ = 0;
  size_t in_flight_ = 0;
  uint32_t refused_ = 0;
  uint32_t poll_errors_ = 0;
  uint64_t written_bytes_ = 0;
  Status status_;
};

Digest digest_of(const PartWrite& write) {
  return digest_part(write.place, std::as_const(write.source)->bytes().first(write.bytes));
}

bool digests_left(const ExtentsJob& work, const WriteResult& result) {
  return result.digests.size() < work.writes.size();
}

// The manifest says of every part written what was written.
void check_places(const PublishJob& work) {
  for (const PartWrite& write : work.writes) {
    STRATA_CHECK(write.manifest_index < work.manifest.parts.size());
    const ManifestPart& part = work.manifest.parts[write.manifest_index];
    STRATA_CHECK(part.offset == write.offset && part.length == write.bytes);
    STRATA_CHECK(part.stage == write.place.stage && part.first == write.place.first &&
                 write.place.file == work.id);
  }
}

}  // namespace

WriteResult cancelled_result(WriteJobRef job) {
  WriteResult result;
  result.id = job->id;
  result.job = std::move(job);
  result.status = make_error(ErrorCode::cancelled, "cancelled before it started");
  return result;
}

WriteResult DiskWriter::run(const WriteJobRef& job) {
  const uint64_t start_ns = clock_.monotonic_ns();
  WriteResult result;
  result.id = job->id;
  result.job = job;
  if (const auto* publication = std::get_if<PublishJob>(&job->work)) {
    result.status = publish(*job, *publication, result);
  } else if (const auto* extents = std::get_if<ExtentsJob>(&job->work)) {
    result.status = write_ahead(*job, *extents, result);
  } else if (const auto* removal = std::get_if<ReleaseJob>(&job->work)) {
    result.status = release(*job, *removal, result);
  } else if (const auto* uses = std::get_if<TouchJob>(&job->work)) {
    touch(*job, *uses);
  } else if (const auto* compaction = std::get_if<CompactJob>(&job->work)) {
    result.status = compact(*job, *compaction, result);
  } else {
    result.status = quarantine(*job, std::get<QuarantineJob>(job->work), result);
  }
  result.duration_ns = clock_.monotonic_ns() - start_ns;
  return result;
}

// ---- publish

Status DiskWriter::publish(const WriteJob& job, const PublishJob& work, WriteResult& result) {
  STRATA_CHECK(!work.create_file || !work.writes.empty());
  check_places(work);
  const std::string path = session_path(job.folder, work.id);
  bool prepared = false;
  const auto prepare = [&] {
    prepared = true;
    return prepare_index(job, work, result);
  };
  Status status;
  if (!work.writes.empty()) {
    status = write_session_file(path, work, {Sync::now, prepare}, result);
  } else {
    if (work.written_ahead) status = sync_session_file(job, work);
    if (status.ok()) status = prepare();
  }
  const bool written = status.ok();
  if (written) status = publish_index(job, work.id, result);
  if (written && work.create_file && !result.published) (void)remove_if_there(path);
  if (prepared) drop_unpublished(job, work.id, result);
  if (!result.published) result.digests.clear();
  if (!work.writes.empty() || work.written_ahead) report_size(job.folder, work.id, result);
  return status;
}

Status DiskWriter::write_ahead(const WriteJob& job, const ExtentsJob& work, WriteResult& result) {
  STRATA_CHECK(!work.writes.empty());
  Status status =
      write_session_file(session_path(job.folder, work.id), work, {Sync::with_the_publication, {}}, result);
  if (!status.ok()) result.digests.clear();
  report_size(job.folder, work.id, result);
  return status;
}

// What jobs before this one wrote, and the name of the file if they created it.
Status DiskWriter::sync_session_file(const WriteJob& job, const PublishJob& work) {
  STRATA_ASSIGN(const OpenedFile opened,
                open_for_writing(session_path(job.folder, work.id), OpenMode::read_write));
  const OpenFile file(files_, opened.handle);
  STRATA_TRY(in_context(files_.sync_data(file.get()), "session file"));
  return sync_folder(job.folder);
}

Status DiskWriter::write_session_file(const std::string& path, const ExtentsJob& work, const FileWrite& how,
                                      WriteResult& result) {
  const auto opened =
      open_for_writing(path, work.create_file ? OpenMode::create_exclusive : OpenMode::read_write);
  if (!opened.ok()) return opened.error();
  // A write-back that fails later is told to those who have the file open then: buffered bytes go out now.
  const bool sync_now = how.sync == Sync::now || opened->caching == Caching::buffered;
  Status status;
  {
    const OpenFile file(files_, opened->handle);
    status = write_parts(file.get(), work, how, result);
    if (status.ok() && sync_now) status = in_context(files_.sync_data(file.get()), "session file");
  }
  if (!status.ok() && work.create_file) (void)remove_if_there(path);
  return status;
}

// Direct where the file system can. A creation that was refused may have left an empty file of ours behind.
Result<DiskWriter::OpenedFile> DiskWriter::open_for_writing(const std::string& path, OpenMode mode) {
  auto handle = files_.open(path, mode, Caching::direct);
  if (handle.ok()) return OpenedFile{*handle, Caching::direct};
  if (handle.error().code != ErrorCode::unsupported) return handle.error();
  if (mode == OpenMode::create_exclusive) {
    const auto left = files_.info(path);
    if (left.ok() && left->regular && left->size_bytes == 0) STRATA_TRY(remove_if_there(path));
  }
  STRATA_ASSIGN(const FileHandle buffered, files_.open(path, mode, Caching::buffered));
  return OpenedFile{buffered, Caching::buffered};
}

Status DiskWriter::write_parts(FileHandle file, const ExtentsJob& work, const FileWrite& how,
                               WriteResult& result) {
  alignas(limits::kAlignment) SessionHeaderBytes header_bytes = encode_session_header(work.header);
  const OptionalHeader header = work.create_file ? OptionalHeader(header_bytes) : std::nullopt;
  for (const Range& range : written_ranges(header, work.writes)) {
    const Status allocated = files_.allocate(file, range.offset, range.length);
    if (!allocated.ok() && allocated.error().code != ErrorCode::unsupported) {
      return with_context(allocated.error(), "session file");
    }
  }
  ++batch_;
  TransferRun run(io_, gate_, transfers_of(file, header, work.writes, batch_), batch_);
  result.digests.reserve(work.writes.size());
  // Digests are computed, and what else there is to do is done, while transfers are in flight.
  bool beside = static_cast<bool>(how.beside);
  while (run.busy() || (run.status().ok() && (run.to_submit() || beside || digests_left(work, result)))) {
    run.submit();
    const bool working = run.status().ok() && (beside || digests_left(work, result));
    if (working && digests_left(work, result)) {
      result.digests.push_back(digest_of(work.writes[result.digests.size()]));
    } else if (working) {
      beside = false;
      if (const Status done = how.beside(); !done.ok()) run.stop(done.error());
    }
    run.collect(working);
  }
  result.written_bytes += run.written_bytes();
  return run.status();
}

// The index under its temporary name, on disk; nothing refers to it yet. It must not outlive the name of the
// file that it refers to, in whatever order names reach the disk.
Status DiskWriter::prepare_index(const WriteJob& job, const PublishJob& work, WriteResult& result) {
  if (work.create_file) STRATA_TRY(sync_folder(job.folder));
  Manifest manifest = work.manifest;
  for (size_t i = 0; i < work.writes.size(); ++i) {
    manifest.parts[work.writes[i].manifest_index].digest = result.digests[i];
  }
  const std::string path = temporary_path(job.folder, work.id);
  STRATA_TRY(remove_if_there(path));
  return write_temporary_index(path, manifest, result);
}

// All of it at once, for work that has nothing else to do meanwhile.
Status DiskWriter::write_index(const WriteJob& job, const Manifest& manifest, WriteResult& result) {
  const ConversationId id = manifest.head.id;
  const std::string path = temporary_path(job.folder, id);
  STRATA_TRY(remove_if_there(path));
  Status status = write_temporary_index(path, manifest, result);
  if (status.ok()) status = publish_index(job, id, result);
  drop_unpublished(job, id, result);
  return status;
}

// What is left of an index that was not published.
void DiskWriter::drop_unpublished(const WriteJob& job, ConversationId id, WriteResult& result) {
  if (!result.published && remove_if_there(temporary_path(job.folder, id)).ok())
    result.index_allocated_bytes = 0;
}

Status DiskWriter::write_temporary_index(const std::string& path, const Manifest& manifest,
                                         WriteResult& result) {
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  if (bytes.size() > limits::kMaxManifestBytes) {
    return make_error(ErrorCode::exhausted, path + ": the index is larger than the format allows");
  }
  STRATA_ASSIGN(const FileHandle handle, files_.open(path, OpenMode::create_exclusive, Caching::buffered));
  const OpenFile file(files_, handle);
  result.index_allocated_bytes = align_up(bytes.size(), limits::kAlignment);
  STRATA_TRY(in_context(files_.write_at(file.get(), bytes, 0), "index"));
  result.written_bytes += bytes.size();
  STRATA_TRY(in_context(files_.sync_data(file.get()), "index"));
  STRATA_ASSIGN(const FileInfo info, files_.info(file.get()));
  result.index_allocated_bytes = info.allocated_bytes;
  (void)files_.set_modified(path, static_cast<int64_t>(manifest.head.last_used_ns));
  return {};
}

Status DiskWriter::publish_index(const WriteJob& job, ConversationId id, WriteResult& result) {
  const std::string temporary = temporary_path(job.folder, id);
  Status status = files_.rename(temporary, index_path(job.folder, id));
  // A rename may be carried out and still be answered with an error (network file systems).
  const auto left = status.ok() ? Result<FileInfo>(FileInfo{}) : files_.info(temporary);
  result.published = status.ok() || (!left.ok() && left.error().code == ErrorCode::not_found);
  return result.published ? first_error(std::move(status), sync_folder(job.folder)) : status;
}

// ---- release and quarantine

Status DiskWriter::release(const WriteJob& job, const ReleaseJob& work, WriteResult& result) {
  Status status;
  if (work.remove_index) {
    status = remove_if_there(index_path(job.folder, work.id));
    if (status.ok()) status = sync_folder(job.folder);
  }
  const bool index_gone = status.ok();
  for (const ReleaseJob::FileRelease& file : work.files) {
    if (index_gone)
      status = first_error(std::move(status), release_file(session_path(job.folder, file.file), file));
    report_size(job.folder, file.file, result);
  }
  return status;
}

Status DiskWriter::release_file(const std::string& path, const ReleaseJob::FileRelease& file) {
  if (file.remove_file) return remove_if_there(path);
  if (file.punch.empty()) return {};
  STRATA_ASSIGN(const FileHandle handle, files_.open(path, OpenMode::read_write, Caching::buffered));
  const OpenFile open(files_, handle);
  Status status;
  for (const FreedExtent& extent : file.punch) {
    Status punched = files_.punch(open.get(), extent.offset, extent.length);
    if (!punched.ok() && punched.error().code == ErrorCode::unsupported) continue;  // reused, not given back
    status = first_error(std::move(status), std::move(punched));
  }
  return status;
}

Status DiskWriter::quarantine(const WriteJob& job, const QuarantineJob& work, WriteResult& result) {
  const std::string path = index_path(job.folder, work.id);
  const std::string bad = path + ".bad";
  STRATA_TRY(files_.rename(path, bad));
  const auto info = files_.info(bad);
  if (info.ok()) result.index_allocated_bytes = info->allocated_bytes;
  return sync_folder(job.folder);
}

void DiskWriter::touch(const WriteJob& job, const TouchJob& work) {
  for (const TouchJob::Use& use : work.uses) {
    (void)files_.set_modified(index_path(job.folder, use.id), static_cast<int64_t>(use.used_ns));
  }
}

// ---- common

Status DiskWriter::remove_if_there(const std::string& path) {
  const Status status = files_.unlink(path);
  if (!status.ok() && status.error().code == ErrorCode::not_found) return {};
  return status;
}

// A folder that cannot be flushed at all (some network file systems) is not an error.
Status DiskWriter::sync_folder(const std::string& folder) {
  const Status status = files_.sync_directory(folder);
  if (!status.ok() && status.error().code == ErrorCode::unsupported) return {};
  return status;
}

void DiskWriter::report_size(const std::string& folder, ConversationId file, WriteResult& result) {
  const auto info = files_.info(session_path(folder, file));
  if (info.ok()) {
    result.files.push_back({file, info->allocated_bytes});
  } else if (info.error().code == ErrorCode::not_found) {
    result.files.push_back({file, 0});
  }
}

}  // namespace strata
