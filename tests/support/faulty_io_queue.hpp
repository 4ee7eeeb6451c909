// An IoQueue that does what disks and kernels do on bad days: fails the n-th operation, tears a write, hands
// completions out late or in another order, takes only a few operations at a time, or stands still.
// With no fault set it must be indistinguishable from the queue inside (the conformance suite checks that).
// One thread at a time, except set_paused, which any thread may call.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "core/io_queue.hpp"

namespace strata::testing {

struct IoFaults {
  uint64_t fail_at = 0;  // the n-th operation (of kind `only`) fails and is not carried out; 0: none
  bool fail_from_then_on = false;  // and so do all after it
  std::optional<IoKind> only;
  Error error{ErrorCode::io, 5 /* EIO */, "injected fault"};
  bool torn = false;          // a failing write has written its first half, in whole blocks
  size_t accept_at_most = 0;  // operations taken by one submit; 0: as many as there is room for
  uint32_t hold_polls = 0;    // polls that do not wait which a completion is held back from
  uint64_t reorder_seed = 0;  // completions found together are shuffled; 0: not
};

class FaultyIoQueue final : public IoQueue {
 public:
  explicit FaultyIoQueue(std::unique_ptr<IoQueue> inner, IoFaults faults = {});

  void set_faults(const IoFaults& faults);  // counting starts again
  // While paused nothing completes; a waiting poll waits for its time-out.
  void set_paused(bool paused);
  [[nodiscard]] uint64_t submitted(IoKind kind) const { return submitted_[static_cast<size_t>(kind)]; }
  [[nodiscard]] uint64_t injected() const { return injected_; }

  [[nodiscard]] IoRequirements requirements() const override { return inner_->requirements(); }
  Result<size_t> submit(std::span<const IoOp> ops) override;
  Result<size_t> poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) override;
  [[nodiscard]] size_t in_flight() const override { return inner_->in_flight() + held_.size(); }
  Status register_buffer(std::span<std::byte> memory) override { return inner_->register_buffer(memory); }
  Status unregister_buffer(std::span<std::byte> memory) override { return inner_->unregister_buffer(memory); }

 private:
  struct Ticket {  // of one operation inside
    uint64_t cookie = 0;
    bool fails = false;
    bool used = false;
  };
  struct Held {
    IoDone done;
    uint32_t polls = 0;
  };

  [[nodiscard]] bool next_fails(IoKind kind);
  Result<bool> submit_one(const IoOp& op);
  uint64_t ticket(uint64_t cookie, bool fails);
  Status collect(size_t min, uint64_t timeout_ns);
  bool wait_while_paused(bool waits, uint64_t timeout_ns);

  std::unique_ptr<IoQueue> inner_;
  IoFaults faults_;
  std::mt19937_64 random_;
  std::vector<Ticket> tickets_;
  std::vector<Held> held_;
  uint64_t submitted_[3] = {};
  uint64_t counted_ = 0;
  uint64_t injected_ = 0;
  std::optional<bool> decided_;  // whether the operation that was refused by back-pressure fails
  std::mutex mutex_;             // guards paused_
  std::condition_variable resumed_;
  bool paused_ = false;
};

}  // namespace strata::testing
