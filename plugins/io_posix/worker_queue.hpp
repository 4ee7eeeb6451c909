// Storage I/O by worker threads with pread, pwrite and fdatasync: works wherever files do.
// The threads start with the first submission, and so inherit the priority of the thread that submits. Their
// signals are blocked. One thread at a time per instance, not necessarily always the same one.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "plugins/abi/strata_io.h"

namespace strata::io_posix {

class WorkerQueue {
 public:
  WorkerQueue(uint32_t threads, uint32_t max_in_flight) : threads_(threads), max_in_flight_(max_in_flight) {}
  ~WorkerQueue();  // finishes what was accepted
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  [[nodiscard]] uint32_t max_in_flight() const { return max_in_flight_; }
  [[nodiscard]] uint32_t in_flight();
  strata_status submit(const strata_io_op* ops, uint32_t count, uint32_t* accepted, strata_error* error);
  uint32_t poll(uint32_t min, uint64_t timeout_ns, strata_io_done* done, uint32_t capacity);

 private:
  strata_status start_threads(strata_error* error);
  void work();

  const uint32_t threads_;
  const uint32_t max_in_flight_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable work_;
  std::condition_variable finished_;
  std::deque<strata_io_op> waiting_;
  std::deque<strata_io_done> done_;
  uint32_t in_flight_ = 0;  // accepted and not yet handed out by poll
  bool stopping_ = false;
};

}  // namespace strata::io_posix
