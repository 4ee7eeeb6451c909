// PinnedPool: page-aligned host memory for parts, registered with the device where it allows, counted to the
// byte (RAM-1, invariant 3). Sizes are rounded up to size classes (page multiples, four steps per doubling);
// released buffers are kept for reuse and given back to the system when the budget is needed by another
// class. Large ones come from a page source where there is one: huge pages, touched ahead. Ownership: buffers
// may outlive the pool (they hold its state alive) and return to it when the last reference goes; the device,
// the log and the backing must outlive the last buffer. A buffer's bytes are whatever its last user left
// there. One thread at a time. A device or a queue that refuses a registration is not asked again: one log
// line, then plain memory. One that registers nothing by its nature is not worth a line for a queue.
#pragma once

#include <cstdint>
#include <memory>

#include "core/device.hpp"
#include "core/image.hpp"
#include "core/io_queue.hpp"
#include "core/log.hpp"
#include "core/page_source.hpp"
#include "core/result.hpp"

namespace strata {

class PinnedPool {
 public:
  // What large buffers come with, where there is such.
  struct Backing {
    PageSource* pages = nullptr;
    IoQueue* transfers = nullptr;  // they are registered with it; used by the pool's thread alone
  };

  // budget_bytes counts buffers in use and kept ones together, at their class size.
  PinnedPool(Device& device, Log& log, uint64_t budget_bytes) : PinnedPool(device, log, budget_bytes, {}) {}
  PinnedPool(Device& device, Log& log, uint64_t budget_bytes, const Backing& backing);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // What a buffer of `bytes` costs; at most a quarter more than asked for, rounded up to pages.
  [[nodiscard]] static uint64_t class_bytes(uint64_t bytes);
  // exhausted: the budget does not allow it, the system has no memory, or no part may be that large.
  Result<HostBufferRef> allocate(uint64_t bytes);
  [[nodiscard]] uint64_t in_use_bytes() const;
  [[nodiscard]] uint64_t allocated_bytes() const;  // in use and kept; never above the budget
  [[nodiscard]] uint64_t budget_bytes() const;
  // Gives kept buffers back to the system until at least `bytes` of the budget are unallocated, or none is
  // kept.
  void trim(uint64_t bytes);
  // A step towards one more kept buffer for parts of `bytes`, so that none is made on the path of a request:
  // a step touches one huge page at most, for a request may come meanwhile. False: the budget is used up, the
  // system has no memory, or such buffers are not made ahead.
  bool grow_ahead(uint64_t bytes);

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace strata
