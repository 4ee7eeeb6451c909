#include "plugins/io_uring/uring_queue.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

#include "plugins/sdk/error.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::io_uring_plugin {
namespace {

using sdk::fail;
using sdk::fail_errno;

constexpr uint64_t kSecondNs = 1000000000;
constexpr uint64_t kLongestWaitNs = uint64_t{365} * 24 * 3600 * kSecondNs;  // keeps deadlines representable
constexpr uint64_t kRetryNs = 1000000;  // when the kernel had no memory to take anything
constexpr uint64_t kLongestAttempt = uint64_t{1} << 30;

// Never reused, unlike thread ids.
uint64_t this_thread() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t mine = ++last;
  return mine;
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

bool passing(int result) { return result == -EAGAIN || result == -EBUSY || result == -EINTR; }

}  // namespace

UringQueue::UringQueue(const strata_host* host, uint32_t depth, RingFlags flags)
    : host_(host), flags_(flags), slots_(depth) {
  for (uint32_t slot = depth; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

UringQueue::~UringQueue() {
  if (!ring_.is_open() || owner_ != this_thread()) return;
  while (in_kernel_ > 0 && wait_for(1, kLongestWaitNs) == 0) reap();
}

strata_status UringQueue::own_ring(strata_error* error) {
  if (broken_ != 0) return fail_errno(error, broken_, "io_uring: the ring failed earlier");
  if (ring_.is_open() && owner_ == this_thread()) return STRATA_OK;
  if (in_kernel_ > 0) {
    return fail(error, STRATA_UNAVAILABLE, "io_uring: operations of another thread are in flight");
  }
  ring_.close();
  owner_ = this_thread();
  if (const int result = ring_.open(max_in_flight(), flags_); result < 0) {
    return fail_errno(error, -result, "io_uring: making a ring");
  }
  if (const uint32_t refused = ring_.register_again(); refused > 0) {
    sdk::log(host_, STRATA_LOG_WARNING,
             "io_uring: " + std::to_string(refused) +
                 " buffers could not be registered again; plain transfers are used");
  }
  return STRATA_OK;
}

void UringQueue::accept(const strata_io_op& op) {
  ++in_flight_;
  if (op.kind > STRATA_IO_SYNC_DATA) {
    done_.push_back({op.cookie, STRATA_INVALID, EINVAL});
    return;
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = sdk::Transfer(op);
  pending_.push_back(slot);
}

void UringQueue::finish(uint32_t slot) {
  done_.push_back(slots_[slot].done());
  free_slots_.push_back(slot);
}

void UringQueue::prepare(io_uring_sqe* sqe, uint32_t slot) {
  const sdk::Transfer& transfer = slots_[slot];
  const auto length = static_cast<unsigned>(std::min(transfer.length(), kLongestAttempt));
  const auto buffer = ring_.buffer_of(reinterpret_cast<uintptr_t>(transfer.data()), length);
  void* const data = transfer.data();
  if (transfer.kind() == STRATA_IO_SYNC_DATA) {
    io_uring_prep_fsync(sqe, transfer.fd(), IORING_FSYNC_DATASYNC);
  } else if (transfer.kind() == STRATA_IO_READ && buffer) {
    io_uring_prep_read_fixed(sqe, transfer.fd(), data, length, transfer.offset(), *buffer);
  } else if (transfer.kind() == STRATA_IO_READ) {
    io_uring_prep_read(sqe, transfer.fd(), data, length, transfer.offset());
  } else if (buffer) {
    io_uring_prep_write_fixed(sqe, transfer.fd(), data, length, transfer.offset(), *buffer);
  } else {
    io_uring_prep_write(sqe, transfer.fd(), data, length, transfer.offset());
  }
  io_uring_sqe_set_data64(sqe, slot);
}

// Hands everything that waits to the kernel, as far as it takes it; the rest is tried again by the next call.
int UringQueue::flush() {
  while (!pending_.empty() || !staged_.empty()) {
    io_uring_sqe* sqe = nullptr;
    while (!pending_.empty() && (sqe = io_uring_get_sqe(ring_.get())) != nullptr) {
      prepare(sqe, pending_.front());
      staged_.push_back(pending_.front());
      pending_.pop_front();
    }
    const int result = enter_staged();
    if (passing(result)) return 0;
    if (result < 0) return result;
  }
  return 0;
}

// One call may take less than all: the kernel stops a batch at an entry that is wrong.
int UringQueue::enter_staged() {
  while (!staged_.empty()) {
    const int taken = io_uring_submit(ring_.get());
    if (taken == 0) return -EAGAIN;
    if (taken < 0) {
      if (!passing(taken)) break_ring(-taken);
      return taken;
    }
    staged_.erase(staged_.begin(), staged_.begin() + std::min<ptrdiff_t>(taken, std::ssize(staged_)));
    in_kernel_ += static_cast<uint32_t>(taken);
  }
  return 0;
}

// What the kernel has not taken fails now; what it has taken may still complete.
void UringQueue::break_ring(int os_errno) {
  broken_ = os_errno;
  for (std::deque<uint32_t>* const queue : {&staged_, &pending_}) {
    for (const uint32_t slot : *queue) {
      slots_[slot].advance(-EIO);
      finish(slot);
    }
    queue->clear();
  }
}

void UringQueue::reap() {
  unsigned head = 0;
  unsigned seen = 0;
  io_uring_cqe* cqe = nullptr;
  io_uring_for_each_cqe(ring_.get(), head, cqe) {
    ++seen;
    const uint64_t slot = io_uring_cqe_get_data64(cqe);
    if (slot >= slots_.size()) continue;  // a time-out of liburing's own, on kernels that need one
    --in_kernel_;
    if (slots_[slot].advance(cqe->res) == sdk::Transfer::Next::finished) {
      finish(static_cast<uint32_t>(slot));
    } else {
      pending_.push_back(static_cast<uint32_t>(slot));
    }
  }
  io_uring_cq_advance(ring_.get(), seen);
}

// Takes in what is there already, without waiting.
int UringQueue::collect() {
  if (const int result = broken_ == 0 ? flush() : 0; result < 0) return 0;
  if (in_kernel_ > 0 && ring_.deferred()) {
    const int result = io_uring_get_events(ring_.get());
    if (result < 0 && !passing(result)) return result;
  }
  reap();
  return 0;
}

// 0 also when the time is over.
int UringQueue::wait_for(uint32_t completions, uint64_t timeout_ns) {
  if (in_kernel_ == 0) {
    const timespec pause{0, static_cast<long>(std::min(timeout_ns, kRetryNs))};
    nanosleep(&pause, nullptr);
    return 0;
  }
  __kernel_timespec timeout{static_cast<long long>(timeout_ns / kSecondNs),
                            static_cast<long long>(timeout_ns % kSecondNs)};
  io_uring_cqe* cqe = nullptr;
  const int result =
      io_uring_wait_cqes(ring_.get(), &cqe, std::min(completions, in_kernel_), &timeout, nullptr);
  return result == -ETIME || passing(result) ? 0 : std::min(result, 0);
}

strata_status UringQueue::submit(const strata_io_op* ops, uint32_t count, uint32_t* accepted,
                                 strata_error* error) {
  *accepted = 0;
  if (const strata_status status = own_ring(error); status != STRATA_OK) return status;
  *accepted = std::min(count, max_in_flight() - in_flight_);
  for (uint32_t i = 0; i < *accepted; ++i) accept(ops[i]);
  flush();  // a failure is the completion of the operations it hit
  return STRATA_OK;
}

strata_status UringQueue::poll(uint32_t min, uint64_t timeout_ns, strata_io_done* done, uint32_t capacity,
                               uint32_t* count, strata_error* error) {
  *count = 0;
  if (in_flight_ == 0) return STRATA_OK;
  if (in_kernel_ + pending_.size() + staged_.size() > 0) {
    if (owner_ != this_thread()) return fail(error, STRATA_UNAVAILABLE, "io_uring: poll on another thread");
    const uint64_t deadline = now_ns() + std::min(timeout_ns, kLongestWaitNs);
    const uint32_t wanted = std::min({min, capacity, in_flight_});
    int result = collect();
    while (result == 0 && done_.size() < wanted) {
      const uint64_t now = now_ns();
      if (now >= deadline) break;
      result = wait_for(wanted - static_cast<uint32_t>(done_.size()), deadline - now);
      if (result == 0) result = collect();
    }
    if (result < 0 && done_.empty()) return fail_errno(error, -result, "io_uring: waiting");
  }
  *count = static_cast<uint32_t>(std::min<size_t>(capacity, done_.size()));
  std::copy_n(done_.begin(), *count, done);
  done_.erase(done_.begin(), done_.begin() + *count);
  in_flight_ -= *count;
  return STRATA_OK;
}

strata_status UringQueue::register_buffer(void* memory, uint64_t bytes, strata_error* error) {
  if (memory == nullptr || bytes == 0) return fail(error, STRATA_INVALID, "io_uring: empty buffer");
  if (const strata_status status = own_ring(error); status != STRATA_OK) return status;
  const int result = ring_.register_memory(reinterpret_cast<uintptr_t>(memory), bytes);
  switch (-result) {
    case 0:
      return STRATA_OK;
    case EEXIST:
      return fail(error, STRATA_INVALID, "io_uring: memory is registered already", EEXIST);
    case EINVAL:
      return fail(error, STRATA_UNSUPPORTED, "io_uring: this kernel cannot register buffers singly", EINVAL);
    case ENOMEM:
      return fail(error, STRATA_EXHAUSTED, "io_uring: registering memory (memlock limit)", ENOMEM);
    case ENOSPC:
      return fail(error, STRATA_EXHAUSTED, "io_uring: the table of buffers is full", ENOSPC);
    default:
      return fail_errno(error, -result, "io_uring: registering memory");
  }
}

strata_status UringQueue::unregister_buffer(void* memory, strata_error* error) {
  if (const strata_status status = own_ring(error); status != STRATA_OK) return status;
  if (ring_.unregister_memory(reinterpret_cast<uintptr_t>(memory))) return STRATA_OK;
  return fail(error, STRATA_NOT_FOUND, "io_uring: memory is not registered");
}

}  // namespace strata::io_uring_plugin
