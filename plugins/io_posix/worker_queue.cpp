#include "plugins/io_posix/worker_queue.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "plugins/sdk/error.hpp"
#include "plugins/sdk/transfer.hpp"

namespace strata::io_posix {
namespace {

constexpr uint64_t kLongestWaitNs =
    uint64_t{365} * 24 * 3600 * 1000000000;              // keeps the deadline representable
constexpr uint64_t kLongestAttempt = uint64_t{1} << 30;  // the system moves at most 2 GiB at once

int64_t attempt(const sdk::Transfer& transfer) {
  const auto length = static_cast<size_t>(std::min(transfer.length(), kLongestAttempt));
  const auto offset = static_cast<off_t>(transfer.offset());
  ssize_t result = -1;
  switch (transfer.kind()) {
    case STRATA_IO_READ:
      result = ::pread(transfer.fd(), transfer.data(), length, offset);
      break;
    case STRATA_IO_WRITE:
      result = ::pwrite(transfer.fd(), transfer.data(), length, offset);
      break;
    default:
      result = ::fdatasync(transfer.fd());
      break;
  }
  return result < 0 ? -errno : result;
}

strata_io_done carry_out(const strata_io_op& op) {
  if (op.kind > STRATA_IO_SYNC_DATA) return {op.cookie, STRATA_INVALID, EINVAL};
  sdk::Transfer transfer(op);
  while (transfer.advance(attempt(transfer)) == sdk::Transfer::Next::go_on) {
  }
  return transfer.done();
}

}  // namespace

WorkerQueue::~WorkerQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

strata_status WorkerQueue::start_threads(strata_error* error) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = 0;
  try {
    while (workers_.size() < threads_) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& refused) {
    failure = refused.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!workers_.empty()) return STRATA_OK;  // fewer threads are slower, not wrong
  sdk::fail_errno(error, failure, "io_posix: starting a thread");
  return STRATA_EXHAUSTED;
}

uint32_t WorkerQueue::in_flight() {
  const std::lock_guard lock(mutex_);
  return in_flight_;
}

strata_status WorkerQueue::submit(const strata_io_op* ops, uint32_t count, uint32_t* accepted,
                                  strata_error* error) {
  *accepted = 0;
  if (count == 0) return STRATA_OK;
  if (workers_.empty()) {
    if (const strata_status status = start_threads(error); status != STRATA_OK) return status;
  }
  {
    const std::lock_guard lock(mutex_);
    *accepted = std::min(count, max_in_flight_ - in_flight_);
    waiting_.insert(waiting_.end(), ops, ops + *accepted);
    in_flight_ += *accepted;
  }
  work_.notify_all();
  return STRATA_OK;
}

uint32_t WorkerQueue::poll(uint32_t min, uint64_t timeout_ns, strata_io_done* done, uint32_t capacity) {
  std::unique_lock lock(mutex_);
  const uint32_t wanted = std::min({min, capacity, in_flight_});
  if (done_.size() < wanted) {
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, kLongestWaitNs));
    finished_.wait_until(lock, deadline, [&] { return done_.size() >= wanted; });
  }
  const auto count = static_cast<uint32_t>(std::min<size_t>(capacity, done_.size()));
  std::copy_n(done_.begin(), count, done);
  done_.erase(done_.begin(), done_.begin() + count);
  in_flight_ -= count;
  return count;
}

void WorkerQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const strata_io_op op = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const strata_io_done done = carry_out(op);
    lock.lock();
    done_.push_back(done);
    finished_.notify_one();
  }
}

}  // namespace strata::io_posix
