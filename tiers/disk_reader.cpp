#include "tiers/disk_reader.hpp"

#include <array>

#include "core/limits.hpp"

namespace strata {

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
}

void DiskReader::submit_waiting() {
  while (!waiting_.empty()) {
    const IoOp op = waiting_.front();
    auto accepted = queue_.submit(std::span(&op, 1));
    if (!accepted.ok()) {
      waiting_.pop_front();
      auto at = running_.find(op.cookie);
      Done done = std::move(at->second);
      running_.erase(at);
      done(accepted.error());
      continue;
    }
    if (*accepted == 0) return;
    waiting_.pop_front();
  }
}

bool DiskReader::poll() {
  submit_waiting();
  std::array<IoDone, limits::kMaxOpsInFlight> completions;
  while (queue_.in_flight() > 0) {
    auto count = queue_.poll(0, 0, completions);
    if (!count.ok() || *count == 0) break;
    for (size_t i = 0; i < *count; ++i) {
      auto at = running_.find(completions[i].cookie);
      if (at == running_.end()) continue;
      Done done = std::move(at->second);
      running_.erase(at);
      done(std::move(completions[i].status));
    }
    submit_waiting();
  }
  return !idle();
}

}  // namespace strata
