#include "plugins/model_reference/bound_device.hpp"

#include "plugins/model_reference/failure.hpp"

namespace strata::reference {

BoundDevice::BoundDevice(const strata_device* table, strata_instance* instance, int32_t index)
    : table_(table),
      instance_(instance),
      index_(index),
      batches_((table->plugin.caps_optional & STRATA_DEVICE_CAP_COPY_BATCH) != 0 &&
               table->plugin.struct_size >= offsetof(strata_device, copy_batch_async) + sizeof(void*) &&
               table->copy_batch_async != nullptr) {}

strata_status BoundDevice::check(strata_error* error) const {
  strata_device_info info = {};
  info.struct_size = sizeof info;
  if (const strata_status status = table_->info(instance_, index_, &info, error); status != STRATA_OK)
    return status;
  if (info.unified_memory != 0) return STRATA_OK;
  return fail(
      error, STRATA_UNSUPPORTED,
      "the reference model computes on the processor, which cannot read the memory of device \"%.100s\"",
      info.name);
}

strata_status BoundDevice::allocate(uint64_t bytes, std::byte*& memory, strata_error* error) const {
  void* address = nullptr;
  const strata_status status = table_->alloc(instance_, index_, bytes, &address, error);
  memory = static_cast<std::byte*>(address);
  return status;
}

strata_status BoundDevice::read(const std::byte* region, std::byte* image, std::span<const Segment> segments,
                                void* stream, strata_error* error) {
  copies_.clear();
  for (const Segment& s : segments)
    copies_.push_back({image + s.image_offset, region + s.region_offset, s.bytes});
  return copy(STRATA_COPY_DEVICE_TO_HOST, stream, error);
}

strata_status BoundDevice::write(std::byte* region, const std::byte* image, std::span<const Segment> segments,
                                 void* stream, strata_error* error) {
  copies_.clear();
  for (const Segment& s : segments)
    copies_.push_back({region + s.region_offset, image + s.image_offset, s.bytes});
  return copy(STRATA_COPY_HOST_TO_DEVICE, stream, error);
}

strata_status BoundDevice::copy(int32_t direction, void* stream, strata_error* error) {
  if (copies_.empty()) return STRATA_OK;
  if (batches_)
    return table_->copy_batch_async(instance_, copies_.data(), static_cast<uint32_t>(copies_.size()),
                                    direction, stream, error);
  for (const strata_copy& one : copies_) {
    const strata_status status =
        table_->copy_async(instance_, one.to, one.from, one.bytes, direction, stream, error);
    if (status != STRATA_OK) return status;
  }
  return STRATA_OK;
}

strata_status BoundDevice::create_event(void*& event, strata_error* error) const {
  return table_->event_create(instance_, index_, &event, error);
}

strata_status BoundDevice::record(void* event, void* stream, strata_error* error) const {
  return table_->event_record(instance_, event, stream, error);
}

strata_status BoundDevice::done(void* event, bool& done, strata_error* error) const {
  int32_t value = 0;
  const strata_status status = table_->event_query(instance_, event, &value, error);
  done = value != 0;
  return status;
}

strata_status BoundDevice::wait(void* event, strata_error* error) const {
  return table_->event_wait(instance_, event, error);
}

strata_status BoundDevice::stream_wait(void* stream, void* event, strata_error* error) const {
  return table_->stream_wait(instance_, stream, event, error);
}

}  // namespace strata::reference
