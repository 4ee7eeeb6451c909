// WriterThread: the disk tier's write queue on a thread of its own (DISK-1), at low CPU and I/O priority.
//
// Jobs run in the order they were posted. While a foreground read runs no job and no further transfer of a
// running job is started, until the job has waited kWriterDeadlineNs since it was posted: idle priority must
// not mean never. Ownership: the file system and the clock must outlive it. A job's buffers are released by
// whoever drops its result, never by this thread. The destructor finishes what is queued, foreground or not,
// and joins. Thread-safety: post, cancel, collect and set_foreground from one thread, the engine loop; they
// never wait for the disk. Errors: those of the queue's creation. A job's errors are in its result.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/io_queue.hpp"
#include "core/result.hpp"
#include "tiers/disk_writer.hpp"

namespace strata {

class WriterThread final : public WriteQueue {
 public:
  // Called on the writer thread, where the queue is used and destroyed (rings are bound to the thread that
  // made them).
  using MakeQueue = std::function<Result<std::unique_ptr<IoQueue>>()>;
  // Called on the writer thread after each result: makes the engine loop look into collect().
  using Wake = std::function<void()>;

  static Result<std::unique_ptr<WriterThread>> start(FileSystem& files, Clock& clock, MakeQueue make_queue,
                                                     Wake wake);
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

  WriterThread(FileSystem& files, Clock& clock, Wake wake)
      : files_(files), clock_(clock), wake_(std::move(wake)) {}
  void run(const MakeQueue& make_queue);
  void serve(IoQueue& io);
  bool next_job(Queued& next);
  void deliver(WriteResult result);
  void wait_for_foreground(std::unique_lock<std::mutex>& lock, uint64_t deadline_ns);
  [[nodiscard]] bool must_wait(uint64_t deadline_ns) const;

  FileSystem& files_;
  Clock& clock_;
  Wake wake_;
  mutable std::mutex mutex_;  // everything below but the thread
  std::condition_variable changed_;
  std::deque<Queued> queue_;
  std::vector<WriteResult> results_;
  Status started_;
  bool ready_ = false;  // started_ is known
  bool foreground_ = false;
  bool stopping_ = false;
  bool held_back_ = false;
  std::thread thread_;
};

}  // namespace strata
