#include "tests/support/plain_device.hpp"

#include <cstdio>
#include <cstring>

#include "core/check.hpp"

namespace strata::testing {
namespace {

constexpr int kPoison = 0xff;  // four of them are a NaN

PlainDevice& self(strata_instance* instance) { return *reinterpret_cast<PlainDevice*>(instance); }

strata_status to_abi(const Status& status, strata_error* error) {
  if (status.ok()) return STRATA_OK;
  *error = strata_error{};
  error->code = static_cast<int32_t>(status.error().code);
  std::snprintf(error->message, sizeof error->message, "%s", status.error().message.c_str());
  return error->code;
}

template <class T>
strata_status to_abi(const Result<T>& result, void** handle, strata_error* error) {
  if (!result.ok()) return to_abi(Status(result.error()), error);
  static_assert(sizeof(T) == sizeof(void*));
  std::memcpy(handle, &*result, sizeof(void*));
  return STRATA_OK;
}

strata_status table_info(strata_instance* instance, int32_t /*device*/, strata_device_info* out,
                         strata_error* error) {
  const Result<DeviceInfo> info = self(instance).info();
  if (!info.ok()) return to_abi(Status(info.error()), error);
  const uint32_t size = out->struct_size;
  *out = strata_device_info{};
  out->struct_size = size;
  out->pinned_alignment = info->pinned_alignment;
  out->unified_memory = info->unified_memory ? 1 : 0;
  std::snprintf(out->name, sizeof out->name, "%s", info->name.c_str());
  return STRATA_OK;
}

strata_device make_table() {
  strata_device t = {};
  t.plugin.struct_size = sizeof t;
  t.plugin.abi_major = STRATA_ABI_MAJOR;
  t.plugin.abi_minor = STRATA_ABI_MINOR;
  t.plugin.kind = STRATA_KIND_DEVICE;
  t.plugin.name = "plain";
  t.plugin.version = "1.0";
  t.count = [](strata_instance*) -> int32_t { return 1; };
  t.info = table_info;
  t.alloc = [](strata_instance* i, int32_t, uint64_t bytes, void** memory, strata_error* error) {
    return to_abi(self(i).allocate(bytes), memory, error);
  };
  t.free = [](strata_instance* i, int32_t, void* memory) { self(i).free({memory}); };
  t.stream_create = [](strata_instance* i, int32_t, void** stream, strata_error* error) {
    return to_abi(self(i).create_stream(), stream, error);
  };
  t.stream_destroy = [](strata_instance* i, void* stream) { self(i).destroy_stream({stream}); };
  t.copy_async = [](strata_instance* i, void* to, const void* from, uint64_t bytes, int32_t direction,
                    void* stream, strata_error* error) {
    return to_abi(self(i).copy_async(to, from, bytes, static_cast<CopyDirection>(direction), {stream}),
                  error);
  };
  t.event_create = [](strata_instance* i, int32_t, void** event, strata_error* error) {
    return to_abi(self(i).create_event(), event, error);
  };
  t.event_destroy = [](strata_instance* i, void* event) { self(i).destroy_event({event}); };
  t.event_record = [](strata_instance* i, void* event, void* stream, strata_error* error) {
    return to_abi(self(i).record({event}, {stream}), error);
  };
  t.event_query = [](strata_instance* i, void* event, int32_t* done, strata_error* error) {
    const Result<bool> result = self(i).done({event});
    *done = result.value_or(false) ? 1 : 0;
    return result.ok() ? STRATA_OK : to_abi(Status(result.error()), error);
  };
  t.event_wait = [](strata_instance* i, void* event, strata_error* error) {
    return to_abi(self(i).wait({event}), error);
  };
  t.stream_wait = [](strata_instance* i, void* stream, void* event, strata_error* error) {
    return to_abi(self(i).stream_wait({stream}, {event}), error);
  };
  return t;
}

}  // namespace

PlainDevice::PlainDevice() : table_(make_table()) {}

PlainDevice::~PlainDevice() {
  STRATA_CHECK(memory_.empty());  // whoever allocated gives back
  STRATA_CHECK(events_ == 0);
}

Result<DeviceInfo> PlainDevice::info() {
  DeviceInfo info;
  info.name = "plain test device";
  info.unified_memory = unified_;
  return info;
}

Result<DeviceMemory> PlainDevice::allocate(uint64_t bytes) {
  if (fail_allocation_ != 0 && --fail_allocation_ == 0)
    return make_error(ErrorCode::exhausted, "plain device: no memory");
  auto* memory = new std::byte[bytes];
  std::memset(memory, kPoison, bytes);
  memory_[memory] = bytes;
  return DeviceMemory{memory};
}

void PlainDevice::free(DeviceMemory memory) {
  const auto found = memory_.find(memory.address);
  STRATA_CHECK(found != memory_.end());
  delete[] static_cast<std::byte*>(memory.address);
  memory_.erase(found);
}

Status PlainDevice::register_host(std::span<std::byte> /*memory*/) {
  return make_error(ErrorCode::unsupported, "plain device: no pinned memory");
}
Status PlainDevice::unregister_host(std::span<std::byte> /*memory*/) {
  return make_error(ErrorCode::unsupported, "plain device: no pinned memory");
}

Result<DeviceStream> PlainDevice::create_stream() { return DeviceStream{this}; }
void PlainDevice::destroy_stream(DeviceStream /*stream*/) {}

Status PlainDevice::copy_async(void* to, const void* from, uint64_t bytes, CopyDirection /*direction*/,
                               DeviceStream /*stream*/) {
  std::memcpy(to, from, bytes);
  return {};
}

Result<DeviceEvent> PlainDevice::create_event() {
  ++events_;
  return DeviceEvent{this};
}
void PlainDevice::destroy_event(DeviceEvent /*event*/) {
  STRATA_CHECK(events_ != 0);
  --events_;
}
Status PlainDevice::record(DeviceEvent /*event*/, DeviceStream /*stream*/) { return {}; }
Result<bool> PlainDevice::done(DeviceEvent /*event*/) { return true; }
Status PlainDevice::wait(DeviceEvent /*event*/) { return {}; }
Status PlainDevice::stream_wait(DeviceStream /*stream*/, DeviceEvent /*event*/) { return {}; }

}  // namespace strata::testing
