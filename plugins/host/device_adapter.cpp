#include "plugins/host/device_adapter.hpp"

#include <string>
#include <utility>

#include "plugins/host/abi_error.hpp"

namespace strata {
namespace {

template <size_t Size>
std::string bounded(const char (&text)[Size]) {
  size_t length = 0;
  while (length < Size && text[length] != '\0') ++length;
  return std::string(text, length);
}

}  // namespace

Result<std::unique_ptr<DeviceAdapter>> DeviceAdapter::make(const strata_device* table,
                                                           strata_instance* instance, int32_t index) {
  std::unique_ptr<DeviceAdapter> adapter(new DeviceAdapter(table, instance, index));
  const int32_t devices = table->count(instance);
  if (index < 0 || index >= devices) {
    return make_error(ErrorCode::unavailable, std::string("device ") + table->plugin.name + ": index " +
                                                  std::to_string(index) + " of " + std::to_string(devices));
  }
  return adapter;
}

bool DeviceAdapter::registers() const {
  return ((table_->plugin.caps_required | table_->plugin.caps_optional) & STRATA_DEVICE_CAP_HOST_REGISTER) !=
         0;
}

Result<DeviceInfo> DeviceAdapter::info() {
  strata_error error = empty_abi_error();
  strata_device_info info{};
  info.struct_size = sizeof info;
  STRATA_TRY(from_abi(table_->info(instance_, index_, &info, &error), error, "device info"));
  DeviceInfo result;
  result.name = bounded(info.name);
  result.uuid = bounded(info.uuid);
  result.total_bytes = info.memory_total;
  result.free_bytes = info.memory_free;
  result.pinned_alignment = info.pinned_alignment == 0 ? 1 : info.pinned_alignment;
  result.unified_memory = info.unified_memory != 0;
  return result;
}

Result<DeviceMemory> DeviceAdapter::allocate(uint64_t bytes) {
  strata_error error = empty_abi_error();
  DeviceMemory memory;
  STRATA_TRY(
      from_abi(table_->alloc(instance_, index_, bytes, &memory.address, &error), error, "device memory"));
  if (memory.address == nullptr)
    return make_error(ErrorCode::internal, "device memory: the plugin returned none");
  return memory;
}

void DeviceAdapter::free(DeviceMemory memory) {
  if (memory.address != nullptr) table_->free(instance_, index_, memory.address);
}

Status DeviceAdapter::register_host(std::span<std::byte> memory) {
  if (!registers()) return make_error(ErrorCode::unsupported, "pinning memory: the device cannot");
  strata_error error = empty_abi_error();
  return from_abi(table_->host_register(instance_, memory.data(), memory.size(), &error), error,
                  "pinning memory");
}

Status DeviceAdapter::unregister_host(std::span<std::byte> memory) {
  if (!registers()) return make_error(ErrorCode::unsupported, "unpinning memory: the device cannot");
  strata_error error = empty_abi_error();
  return from_abi(table_->host_unregister(instance_, memory.data(), &error), error, "unpinning memory");
}

Result<DeviceStream> DeviceAdapter::create_stream() {
  strata_error error = empty_abi_error();
  DeviceStream stream;
  STRATA_TRY(
      from_abi(table_->stream_create(instance_, index_, &stream.handle, &error), error, "device stream"));
  return stream;
}

void DeviceAdapter::destroy_stream(DeviceStream stream) {
  if (stream.handle != nullptr) table_->stream_destroy(instance_, stream.handle);
}

Status DeviceAdapter::copy_async(void* to, const void* from, uint64_t bytes, CopyDirection direction,
                                 DeviceStream stream) {
  static_assert(static_cast<int32_t>(CopyDirection::host_to_device) == STRATA_COPY_HOST_TO_DEVICE);
  static_assert(static_cast<int32_t>(CopyDirection::device_to_host) == STRATA_COPY_DEVICE_TO_HOST);
  static_assert(static_cast<int32_t>(CopyDirection::device_to_device) == STRATA_COPY_DEVICE_TO_DEVICE);
  strata_error error = empty_abi_error();
  return from_abi(
      table_->copy_async(instance_, to, from, bytes, static_cast<int32_t>(direction), stream.handle, &error),
      error, "device copy");
}

Result<DeviceEvent> DeviceAdapter::create_event() {
  strata_error error = empty_abi_error();
  DeviceEvent event;
  STRATA_TRY(from_abi(table_->event_create(instance_, index_, &event.handle, &error), error, "device event"));
  return event;
}

void DeviceAdapter::destroy_event(DeviceEvent event) {
  if (event.handle != nullptr) table_->event_destroy(instance_, event.handle);
}

Status DeviceAdapter::record(DeviceEvent event, DeviceStream stream) {
  strata_error error = empty_abi_error();
  return from_abi(table_->event_record(instance_, event.handle, stream.handle, &error), error,
                  "device event");
}

Result<bool> DeviceAdapter::done(DeviceEvent event) {
  strata_error error = empty_abi_error();
  int32_t done = 0;
  STRATA_TRY(from_abi(table_->event_query(instance_, event.handle, &done, &error), error, "device event"));
  return done != 0;
}

Status DeviceAdapter::wait(DeviceEvent event) {
  strata_error error = empty_abi_error();
  return from_abi(table_->event_wait(instance_, event.handle, &error), error, "device event");
}

Status DeviceAdapter::stream_wait(DeviceStream stream, DeviceEvent event) {
  strata_error error = empty_abi_error();
  return from_abi(table_->stream_wait(instance_, stream.handle, event.handle, &error), error,
                  "device stream");
}

}  // namespace strata
