#include "tests/support/faulty_device.hpp"

namespace strata::testing {

void FaultyDevice::set_faults(const DeviceFaults& faults) {
  faults_ = faults;
  allocations_ = copies_ = records_ = finishes_ = registrations_ = 0;
  late_ = 0;
}

bool FaultyDevice::fails(uint64_t& calls, uint64_t at) {
  ++calls;
  const bool injected = at != 0 && (calls == at || (faults_.fail_from_then_on && calls > at));
  injected_ += injected ? 1 : 0;
  return injected;
}

Result<DeviceMemory> FaultyDevice::allocate(uint64_t bytes) {
  if (fails(allocations_, faults_.fail_allocate_at)) return faults_.error;
  return inner_.allocate(bytes);
}

Status FaultyDevice::register_host(std::span<std::byte> memory) {
  if (fails(registrations_, faults_.fail_register_at)) return faults_.error;
  return inner_.register_host(memory);
}

Status FaultyDevice::copy_async(void* to, const void* from, uint64_t bytes, CopyDirection direction,
                                DeviceStream stream) {
  if (fails(copies_, faults_.fail_copy_at)) return faults_.error;
  return inner_.copy_async(to, from, bytes, direction, stream);
}

Status FaultyDevice::record(DeviceEvent event, DeviceStream stream) {
  if (fails(records_, faults_.fail_record_at)) return faults_.error;
  late_ = faults_.late_answers;
  return inner_.record(event, stream);
}

Result<bool> FaultyDevice::done(DeviceEvent event) {
  if (late_ > 0) {
    --late_;
    return false;
  }
  if (fails(finishes_, faults_.fail_finish_at)) return faults_.error;
  return inner_.done(event);
}

Status FaultyDevice::wait(DeviceEvent event) {
  if (fails(finishes_, faults_.fail_finish_at)) return faults_.error;
  return inner_.wait(event);
}

}  // namespace strata::testing
