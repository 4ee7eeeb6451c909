#include "tiers/copy_out.hpp"

#include "tiers/part_copy.hpp"

namespace strata {

namespace {
constexpr size_t kPartsPerStep = 64;  // queueing thousands of copies must not hold up other slots
}  // namespace

CopyOut::CopyOut(const Ports& ports, SlotId slot, std::vector<Item> items)
    : model_(ports.model),
      device_(ports.device),
      unsettled_(ports.unsettled),
      stream_(ports.stream),
      slot_(slot),
      items_(std::move(items)) {}

CopyOut::~CopyOut() {
  if (state_ == State::running) leave_buffers();
  if (event_.handle != nullptr) device_.destroy_event(event_);
}

// The device may go on with what was queued.
void CopyOut::leave_buffers() {
  std::vector<HostBufferRef> touched;
  for (size_t i = 0; i < next_; ++i) touched.push_back(items_[i].to);
  unsettled_.add(stream_, std::move(touched));
}

CopyOut::State CopyOut::fail(Error error) {
  error_ = std::move(error);
  leave_buffers();
  return state_ = State::failed;
}

Status CopyOut::queue_next() {
  const Item& item = items_[next_];
  // Whole pages are written to disk: what lies behind the payload is defined.
  STRATA_TRY(queue_copy_out(model_, slot_, *item.part, item.to->bytes(), stream_));
  bytes_ += item.part->bytes;
  return {};
}

CopyOut::State CopyOut::step() {
  if (state_ != State::running) return state_;
  if (event_.handle == nullptr) {
    auto event = device_.create_event();
    if (!event.ok()) return fail(event.error());
    event_ = *event;
  }
  for (size_t i = 0; i < kPartsPerStep && next_ < items_.size() && !failing_; ++i) {
    if (Status queued = queue_next(); !queued.ok()) {
      error_ = queued.error();
      failing_ = true;
    }
    ++next_;  // a failed one may have queued a part of its copies
  }
  if (next_ < items_.size() && !failing_) return State::running;
  if (!recorded_) {
    if (Status recorded = device_.record(event_, stream_); !recorded.ok()) return fail(recorded.error());
    recorded_ = true;
  }
  return finish();
}

CopyOut::State CopyOut::finish() {
  auto done = device_.done(event_);
  if (!done.ok()) return fail(done.error());
  if (!*done) return State::running;
  if (failing_) return state_ = State::failed;
  for (const Item& item : items_) item.part->ram = item.to;
  return state_ = State::done;
}

}  // namespace strata
