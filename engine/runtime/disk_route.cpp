#include "engine/runtime/disk_route.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "core/check.hpp"
#include "core/limits.hpp"

namespace strata {

namespace {

constexpr size_t kTrialBytes = 64 * limits::kKiB;
constexpr uint64_t kWaitNs = 100'000'000;  // of one poll
constexpr int kMaxPollErrors = 8;          // in a row

// Memory as pinned buffers have it: whole pages.
class Pages {
 public:
  Pages() : bytes_(static_cast<std::byte*>(::operator new(kTrialBytes, kAlign))) {}
  ~Pages() { ::operator delete(bytes_, kAlign); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::span<std::byte> span() { return {bytes_, kTrialBytes}; }

 private:
  static constexpr std::align_val_t kAlign{limits::kAlignment};
  std::byte* bytes_;
};

Status in_step(Status status, const char* step) {
  if (status.ok()) return status;
  return with_context(status.error(), step);
}

// One operation from submission to completion. Ends only when the queue holds it no more.
Status run_one(IoQueue& queue, const IoOp& op) {
  STRATA_ASSIGN(const size_t accepted, queue.submit(std::span(&op, 1)));
  if (accepted != 1) return make_error(ErrorCode::unavailable, "the queue takes no transfer");
  for (int errors = 0; errors < kMaxPollErrors;) {
    IoDone done;
    const auto count = queue.poll(1, kWaitNs, std::span(&done, 1));
    if (!count.ok())
      ++errors;
    else if (*count == 1)
      return std::move(done.status);
  }
  return make_error(ErrorCode::io, "the queue reports nothing");
}

class Trial {
 public:
  Trial(FileSystem& files, IoQueue& queue, const std::string& folder, Caching caching)
      : files_(files), queue_(queue), path_(folder + "/.strata-probe"), caching_(caching) {
    for (size_t i = 0; i < kTrialBytes; ++i) out_.span()[i] = static_cast<std::byte>(i * 7 + i / 4096 + 3);
    std::memset(back_.span().data(), 0, kTrialBytes);
  }

  Status run() {
    (void)files_.unlink(path_);
    Status status = write();
    if (status.ok()) status = read();
    (void)files_.unlink(path_);
    return status;
  }

 private:
  // As the writer does: the header by a call, extents by the queue.
  Status write() {
    STRATA_ASSIGN(const FileHandle file, files_.open(path_, OpenMode::create_exclusive, caching_));
    Status status = in_step(files_.write_at(file, out_.span().first(limits::kAlignment), 0), "write");
    if (status.ok()) status = in_step(run_one(queue_, operation(IoKind::write, file, out_)), "write");
    if (status.ok()) status = in_step(files_.sync_data(file), "flush");
    files_.close(file);
    return status;
  }

  Status read() {
    STRATA_ASSIGN(const FileHandle file, files_.open(path_, OpenMode::read, caching_));
    Status status = in_step(run_one(queue_, operation(IoKind::read, file, back_)), "read");
    files_.close(file);
    if (status.ok() && !std::ranges::equal(out_.span(), back_.span()))
      status = make_error(ErrorCode::io, "bytes read back differ");
    return status;
  }

  static IoOp operation(IoKind kind, FileHandle file, Pages& pages) {
    return {kind, file, pages.span().data(), kTrialBytes, limits::kSessionHeaderBytes, 1};
  }

  FileSystem& files_;
  IoQueue& queue_;
  std::string path_;
  Caching caching_;
  Pages out_;
  Pages back_;
};

const char* caching_text(bool direct) { return direct ? "O_DIRECT" : "the page cache"; }

// Says nothing about the way, but about the folder: the disk tier reports it in its own words.
bool is_about_the_folder(const Error& error) {
  return error.code == ErrorCode::exhausted || error.code == ErrorCode::not_found ||
         error.os_errno == EROFS || error.os_errno == EACCES;
}

}  // namespace

Status try_disk_route(FileSystem& files, IoQueue& queue, const std::string& folder, Caching caching) {
  return Trial(files, queue, folder, caching).run();
}

DiskRoute choose_disk_route(FileSystem& files, const std::string& folder,
                            const std::vector<IoCandidate>& candidates, const MakeIo& make) {
  std::string troubles;
  const auto note = [&](const std::string& trouble) { troubles += (troubles.empty() ? "" : "; ") + trouble; };
  std::vector<const IoCandidate*> usable;
  for (const IoCandidate& candidate : candidates) {
    if (candidate.unavailable.empty())
      usable.push_back(&candidate);
    else
      note(fmt::format("{}: {}", candidate.name, candidate.unavailable));
  }
  STRATA_CHECK(!usable.empty());
  const DiskRoute first{usable.front()->name, true, {}};
  for (const bool direct : {true, false}) {
    for (const IoCandidate* candidate : usable) {
      const auto queue = make(candidate->name);
      const Status tried =
          queue.ok() ? try_disk_route(files, **queue, folder, direct ? Caching::direct : Caching::buffered)
                     : Status(queue.error());
      if (tried.ok()) {
        if (troubles.empty()) return {candidate->name, direct, {}};
        return {candidate->name, direct,
                fmt::format("{}; using {} with {}", troubles, candidate->name, caching_text(direct))};
      }
      if (queue.ok() && is_about_the_folder(tried.error())) return first;
      note(fmt::format("{} with {}: {}", candidate->name, caching_text(direct), tried.error().message));
      if (queue.ok() && direct && tried.error().code == ErrorCode::unsupported)
        break;  // no queue changes that
    }
  }
  return {usable.back()->name, false,
          fmt::format("{}; none works, {} with {} is used all the same", troubles, usable.back()->name,
                      caching_text(false))};
}

}  // namespace strata
