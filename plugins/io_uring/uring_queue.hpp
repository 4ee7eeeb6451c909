// Storage I/O through io_uring. Each operation is a small state machine (sdk/transfer.hpp): it is submitted
// until all its bytes moved or it failed.
//
// The ring is made by the first thread that submits, polls or registers, because the kernel binds it to that
// thread. Another thread may take the queue over while nothing is in flight: the ring is then made anew for
// it, with its registered buffers. While operations are in flight another thread is refused with UNAVAILABLE.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "plugins/abi/strata_io.h"
#include "plugins/io_uring/ring.hpp"
#include "plugins/sdk/transfer.hpp"

namespace strata::io_uring_plugin {

class UringQueue {
 public:
  UringQueue(const strata_host* host, uint32_t depth, RingFlags flags);
  ~UringQueue();  // waits for what is in flight, where it can
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  [[nodiscard]] uint32_t max_in_flight() const { return static_cast<uint32_t>(slots_.size()); }
  [[nodiscard]] uint32_t in_flight() const { return in_flight_; }
  strata_status submit(const strata_io_op* ops, uint32_t count, uint32_t* accepted, strata_error* error);
  strata_status poll(uint32_t min, uint64_t timeout_ns, strata_io_done* done, uint32_t capacity,
                     uint32_t* count, strata_error* error);
  strata_status register_buffer(void* memory, uint64_t bytes, strata_error* error);
  strata_status unregister_buffer(void* memory, strata_error* error);

 private:
  strata_status own_ring(strata_error* error);
  void accept(const strata_io_op& op);
  void finish(uint32_t slot);
  void prepare(io_uring_sqe* sqe, uint32_t slot);
  int flush();
  int enter_staged();
  void break_ring(int os_errno);
  void reap();
  int collect();
  int wait_for(uint32_t completions, uint64_t timeout_ns);

  const strata_host* host_;
  const RingFlags flags_;
  Ring ring_;
  uint64_t owner_ = 0;  // thread the ring is bound to
  std::vector<sdk::Transfer> slots_;
  std::vector<uint32_t> free_slots_;
  std::deque<uint32_t> pending_;  // slots that need an entry in the submission queue
  std::deque<uint32_t> staged_;   // in the submission queue, not yet taken by the kernel
  std::deque<strata_io_done> done_;
  uint32_t in_kernel_ = 0;
  uint32_t in_flight_ = 0;  // accepted and not yet handed out by poll
  int broken_ = 0;          // errno that ended the ring
};

}  // namespace strata::io_uring_plugin
