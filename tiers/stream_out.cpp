#include "tiers/stream_out.hpp"

#include "core/check.hpp"
#include "core/limits.hpp"
#include "tiers/part_copy.hpp"

namespace strata {

namespace {
constexpr uint64_t kGroupBytes = 4 * limits::kMaxPartBytes;  // of one write job; small parts go together
constexpr size_t kGroupParts = 64;  // queueing thousands of copies must not hold up other slots
constexpr size_t kGroupsAtOnce = 2;
}  // namespace

StreamOut::StreamOut(const Ports& ports, SlotId slot, uint32_t slot_tokens, const ImageRef& image)
    : ports_(ports), slot_(slot), slot_tokens_(slot_tokens), key_(ports.disk.begin_stream(image)) {}

StreamOut::~StreamOut() {
  if (state_ == State::running) leave_buffers();
  ports_.disk.end_stream(key_);
  for (const Group& group : groups_) {
    if (group.event.handle != nullptr) ports_.device.destroy_event(group.event);
  }
}

// The device may go on with what was queued.
void StreamOut::leave_buffers() {
  std::vector<HostBufferRef> touched;
  for (const Group& group : groups_) {
    if (group.copies) touched.insert(touched.end(), group.buffers.begin(), group.buffers.end());
  }
  if (!touched.empty()) ports_.unsettled.add(ports_.stream, std::move(touched));
}

void StreamOut::cancel() {
  if (state_ == State::running) ports_.disk.abort_stream(key_);
}

void StreamOut::fail(SkipReason why) {
  if (failing_) return;
  failing_ = true;
  why_ = why;
  ports_.disk.abort_stream(key_);
}

StreamOut::State StreamOut::step() {
  if (state_ != State::running) return state_;
  const DiskTier::StreamState state = ports_.disk.stream(key_).state;
  if (state == DiskTier::StreamState::open && !failing_) {
    copy_next();
    if (!failing_) write_ready();
    const bool all = next_ == ports_.disk.stream(key_).parts.size() && groups_.empty();
    if (!failing_ && all) ports_.disk.publish(key_);
    return state_;
  }
  return settle(state);
}

StreamOut::State StreamOut::settle(DiskTier::StreamState state) {
  if (state == DiskTier::StreamState::published) return state_ = State::done;
  if (state != DiskTier::StreamState::failed) return state_;
  if (!failing_) why_ = ports_.disk.stream(key_).why;
  leave_buffers();
  return state_ = State::failed;
}

// Starts copies as far as there are buffers.
void StreamOut::copy_next() {
  const std::vector<PartRef>& parts = ports_.disk.stream(key_).parts;
  while (!failing_ && next_ < parts.size() && groups_.size() < kGroupsAtOnce) {
    Group group;
    group.first = next_;
    const bool more = fill(group);
    if (group.buffers.empty()) return;
    if (group.copies && !failing_) {
      auto event = ports_.device.create_event();
      if (event.ok()) group.event = *event;
      if (!event.ok() || !ports_.device.record(*event, ports_.stream).ok()) {
        groups_.push_back(std::move(group));
        return fail(SkipReason::io_error);
      }
    }
    groups_.push_back(std::move(group));
    if (failing_) return;
    if (!more) return;
  }
}

// False when the buffers ran out.
bool StreamOut::fill(Group& group) {
  const std::vector<PartRef>& parts = ports_.disk.stream(key_).parts;
  uint64_t bytes = 0;
  while (next_ < parts.size() && group.buffers.size() < kGroupParts && bytes < kGroupBytes) {
    Part& part = *parts[next_];
    if (part.ram) {
      group.buffers.push_back(part.ram);
    } else if (!part.is_block() && part.first != slot_tokens_) {  // its only copy went meanwhile
      fail(SkipReason::no_state);
      return false;
    } else {
      auto buffer = buffer_for(part);
      if (!buffer.ok()) return false;
      group.buffers.push_back(*buffer);
      group.copies = true;
      const Status queued = queue_copy_out(ports_.model, slot_, part, (*buffer)->bytes(), ports_.stream);
      if (!queued.ok()) {
        groups_.push_back(std::move(group));
        group = Group();
        fail(SkipReason::io_error);
        return false;
      }
      bytes_ += part.bytes;
    }
    bytes += part.bytes;
    ++next_;
  }
  return true;
}

// Without a buffer the stream waits for those that are being written; when the budget has room and the system
// has no memory, it cannot go on.
Result<HostBufferRef> StreamOut::buffer_for(const Part& part) {
  auto buffer = ports_.buffers.allocate(align_up(part.bytes, limits::kAlignment));
  if (buffer.ok()) return buffer;
  const uint64_t needed = PinnedPool::class_bytes(part.bytes);
  const bool budget_has_room = ports_.buffers.in_use_bytes() + needed <= ports_.buffers.budget_bytes();
  if (budget_has_room || needed > ports_.buffers.budget_bytes()) fail(SkipReason::budget);
  return buffer;
}

// Hands groups over whose bytes are there.
void StreamOut::write_ready() {
  while (!groups_.empty()) {
    Group& group = groups_.front();
    if (group.event.handle != nullptr) {
      const auto done = ports_.device.done(group.event);
      if (!done.ok()) return fail(SkipReason::io_error);
      if (!*done) return;
      ports_.device.destroy_event(group.event);
    }
    ports_.disk.write(key_, std::move(group.buffers));
    groups_.pop_front();
  }
}

}  // namespace strata
