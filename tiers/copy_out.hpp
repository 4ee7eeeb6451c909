// CopyOut: copies blocks and checkpoints of a slot into pinned buffers, asynchronously on one stream. The
// slot may not change below what is copied until done. Ownership: the parts' buffers are allocated before,
// and given back with the parts when the copy failed. One thread at a time. Never waits.
#pragma once

#include <vector>

#include "core/device.hpp"
#include "core/image.hpp"
#include "core/model.hpp"
#include "core/result.hpp"

namespace strata {

class CopyOut {
 public:
  // `parts` have a buffer and no other content yet; checkpoints are those of the slot's present length.
  CopyOut(Model& model, Device& device, DeviceStream stream, SlotId slot, std::vector<PartRef> parts);
  ~CopyOut();
  CopyOut(const CopyOut&) = delete;
  CopyOut& operator=(const CopyOut&) = delete;

  enum class State : uint8_t { running, done, failed };
  State step();
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] SlotId slot() const { return slot_; }
  // Blocks until nothing touches the buffers any more; for owners that go away.
  void settle();

 private:
  Status queue_next();
  State finish();

  Model& model_;
  Device& device_;
  DeviceStream stream_;
  SlotId slot_;
  std::vector<PartRef> parts_;
  size_t next_ = 0;
  DeviceEvent event_;
  bool recorded_ = false;
  State state_ = State::running;
  bool failing_ = false;
  Error error_;
  uint64_t bytes_ = 0;
};

}  // namespace strata
