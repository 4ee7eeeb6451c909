// A Device that fails on demand: the n-th allocation, copy, event or registration; and answers "done" late.
// With no fault set it must be indistinguishable from the device inside. Does not own it. One thread at a
// time. Models need a plugin's device; give them the one inside and this one to whoever moves their bytes.
#pragma once

#include "core/device.hpp"

namespace strata::testing {

struct DeviceFaults {  // n-th call; 0: none
  uint64_t fail_allocate_at = 0;
  uint64_t fail_copy_at = 0;
  uint64_t fail_record_at = 0;
  uint64_t fail_finish_at = 0;  // done() and wait() together
  uint64_t fail_register_at = 0;
  bool fail_from_then_on = false;  // and so do all after it
  uint32_t late_answers = 0;       // done() says no this often before it asks the device
  Error error{ErrorCode::io, 0, "injected fault"};
};

class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(Device& inner, const DeviceFaults& faults = {}) : inner_(inner), faults_(faults) {}

  void set_faults(const DeviceFaults& faults);  // counting starts again
  [[nodiscard]] uint64_t injected() const { return injected_; }
  [[nodiscard]] uint64_t copies() const { return copies_; }

  Result<DeviceInfo> info() override { return inner_.info(); }
  Result<DeviceMemory> allocate(uint64_t bytes) override;
  void free(DeviceMemory memory) override { inner_.free(memory); }
  Status register_host(std::span<std::byte> memory) override;
  Status unregister_host(std::span<std::byte> memory) override { return inner_.unregister_host(memory); }
  Result<DeviceStream> create_stream() override { return inner_.create_stream(); }
  void destroy_stream(DeviceStream stream) override { inner_.destroy_stream(stream); }
  Status copy_async(void* to, const void* from, uint64_t bytes, CopyDirection direction,
                    DeviceStream stream) override;
  Result<DeviceEvent> create_event() override { return inner_.create_event(); }
  void destroy_event(DeviceEvent event) override { inner_.destroy_event(event); }
  Status record(DeviceEvent event, DeviceStream stream) override;
  Result<bool> done(DeviceEvent event) override;
  Status wait(DeviceEvent event) override;
  Status stream_wait(DeviceStream stream, DeviceEvent event) override {
    return inner_.stream_wait(stream, event);
  }

 private:
  [[nodiscard]] bool fails(uint64_t& calls, uint64_t at);

  Device& inner_;
  DeviceFaults faults_;
  uint64_t allocations_ = 0;
  uint64_t copies_ = 0;
  uint64_t records_ = 0;
  uint64_t finishes_ = 0;
  uint64_t registrations_ = 0;
  uint64_t injected_ = 0;
  uint32_t late_ = 0;
};

}  // namespace strata::testing
