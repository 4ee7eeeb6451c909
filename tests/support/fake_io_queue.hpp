// The IoQueue port over any FileSystem, in virtual time: an operation is carried out when it completes, so a
// buffer looked at too early shows. Completions come in an order shuffled by the seed. With a FakeClock a
// poll that waits moves the clock to the next completion, or to its timeout; in manual mode nothing completes
// until complete() is called. One thread at a time.
#pragma once

#include <algorithm>
#include <cerrno>
#include <vector>

#include "core/io_queue.hpp"
#include "core/limits.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_random.hpp"

namespace strata::testing {

struct IoFault {
  IoKind kind = IoKind::read;
  uint64_t nth = 1;    // the first operation of that kind is 1
  int os_errno = EIO;  // 0: carried out
  bool and_later = false;
  uint64_t late_ns = 0;  // done so much later: a disk that hangs
};

class FakeIoQueue final : public IoQueue {
 public:
  struct Options {
    IoRequirements requirements{static_cast<uint32_t>(limits::kAlignment),
                                static_cast<uint32_t>(limits::kAlignment), limits::kMaxOpsInFlight};
    uint64_t read_latency_ns = 100'000;
    uint64_t write_latency_ns = 100'000;
    uint64_t sync_latency_ns = 1'000'000;
    uint64_t seed = 1;  // of the completion order; 0: the order of submission
    bool manual = false;
    size_t accept_at_most = SIZE_MAX;  // of one submit
    std::vector<IoFault> faults;
  };

  FakeIoQueue(FileSystem& files, FakeClock& clock) : FakeIoQueue(files, clock, Options{}) {}
  FakeIoQueue(FileSystem& files, FakeClock& clock, Options options)
      : files_(files), clock_(clock), options_(std::move(options)), random_(options_.seed) {}

  // ---- for tests
  void complete(size_t operations = SIZE_MAX) {
    released_ = operations;
  }  // manual mode: so many may complete
  void set_faults(std::vector<IoFault> faults) {
    options_.faults = std::move(faults);
    for (uint64_t& count : submitted_) count = 0;
    faults_hit_ = 0;
  }
  [[nodiscard]] uint64_t faults_hit() const { return faults_hit_; }
  void set_latency(IoKind kind, uint64_t ns) { latency(kind) = ns; }
  [[nodiscard]] uint64_t submitted(IoKind kind) const { return submitted_[static_cast<size_t>(kind)]; }
  [[nodiscard]] uint64_t submitted_bytes(IoKind kind) const { return bytes_[static_cast<size_t>(kind)]; }
  [[nodiscard]] size_t registered_buffers() const { return registered_.size(); }

  // ---- IoQueue
  [[nodiscard]] IoRequirements requirements() const override { return options_.requirements; }
  Result<size_t> submit(std::span<const IoOp> ops) override {
    const size_t room = options_.requirements.max_in_flight - pending_.size();
    const size_t accepted = std::min({ops.size(), room, options_.accept_at_most});
    for (const IoOp& op : ops.first(accepted)) pending_.push_back(start(op));
    return accepted;
  }

  Result<size_t> poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) override {
    const uint64_t deadline = clock_.monotonic_ns() + std::min(timeout_ns, UINT64_MAX / 2);
    size_t filled = collect(done);
    while (filled < std::min(min, done.size()) && clock_.monotonic_ns() < deadline) {
      const uint64_t next = std::min(next_ready_ns(), deadline);
      if (next > clock_.monotonic_ns()) clock_.advance(next - clock_.monotonic_ns());
      filled += collect(done.subspan(filled));
    }
    return filled;
  }

  [[nodiscard]] size_t in_flight() const override { return pending_.size(); }
  Status register_buffer(std::span<std::byte> memory) override {
    registered_.push_back(memory.data());
    return {};
  }
  Status unregister_buffer(std::span<std::byte> memory) override {
    if (std::erase(registered_, memory.data()) == 0)
      return make_error(ErrorCode::invalid, "buffer is not registered");
    return {};
  }

 private:
  struct Pending {
    IoOp op;
    uint64_t ready_ns = 0;
    int os_errno = 0;
  };

  uint64_t& latency(IoKind kind) {
    if (kind == IoKind::read) return options_.read_latency_ns;
    return kind == IoKind::write ? options_.write_latency_ns : options_.sync_latency_ns;
  }

  Pending start(const IoOp& op) {
    const auto kind = static_cast<size_t>(op.kind);
    ++submitted_[kind];
    bytes_[kind] += op.length_bytes;
    Pending pending{op, clock_.monotonic_ns() + latency(op.kind), 0};
    for (const IoFault& fault : options_.faults)
      if (fault.kind == op.kind &&
          (fault.and_later ? submitted_[kind] >= fault.nth : submitted_[kind] == fault.nth))
        hit(pending, fault);
    return pending;
  }

  void hit(Pending& pending, const IoFault& fault) {
    pending.os_errno = fault.os_errno;
    pending.ready_ns += fault.late_ns;
    ++faults_hit_;
  }

  [[nodiscard]] bool ready(const Pending& pending) const {
    return options_.manual ? released_ > 0 : pending.ready_ns <= clock_.monotonic_ns();
  }

  [[nodiscard]] uint64_t next_ready_ns() const {
    uint64_t next = UINT64_MAX;
    if (!options_.manual)
      for (const Pending& pending : pending_) next = std::min(next, pending.ready_ns);
    return next;
  }

  size_t collect(std::span<IoDone> done) {
    size_t filled = 0;
    while (filled < done.size()) {
      std::vector<size_t> candidates;
      for (size_t i = 0; i < pending_.size(); ++i)
        if (ready(pending_[i])) candidates.push_back(i);
      if (candidates.empty()) break;
      const size_t pick = candidates[options_.seed == 0 ? 0 : random_.below(candidates.size())];
      const Pending pending = pending_[pick];
      pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(pick));
      if (options_.manual && released_ != SIZE_MAX) --released_;
      done[filled++] = IoDone{pending.op.cookie, carry_out(pending)};
    }
    return filled;
  }

  Status carry_out(const Pending& pending) {
    const IoOp& op = pending.op;
    if (pending.os_errno != 0) return errno_error(pending.os_errno, "planned fault");
    if (op.kind == IoKind::sync_data) return files_.sync_data(op.file);
    if (op.kind == IoKind::write) return files_.write_at(op.file, {op.data, op.length_bytes}, op.offset);
    STRATA_ASSIGN(const size_t got, files_.read_at(op.file, {op.data, op.length_bytes}, op.offset));
    if (got < op.length_bytes) return make_error(ErrorCode::io, "read past the end of the file");
    return {};
  }

  FileSystem& files_;
  FakeClock& clock_;
  Options options_;
  FakeRandom random_;
  std::vector<Pending> pending_;
  std::vector<const std::byte*> registered_;
  size_t released_ = 0;
  uint64_t faults_hit_ = 0;
  uint64_t submitted_[3] = {};
  uint64_t bytes_[3] = {};
};

}  // namespace strata::testing
