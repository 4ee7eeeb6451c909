// WriterThread: the disk tier's write queue on a thread of its own (DISK-1), at low CPU and I/O priority.
//
// Jobs run in the order they were posted. While a foreground read runs no job and no further transfer of a
// running job is started, until the job has waited kWriterDeadlineNs since it was posted: idle priority must
// not mean never.
//
// Ownership: the ports must outlive it; the I/O queue is used by the writer's thread alone until the
// destructor ends. A job's buffers are released by whoever drops its result, never by the writer's thread.
// The destructor finishes what is queued, foreground or not, and joins. Thread-safety: post, cancel, collect
// and set_foreground from one thread, the engine loop; they never wait for the disk. Errors: a job's are in
// its result.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/io_queue.hpp"
#include "core/log.hpp"
#include "tiers/disk_writer.hpp"

namespace strata {

class WriterThread final : public WriteQueue {
 public:
  // Called on the writer's thread after each result: makes the engine loop look into collect() soon.
  using Wake = std::function<void()>;

  WriterThread(FileSystem& files, IoQueue& io, Clock& clock, Log& log, Wake wake = {});
  ~WriterThread() override;
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;

  void post(WriteJobRef job) override;
  bool cancel(JobId id) override;
  std::vector<WriteResult> collect() override;
  void set_foreground(bool reading) override;

  // Is a job or a transfer waiting for a foreground read right now?
  [[nodiscard]] bool held_back() const;

 private:
  class Gate;
  struct Queued {
    WriteJobRef job;
    uint64_t deadline_ns = 0;  // monotonic
  };

  void run();
  bool next_job(Queued& next);
  void deliver(WriteResult result);
  void wait_for_foreground(std::unique_lock<std::mutex>& lock, uint64_t deadline_ns);
  [[nodiscard]] bool must_wait(uint64_t deadline_ns) const;

  FileSystem& files_;
  IoQueue& io_;
  Clock& clock_;
  Log& log_;
  Wake wake_;
  mutable std::mutex mutex_;  // everything from here to the thread
  std::condition_variable changed_;
  std::deque<Queued> queue_;
  std::vector<WriteResult> results_;
  bool foreground_ = false;
  bool stopping_ = false;
  bool held_back_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace strata
