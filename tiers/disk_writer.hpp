// DiskWriter: carries out the write, free and remove jobs of the disk tier in the order that keeps the crash
// promise (B-6): extents → fdatasync; meanwhile, for a new file, directory sync, then idx.tmp → fdatasync;
// when both are on disk rename → directory sync → published; removal: unlink index → directory sync → punch
// extents or unlink the file. A failed sync is final: the conversation is dropped, never retried.
//
// Ownership: a job is immutable and holds references to the buffers it writes; they come back with its
// result, so that buffers are only released on the engine loop. Thread-safety: the writer lives on one
// thread; jobs and results cross through a WriteQueue.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/image.hpp"
#include "core/io_queue.hpp"
#include "core/manifest.hpp"
#include "core/result.hpp"
#include "core/session_file.hpp"

namespace strata {

using JobId = uint64_t;

// Buffers are shared and immutable, and extents are whole pages: who fills a buffer zeroes the bytes between
// the payload and the next multiple of kAlignment before sharing it. The writer writes them as they are.
struct PartWrite {
  HostBufferRef source;       // payload at its beginning
  PartPlace place;            // what its digest is bound to; of the own file
  uint64_t bytes = 0;         // payload
  uint64_t offset = 0;        // in the own file, aligned
  size_t manifest_index = 0;  // of a publication: whose digest the writer fills in
};

// Write extents of one conversation ahead of its publication (disk mode: the state passes through a few
// buffers). Nothing refers to them yet: what a crash leaves is an interrupted write.
struct ExtentsJob {
  ConversationId id;
  bool create_file = false;  // the .sess does not exist yet (only with parts to write)
  SessionHeader header;
  std::vector<PartWrite> writes;
};

// Publish one generation of one conversation.
struct PublishJob : ExtentsJob {
  uint64_t file_length = 0;    // of the own file after the job
  bool written_ahead = false;  // extents of the manifest were written by ExtentsJobs: synced before the index
  Manifest manifest;           // complete but for the digests of `writes`
};

struct FreedExtent {
  uint64_t offset = 0;
  uint64_t length = 0;  // aligned
};

// Give space back: unlink an index first (if remove_index), then punch extents of a file or unlink it whole.
struct ReleaseJob {
  ConversationId id;
  bool remove_index = false;
  struct FileRelease {
    ConversationId file;
    bool remove_file = false;
    std::vector<FreedExtent> punch;
  };
  std::vector<FileRelease> files;
};

// Rename a bad conversation's index to conv-<id>.idx.bad; its session file stays for others that refer to it.
struct QuarantineJob {
  ConversationId id;
};

// Conversations that were used without being published anew: the times of their indexes say so. Best effort.
struct TouchJob {
  struct Use {
    ConversationId id;
    uint64_t used_ns = 0;  // wall
  };
  std::vector<Use> uses;
};

// Set by the engine loop, asked by the writer.
class StopFlag {
 public:
  void set() { set_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool is_set() const { return set_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> set_{false};
};

// Copy what is in use of a session file into a new one, and publish every conversation that refers to it
// anew: extents → fdatasync → directory sync → one index after the other. Both files stay whole: the caller
// releases the old one when nobody refers to it any more.
struct CompactJob {
  std::shared_ptr<const StopFlag> stop;  // asked between pieces; then the job ends as cancelled
  struct Move {
    PartPlace from, to;  // of the same part: in the old file, in the new one
    uint64_t bytes = 0;
    uint64_t from_offset = 0, to_offset = 0;
    Digest digest;  // in the old file; what does not match it ends the job
  };
  struct Index {
    Manifest manifest;                             // complete but for the digests of what moves
    std::vector<std::pair<size_t, size_t>> moved;  // part of the manifest, and which move that is
  };
  SessionHeader header;  // of the new file; its id names it
  ConversationId from;
  std::vector<Move> moves;
  std::vector<Index> indexes;
};

using WriteWork = std::variant<PublishJob, ExtentsJob, ReleaseJob, QuarantineJob, TouchJob, CompactJob>;

struct WriteJob {
  JobId id = 0;
  std::string folder;
  WriteWork work;
};
using WriteJobRef = std::shared_ptr<const WriteJob>;

struct WriteResult {
  JobId id = 0;
  WriteJobRef job;                    // brings the buffer references back
  Status status;                      // cancelled: never started
  bool published = false;             // also true when only the directory sync after the rename failed
  std::vector<Digest> digests;        // one per write or move; empty unless published, or written ahead
  std::vector<uint64_t> index_bytes;  // of a compaction: allocated, of the indexes published, in order
  // Of the index published, of the .bad file after a quarantine, or of a temporary index left behind.
  uint64_t index_allocated_bytes = 0;
  uint64_t written_bytes = 0;  // extents with their padding, header and index
  uint64_t duration_ns = 0;
  struct FileSize {
    ConversationId file;
    uint64_t allocated_bytes = 0;  // after the job; 0: gone
  };
  std::vector<FileSize>
      files;  // the session files the job touched, whatever its status; not those it could not ask
};

// The result of a job that was cancelled before it started.
[[nodiscard]] WriteResult cancelled_result(WriteJobRef job);

// The two ends of the mailbox. post/cancel/collect are called by the engine loop and never wait.
class WriteQueue {
 public:
  virtual ~WriteQueue() = default;
  virtual void post(WriteJobRef job) = 0;
  // True when the job had not started and never will; its result (cancelled) still comes through collect.
  virtual bool cancel(JobId id) = 0;
  virtual std::vector<WriteResult> collect() = 0;
  // A foreground read runs: the writer holds back new transfers, unless it is past its deadline.
  virtual void set_foreground(bool reading) = 0;
};

// Asked before transfers are started; may wait, to let foreground reads go first.
class TransferGate {
 public:
  virtual ~TransferGate() = default;
  virtual void before_transfer() = 0;
  // Of work that nobody waits for: it gives way for as long as it takes, or until it is told to stop.
  virtual void before_background_transfer(const StopFlag& stop) = 0;
};

// What a failed job leaves behind: nothing of its own (temporary index, a session file it created), and
// everything that was published before. Extents written into an existing session file are free space again
// for the caller. A release whose index could not be removed for good gives no bytes back: an index that may
// still be there refers to them. Other failed steps of a release do not stop the rest; the first error is the
// job's.
class DiskWriter {
 public:
  // `io` is used by run() alone. Without a gate transfers start at once.
  DiskWriter(FileSystem& files, IoQueue& io, Clock& clock, TransferGate* gate = nullptr)
      : files_(files), io_(io), clock_(clock), gate_(gate) {}
  // Runs one job from its first system call to its last. Blocks; meant for the writer's own thread.
  WriteResult run(const WriteJobRef& job);

 private:
  struct OpenedFile {
    FileHandle handle;
    Caching caching = Caching::direct;
  };
  enum class Sync : uint8_t { now, with_the_publication };
  struct FileWrite {
    Sync sync = Sync::now;
    std::function<Status()> beside;  // called once, with all digests there, while transfers are in flight
  };
  Status publish(const WriteJob& job, const PublishJob& work, WriteResult& result);
  Status write_ahead(const WriteJob& job, const ExtentsJob& work, WriteResult& result);
  Status write_session_file(const std::string& path, const ExtentsJob& work, const FileWrite& how,
                            WriteResult& result);
  Status sync_session_file(const WriteJob& job, const PublishJob& work);
  Status write_parts(FileHandle file, const ExtentsJob& work, const FileWrite& how, WriteResult& result);
  Status prepare_index(const WriteJob& job, const PublishJob& work, WriteResult& result);
  Status write_index(const WriteJob& job, const Manifest& manifest, WriteResult& result);
  void drop_unpublished(const WriteJob& job, ConversationId id, WriteResult& result);
  Status write_temporary_index(const std::string& path, const Manifest& manifest, WriteResult& result);
  Status publish_index(const WriteJob& job, ConversationId id, WriteResult& result);
  Status release(const WriteJob& job, const ReleaseJob& work, WriteResult& result);
  Status release_file(const std::string& path, const ReleaseJob::FileRelease& file);
  Status quarantine(const WriteJob& job, const QuarantineJob& work, WriteResult& result);
  void touch(const WriteJob& job, const TouchJob& work);
  Status compact(const WriteJob& job, const CompactJob& work, WriteResult& result);
  Status copy_extents(const std::string& folder, const CompactJob& work, WriteResult& result);
  Result<Digest> copy_extent(FileHandle from, FileHandle to, const CompactJob::Move& move,
                             const StopFlag& stop);
  Status publish_compacted(const WriteJob& job, const CompactJob& work, WriteResult& result);
  Result<OpenedFile> open_for_writing(const std::string& path, OpenMode mode);
  Status remove_if_there(const std::string& path);
  Status sync_folder(const std::string& folder);
  void report_size(const std::string& folder, ConversationId file, WriteResult& result);

  FileSystem& files_;
  IoQueue& io_;
  Clock& clock_;
  TransferGate* gate_;
  uint32_t batch_ = 0;  // tells completions of one job from late ones of an earlier
};

}  // namespace strata
