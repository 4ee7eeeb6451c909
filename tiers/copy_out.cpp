#include "tiers/copy_out.hpp"

#include <cstring>

namespace strata {

namespace {
constexpr size_t kPartsPerStep = 64;  // queueing thousands of copies must not hold up other slots
}

CopyOut::CopyOut(Model& model, Device& device, DeviceStream stream, SlotId slot, std::vector<PartRef> parts)
    : model_(model), device_(device), stream_(stream), slot_(slot), parts_(std::move(parts)) {}

CopyOut::~CopyOut() {
  settle();
  if (event_.handle != nullptr) device_.destroy_event(event_);
}

void CopyOut::settle() {
  if (state_ != State::running || next_ == 0) return;
  if (!recorded_ && event_.handle != nullptr) recorded_ = device_.record(event_, stream_).ok();
  if (recorded_) (void)device_.wait(event_);
}

Status CopyOut::queue_next() {
  const PartRef& part = parts_[next_];
  const std::span<std::byte> to = part->ram->bytes();
  // Whole pages are written to disk: what lies behind the payload is defined.
  if (part->is_block()) {
    part->bytes = model_.block_bytes(part->stage, part->count);
    std::memset(to.data() + part->bytes, 0, to.size() - part->bytes);
    STRATA_TRY(
        model_.export_block(slot_, part->stage, part->first, part->count, to.first(part->bytes), stream_));
  } else if (model_.info().checkpoint_bytes[part->stage] == 0) {
    std::memset(to.data(), 0, to.size());
    part->bytes = kEmptyCheckpointBytes;
  } else {
    std::memset(to.data(), 0, to.size());
    STRATA_ASSIGN(part->bytes, model_.export_checkpoint(slot_, part->stage, to, stream_));
  }
  bytes_ += part->bytes;
  ++next_;
  return {};
}

CopyOut::State CopyOut::step() {
  if (state_ != State::running) return state_;
  if (event_.handle == nullptr) {
    auto event = device_.create_event();
    if (!event.ok()) {
      error_ = event.error();
      return state_ = State::failed;
    }
    event_ = *event;
  }
  for (size_t i = 0; i < kPartsPerStep && next_ < parts_.size() && !failing_; ++i) {
    if (Status queued = queue_next(); !queued.ok()) {
      error_ = queued.error();
      failing_ = true;
    }
  }
  if (next_ < parts_.size() && !failing_) return State::running;
  if (!recorded_) {
    if (Status recorded = device_.record(event_, stream_); !recorded.ok()) {
      error_ = recorded.error();
      return state_ = State::failed;
    }
    recorded_ = true;
  }
  return finish();
}

CopyOut::State CopyOut::finish() {
  auto done = device_.done(event_);
  if (!done.ok()) {
    error_ = done.error();
    return state_ = State::failed;
  }
  if (!*done) return State::running;
  return state_ = failing_ ? State::failed : State::done;
}

}  // namespace strata
