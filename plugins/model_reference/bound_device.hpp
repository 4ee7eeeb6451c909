// The device table the model was bound to. Borrowed: table and instance outlive this. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/abi/strata_device.h"
#include "plugins/model_reference/state_layout.hpp"

namespace strata::reference {

class BoundDevice {
 public:
  BoundDevice(const strata_device* table, strata_instance* instance, int32_t index);

  // UNSUPPORTED where this processor cannot read the device's memory.
  strata_status check(strata_error* error) const;
  strata_status allocate(uint64_t bytes, std::byte*& memory, strata_error* error) const;
  void free(std::byte* memory) const { table_->free(instance_, index_, memory); }

  // Queue the segments on the stream.
  strata_status read(const std::byte* region, std::byte* image, std::span<const Segment> segments,
                     void* stream, strata_error* error);
  strata_status write(std::byte* region, const std::byte* image, std::span<const Segment> segments,
                      void* stream, strata_error* error);

  strata_status create_event(void*& event, strata_error* error) const;
  void destroy_event(void* event) const { table_->event_destroy(instance_, event); }
  strata_status record(void* event, void* stream, strata_error* error) const;
  strata_status done(void* event, bool& done, strata_error* error) const;
  strata_status wait(void* event, strata_error* error) const;
  strata_status stream_wait(void* stream, void* event, strata_error* error) const;

 private:
  strata_status copy(int32_t direction, void* stream, strata_error* error);

  const strata_device* table_;
  strata_instance* instance_;
  int32_t index_;
  bool batches_;
  std::vector<strata_copy> copies_;
};

}  // namespace strata::reference
