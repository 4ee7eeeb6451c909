// CopyOut: copies blocks and checkpoints of a slot into pinned buffers, asynchronously on one stream. The
// slot may not change below what is copied until done. Ownership: holds parts and buffers; what a failed or
// dropped copy may still touch goes to UnsettledBuffers. One thread at a time. Never waits.
#pragma once

#include <vector>

#include "core/device.hpp"
#include "core/image.hpp"
#include "core/model.hpp"
#include "core/result.hpp"
#include "tiers/unsettled_buffers.hpp"

namespace strata {

class CopyOut {
 public:
  // Checkpoints are those of the slot's present length. Parts may be shared: a buffer becomes the RAM copy of
  // its part only when it holds the bytes.
  struct Item {
    PartRef part;
    HostBufferRef to;
  };
  struct Ports {
    Model& model;
    Device& device;
    UnsettledBuffers& unsettled;
    DeviceStream stream;
  };
  CopyOut(const Ports& ports, SlotId slot, std::vector<Item> items);
  ~CopyOut();
  CopyOut(const CopyOut&) = delete;
  CopyOut& operator=(const CopyOut&) = delete;

  enum class State : uint8_t { running, done, failed };
  State step();
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] SlotId slot() const { return slot_; }

 private:
  Status queue_next();
  State finish();
  State fail(Error error);
  void leave_buffers();

  Model& model_;
  Device& device_;
  UnsettledBuffers& unsettled_;
  DeviceStream stream_;
  SlotId slot_;
  std::vector<Item> items_;
  size_t next_ = 0;
  DeviceEvent event_;
  bool recorded_ = false;
  State state_ = State::running;
  bool failing_ = false;
  Error error_;
  uint64_t bytes_ = 0;
};

}  // namespace strata
