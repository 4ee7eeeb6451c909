#include "tests/support/faulty_io_queue.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace strata::testing {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kLongestWaitNs = uint64_t{3600} * 1000000000;

}  // namespace

FaultyIoQueue::FaultyIoQueue(std::unique_ptr<IoQueue> inner, IoFaults faults) : inner_(std::move(inner)) {
  set_faults(faults);
}

void FaultyIoQueue::set_faults(const IoFaults& faults) {
  faults_ = faults;
  random_.seed(faults.reorder_seed);
  counted_ = 0;
}

void FaultyIoQueue::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);
  paused_ = paused;
  resumed_.notify_all();
}

bool FaultyIoQueue::next_fails(IoKind kind) {
  if (faults_.only.has_value() && *faults_.only != kind) return false;
  ++counted_;
  if (faults_.fail_at == 0) return false;
  return counted_ == faults_.fail_at || (faults_.fail_from_then_on && counted_ > faults_.fail_at);
}

uint64_t FaultyIoQueue::ticket(uint64_t cookie, bool fails) {
  auto free = std::find_if(tickets_.begin(), tickets_.end(), [](const Ticket& one) { return !one.used; });
  if (free == tickets_.end()) free = tickets_.insert(tickets_.end(), Ticket{});
  *free = {cookie, fails, true};
  return static_cast<uint64_t>(free - tickets_.begin());
}

Result<bool> FaultyIoQueue::submit_one(const IoOp& op) {
  const bool fails = decided_.has_value() ? *decided_ : next_fails(op.kind);
  decided_ = fails;
  IoOp inside = op;
  const uint64_t half = op.length_bytes / 2 / kBlock * kBlock;
  const bool tears = fails && faults_.torn && op.kind == IoKind::write && half > 0;
  if (tears) inside.length_bytes = half;
  if (fails && !tears) {
    held_.push_back({{op.cookie, faults_.error}, faults_.hold_polls});
  } else {
    inside.cookie = ticket(op.cookie, fails);
    const Result<size_t> accepted = inner_->submit(std::span(&inside, 1));
    if (!accepted.ok() || *accepted == 0) {
      tickets_[inside.cookie].used = false;
      if (!accepted.ok()) return accepted.error();
      return false;
    }
  }
  decided_.reset();
  injected_ += fails ? 1 : 0;
  ++submitted_[static_cast<size_t>(op.kind)];
  return true;
}

Result<size_t> FaultyIoQueue::submit(std::span<const IoOp> ops) {
  const size_t limit =
      faults_.accept_at_most == 0 ? ops.size() : std::min(ops.size(), faults_.accept_at_most);
  size_t accepted = 0;
  while (accepted < limit && in_flight() < requirements().max_in_flight) {
    const Result<bool> taken = submit_one(ops[accepted]);
    if (!taken.ok() && accepted == 0) return taken.error();
    if (!taken.ok() || !*taken) break;
    ++accepted;
  }
  return accepted;
}

// false: still paused when the time was over.
bool FaultyIoQueue::wait_while_paused(bool waits, uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (!waits) return !paused_;
  const auto time = std::chrono::nanoseconds(std::min(timeout_ns, kLongestWaitNs));
  return resumed_.wait_for(lock, time, [&] { return !paused_; });
}

Status FaultyIoQueue::collect(size_t min, uint64_t timeout_ns) {
  std::vector<IoDone> found(std::max<size_t>(inner_->in_flight(), 1));
  STRATA_ASSIGN(const size_t count, inner_->poll(min, timeout_ns, found));
  found.resize(count);
  if (faults_.reorder_seed != 0) std::shuffle(found.begin(), found.end(), random_);
  for (IoDone& one : found) {
    Ticket& ticket = tickets_[one.cookie];
    ticket.used = false;
    one.cookie = ticket.cookie;
    if (ticket.fails) one.status = faults_.error;
    held_.push_back({std::move(one), faults_.hold_polls});
  }
  return {};
}

Result<size_t> FaultyIoQueue::poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) {
  if (!wait_while_paused(min > 0, timeout_ns)) return size_t{0};
  const size_t wanted = std::min({min, done.size(), in_flight()});
  STRATA_TRY(collect(wanted > held_.size() ? wanted - held_.size() : 0, timeout_ns));
  size_t count = 0;
  for (auto held = held_.begin(); held != held_.end() && count < done.size();) {
    if (count >= wanted && held->polls > 0) {
      --held->polls;
      ++held;
      continue;
    }
    done[count++] = std::move(held->done);
    held = held_.erase(held);
  }
  return count;
}

}  // namespace strata::testing
