// Threads that share out the tasks of one call and are waited for at its end. Which thread runs a task never
// changes its result. One caller at a time; the caller works too.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace strata::reference {

class WorkerPool {
 public:
  using Task = std::function<void(uint32_t task, uint32_t worker)>;

  explicit WorkerPool(uint32_t threads);  // at least 1, the caller included
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] uint32_t workers() const { return static_cast<uint32_t>(threads_.size()) + 1; }
  void run(uint32_t tasks, const Task& task);  // tasks must not throw

 private:
  void work(uint32_t worker);
  void drain(std::unique_lock<std::mutex>& lock, uint32_t worker);

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable finish_;
  const Task* task_ = nullptr;
  uint32_t next_ = 0;
  uint32_t count_ = 0;
  uint32_t unfinished_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace strata::reference
