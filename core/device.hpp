// Port: device memory, pinned host memory, streams and events of one device.
// Copies are asynchronous in stream order; different streams run in any order relative to each other, so
// anything that crosses streams needs an event. Ownership: handles belong to the caller until destroyed. One
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/result.hpp"

namespace strata {

struct DeviceMemory {
  void* address = nullptr;
};
struct DeviceStream {
  void* handle = nullptr;
};  // null: the default stream
struct DeviceEvent {
  void* handle = nullptr;
};

enum class CopyDirection : uint8_t { host_to_device, device_to_host, device_to_device };

struct DeviceInfo {
  std::string name;
  std::string uuid;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  uint32_t pinned_alignment = 1;
  bool unified_memory = false;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Result<DeviceInfo> info() = 0;
  virtual Result<DeviceMemory> allocate(uint64_t bytes) = 0;
  virtual void free(DeviceMemory memory) = 0;
  virtual Status register_host(std::span<std::byte> memory) = 0;  // unsupported: plain memory is used
  virtual Status unregister_host(std::span<std::byte> memory) = 0;
  virtual Result<DeviceStream> create_stream() = 0;
  virtual void destroy_stream(DeviceStream stream) = 0;
  virtual Status copy_async(void* to, const void* from, uint64_t bytes, CopyDirection direction,
                            DeviceStream stream) = 0;
  virtual Result<DeviceEvent> create_event() = 0;
  virtual void destroy_event(DeviceEvent event) = 0;
  virtual Status record(DeviceEvent event, DeviceStream stream) = 0;  // after everything queued so far
  virtual Result<bool> done(DeviceEvent event) = 0;                   // true also when never recorded
  virtual Status wait(DeviceEvent event) = 0;                         // blocks the calling thread
  virtual Status stream_wait(DeviceStream stream,
                             DeviceEvent event) = 0;  // later work on stream runs after event
};

}  // namespace strata
