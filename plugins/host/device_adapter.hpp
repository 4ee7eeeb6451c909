// The device kind of the plugin ABI as the Device port. Owns the instance. One thread at a time.
#pragma once

#include <memory>

#include "core/device.hpp"
#include "plugins/abi/strata_device.h"

namespace strata {

class DeviceAdapter final : public Device {
 public:
  // Takes the instance, also when the result is an error: the plugin has no device of that index, or none at
  // all.
  static Result<std::unique_ptr<DeviceAdapter>> make(const strata_device* table, strata_instance* instance,
                                                     int32_t index);
  ~DeviceAdapter() override { table_->plugin.destroy(instance_); }
  DeviceAdapter(const DeviceAdapter&) = delete;
  DeviceAdapter& operator=(const DeviceAdapter&) = delete;

  // For plugins that work on the same device; borrowed for the adapter's life.
  [[nodiscard]] const strata_device* table() const { return table_; }
  [[nodiscard]] strata_instance* instance() const { return instance_; }
  [[nodiscard]] int32_t index() const { return index_; }

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
  DeviceAdapter(const strata_device* table, strata_instance* instance, int32_t index)
      : table_(table), instance_(instance), index_(index) {}
  [[nodiscard]] bool registers() const;

  const strata_device* table_;
  strata_instance* instance_;
  int32_t index_;
};

}  // namespace strata
