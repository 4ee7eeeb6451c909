#include "tiers/unsettled_buffers.hpp"

#include <utility>

namespace strata {

void UnsettledBuffers::wait() {
  for (Batch& batch : batches_) {
    if (record(batch)) (void)device_.wait(batch.event);
    if (batch.event.handle != nullptr) device_.destroy_event(batch.event);
  }
  batches_.clear();
}

void UnsettledBuffers::add(DeviceStream stream, std::vector<HostBufferRef> buffers) {
  if (buffers.empty()) return;
  batches_.push_back({stream, {}, false, std::move(buffers)});
}

bool UnsettledBuffers::record(Batch& batch) {
  if (batch.event.handle == nullptr) {
    const auto event = device_.create_event();
    if (!event.ok()) return false;
    batch.event = *event;
  }
  if (!batch.recorded) batch.recorded = device_.record(batch.event, batch.stream).ok();
  return batch.recorded;
}

void UnsettledBuffers::step() {
  for (auto batch = batches_.begin(); batch != batches_.end();) {
    const bool asked = record(*batch);
    const auto done = asked ? device_.done(batch->event) : Result<bool>(false);
    if (!done.ok() || !*done) {
      ++batch;
      continue;
    }
    device_.destroy_event(batch->event);
    batch = batches_.erase(batch);
  }
}

}  // namespace strata
