// WorkerThread: blocking work of the engine loop on a thread of its own, in order. Ownership: what the work
// uses must stay valid until it ran; the destructor runs what is queued, then joins. Thread-safety: as the
// port says.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "core/worker.hpp"

namespace strata {

class WorkerThread final : public Worker {
 public:
  // wake: called on the worker's thread after each piece of work.
  explicit WorkerThread(std::function<void()> wake = [] {});
  ~WorkerThread() override;
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  void post(std::function<void()> work) override;
  void drain() override;

 private:
  void run();

  std::function<void()> wake_;
  std::mutex mutex_;  // everything from here to the thread
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool working_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace strata
