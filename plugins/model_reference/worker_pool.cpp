#include "plugins/model_reference/worker_pool.hpp"

namespace strata::reference {

WorkerPool::WorkerPool(uint32_t threads) {
  for (uint32_t worker = 1; worker < threads; ++worker)
    threads_.emplace_back([this, worker] { work(worker); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(uint32_t tasks, const Task& task) {
  if (tasks == 1 || threads_.empty()) {  // waking a thread costs more than a small task
    for (uint32_t i = 0; i < tasks; ++i) task(i, 0);
    return;
  }
  std::unique_lock lock(mutex_);
  task_ = &task;
  next_ = 0;
  count_ = unfinished_ = tasks;
  start_.notify_all();
  drain(lock, 0);
  finish_.wait(lock, [this] { return unfinished_ == 0; });
}

void WorkerPool::work(uint32_t worker) {
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [this] { return stop_ || next_ < count_; });
    if (stop_) return;
    drain(lock, worker);
  }
}

void WorkerPool::drain(std::unique_lock<std::mutex>& lock, uint32_t worker) {
  while (next_ < count_) {
    const uint32_t index = next_++;
    const Task& task = *task_;
    lock.unlock();
    task(index, worker);
    lock.lock();
    if (--unfinished_ == 0) finish_.notify_all();
  }
}

}  // namespace strata::reference
