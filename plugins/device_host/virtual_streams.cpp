#include "plugins/device_host/virtual_streams.hpp"

#include <algorithm>
#include <cstring>

namespace strata::device_host {
namespace {

constexpr size_t kMaxQueued = 4096;  // of one stream; then all of it is carried out at once
constexpr uint64_t kStepOneIn = 4;   // chance that a call carries out something of another stream

}  // namespace

// splitmix64
uint64_t VirtualStreams::random(uint64_t below) {
  random_ += 0x9e3779b97f4a7c15u;
  uint64_t value = random_;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return (value ^ (value >> 31)) % below;
}

Stream* VirtualStreams::create() {
  streams_.push_back(std::make_unique<Stream>());
  return streams_.back().get();
}

bool VirtualStreams::knows(const Stream* stream) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& known) { return known.get() == stream; });
}

void VirtualStreams::run_all(Stream* stream) {
  auto mark = std::make_shared<Mark>();
  mark->stream = stream;
  stream->queue.push_back(Work{Work::Kind::mark, {}, mark});
  run_until(mark);
}

void VirtualStreams::destroy(Stream* stream) {
  run_all(stream);
  std::erase_if(streams_, [&](const auto& known) { return known.get() == stream; });
}

void VirtualStreams::copy(Stream* stream, const strata_copy& copy) {
  if (random(kStepOneIn) == 0) step_another(stream);
  if (stream->queue.size() >= kMaxQueued) run_all(stream);
  stream->queue.push_back(Work{Work::Kind::copy, copy, nullptr});
}

void VirtualStreams::record(Stream* stream, Event* event) {
  const uint64_t delay = options_.fixed_delay ? options_.delay : 1 + random(3);
  event->mark = std::make_shared<Mark>();
  event->mark->stream = stream;
  event->mark->delay = delay;
  stream->queue.push_back(Work{Work::Kind::mark, {}, event->mark});
}

void VirtualStreams::wait_on(Stream* stream, const Event& event) {
  if (event.mark == nullptr) return;
  stream->queue.push_back(Work{Work::Kind::wait, {}, event.mark});
}

bool VirtualStreams::blocked(const Stream& stream) {
  const Work& front = stream.queue.front();
  return front.kind == Work::Kind::wait && !front.mark->reached;
}

void VirtualStreams::carry_out_front(Stream* stream) {
  const Work work = std::move(stream->queue.front());
  stream->queue.pop_front();
  if (work.kind == Work::Kind::mark) {
    work.mark->reached = true;
    work.mark->failed = stream->failed;
  } else if (work.kind == Work::Kind::wait) {
    stream->failed = stream->failed || work.mark->failed;
  } else if (!stream->failed) {
    const bool fails = ++executed_ == options_.fail_executed;
    std::memmove(work.copy.to, work.copy.from, fails ? work.copy.bytes / 2 : work.copy.bytes);
    stream->failed = fails;
  }
}

void VirtualStreams::step_another(const Stream* except) {
  Stream* const stream = streams_[random(streams_.size())].get();
  if (stream != except && !stream->queue.empty() && !blocked(*stream)) carry_out_front(stream);
}

// A wait refers to a mark that was queued before it, so following blocked streams always ends at one that can
// go on.
void VirtualStreams::run_until(const std::shared_ptr<Mark>& mark) {
  while (!mark->reached) {
    Stream* stream = mark->stream;
    while (blocked(*stream)) stream = stream->queue.front().mark->stream;
    if (random(kStepOneIn) == 0) step_another(stream);
    if (!blocked(*stream)) carry_out_front(stream);
  }
}

VirtualStreams::Answer VirtualStreams::wait(const Event& event) {
  if (event.mark == nullptr) return Answer::yes;
  run_until(event.mark);
  event.mark->asked = event.mark->delay;
  return event.mark->failed ? Answer::failed : Answer::yes;
}

VirtualStreams::Answer VirtualStreams::query(const Event& event) {
  if (event.mark == nullptr) return Answer::yes;
  // Reached: also when a later event of the stream was waited for; then this one may not say otherwise.
  if (event.mark->reached || event.mark->asked >= event.mark->delay) return wait(event);
  ++event.mark->asked;
  if (!event.mark->reached) step_another(event.mark->stream);
  return Answer::no;
}

void VirtualStreams::finish_all() {
  for (const auto& stream : streams_) run_all(stream.get());
}

}  // namespace strata::device_host
