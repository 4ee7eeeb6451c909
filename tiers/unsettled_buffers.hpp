// Buffers of transfers that failed before the device said it was done with them: a copy may still touch them,
// so they are held, and counted, until the device answers. Ownership: holds the buffers; the device must
// outlive this. One thread at a time.
#pragma once

#include <list>
#include <vector>

#include "core/device.hpp"
#include "core/image.hpp"

namespace strata {

class UnsettledBuffers {
 public:
  explicit UnsettledBuffers(Device& device) : device_(device) {}
  ~UnsettledBuffers() { wait(); }
  UnsettledBuffers(const UnsettledBuffers&) = delete;
  UnsettledBuffers& operator=(const UnsettledBuffers&) = delete;

  // Everything that touches them was queued on `stream` before.
  void add(DeviceStream stream, std::vector<HostBufferRef> buffers);
  // Lets go what the device is done with.
  void step();
  // Waits for the device, and lets go everything, also what it does not answer for; before its streams go.
  void wait();
  [[nodiscard]] bool empty() const { return batches_.empty(); }

 private:
  struct Batch {
    DeviceStream stream;
    DeviceEvent event;
    bool recorded = false;
    std::vector<HostBufferRef> buffers;
  };
  bool record(Batch& batch);

  Device& device_;
  std::list<Batch> batches_;
};

}  // namespace strata
