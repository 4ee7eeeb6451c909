// The simplest device the ABI allows, written for tests: host memory, every copy done at once, every event
// done. Fresh and freed memory is filled with NaN, so that a read of memory nobody wrote shows in the
// results. Counts what is still allocated. The table has no optional function, so users take the one-by-one
// path. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "core/device.hpp"
#include "plugins/abi/strata_device.h"

namespace strata::testing {

class PlainDevice final : public Device {
 public:
  PlainDevice();
  PlainDevice(const PlainDevice&) = delete;
  PlainDevice& operator=(const PlainDevice&) = delete;
  ~PlainDevice() override;

  [[nodiscard]] const strata_device* table() const { return &table_; }
  [[nodiscard]] strata_instance* instance() { return reinterpret_cast<strata_instance*>(this); }

  [[nodiscard]] size_t allocations() const { return memory_.size(); }
  [[nodiscard]] size_t events() const { return events_; }
  void set_unified_memory(bool unified) { unified_ = unified; }
  void fail_allocation(uint32_t nth) { fail_allocation_ = nth; }  // 1: the next; 0: none

  Result<DeviceInfo> info() override;
  Result<DeviceMemory> allocate(uint64_t bytes) override;
  void free(DeviceMemory memory) override;
  Status register_host(std::span<std::byte> memory) override;
  Status unregister_host(std::span<std::byte> memory) override;
  Result<DeviceStream> create_stream() override;
  void destroy_stream(DeviceStream stream) override;
  Status copy_async(void* to, const void* from, uint64_t bytes, CopyDirection direction,
                    DeviceStream stream) override;
  Result<DeviceEvent> create_event() override;
  void destroy_event(DeviceEvent event) override;
  Status record(DeviceEvent event, DeviceStream stream) override;
  Result<bool> done(DeviceEvent event) override;
  Status wait(DeviceEvent event) override;
  Status stream_wait(DeviceStream stream, DeviceEvent event) override;

 private:
  strata_device table_;
  std::map<void*, uint64_t> memory_;
  size_t events_ = 0;
  bool unified_ = true;
  uint32_t fail_allocation_ = 0;
};

}  // namespace strata::testing
