#include "tiers/disk_reader.hpp"

#include <array>

#include "core/limits.hpp"

namespace strata {

namespace {
constexpr uint64_t kDrainWaitNs = 100'000'000;  // of one wait
}  // namespace

void DiskReader::read(FileHandle file, std::span<std::byte> to, uint64_t offset, Done done) {
  IoOp op;
  op.kind = IoKind::read;
  op.file = file;
  op.data = to.data();
  op.length_bytes = to.size();
  op.offset = offset;
  op.cookie = next_cookie_++;
  running_.emplace(op.cookie, std::move(done));
  waiting_.push_back(op);
  submit_waiting();
}

void DiskReader::submit_waiting() {
  while (!waiting_.empty()) {
    const IoOp op = waiting_.front();
    auto accepted = queue_.submit(std::span(&op, 1));
    if (accepted.ok() && *accepted == 0) return;
    waiting_.pop_front();
    if (!accepted.ok()) refused_.emplace_back(op.cookie, accepted.error());
  }
}

size_t DiskReader::report_refused() {
  const std::deque<std::pair<uint64_t, Error>> refused = std::exchange(refused_, {});
  for (const auto& [cookie, error] : refused) {
    auto at = running_.find(cookie);
    Done done = std::move(at->second);
    running_.erase(at);
    done(error);
  }
  return refused.size();
}

// Runs the callbacks of what is done; how many.
size_t DiskReader::collect(size_t min, uint64_t timeout_ns) {
  if (const size_t refused = report_refused(); refused > 0) return refused;
  std::array<IoDone, limits::kMaxOpsInFlight> completions;
  const auto count = queue_.poll(min, timeout_ns, completions);
  if (!count.ok()) return 0;
  for (size_t i = 0; i < *count; ++i) {
    auto at = running_.find(completions[i].cookie);
    if (at == running_.end()) continue;
    Done done = std::move(at->second);
    running_.erase(at);
    done(std::move(completions[i].status));
  }
  return *count;
}

bool DiskReader::poll() {
  submit_waiting();
  while (!idle() && collect(0, 0) > 0) submit_waiting();
  return !idle();
}

void DiskReader::drain() {
  for (submit_waiting(); !idle(); submit_waiting()) (void)collect(1, kDrainWaitNs);
}

}  // namespace strata
