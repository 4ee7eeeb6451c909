// The fault sweep: every operation of the tiers, with its first, second, third … call failing, until a pass
// comes through clean. An operation is a Scenario; what is checked is the same for all of them: answers are
// exact (invariant 1), a request fails only where the model cannot go on, what was published before is still
// there (invariant 4), budgets hold at every step, and what did not happen because of the fault has a reason
// that was counted (OBS-1, OBS-2).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/stack_pair.hpp"

namespace strata::testing {

class FaultSweep;

struct Scenario {
  const char* name;
  uint64_t ram_bytes;
  uint64_t disk_bytes;
  int slots;
  bool evicts;                            // published conversations may go for the budget
  bool starts;                            // the operation is the start itself
  std::function<void(FaultSweep&)> lead;  // without faults, up to the operation; the stored ones are there
  std::function<void(FaultSweep&)> operation;
  bool disk_mode = false;  // parked straight to the disk (DM-1)
};
// Park, spill and publish, evict, fetch, intake, shutdown. Another operation: another entry.
const std::vector<Scenario>& scenarios();

// One way to make the n-th call of one kind fail.
struct SweptFault {
  std::string name;
  std::function<void(StackWorld&, uint64_t nth)> arm;
  std::function<uint64_t(StackWorld&)> hits;
  std::function<void(StackWorld&)> disarm;
  bool request_may_fail = false;  // the model itself cannot go on
};

class FaultSweep : public StackPair {
 public:
  static constexpr int kStored = 3;  // conversations of an earlier run

  // ---- for scenarios
  void ask_and_survive(const std::vector<Token>& prompt);
  // A slot is saved, restored or erased by name; what fails says why.
  void act_and_survive(SessionRequest::Kind kind, SlotId slot);
  [[nodiscard]] const std::vector<Token>& stored(size_t i) const { return stored_[i]; }
  [[nodiscard]] std::vector<Token> next_of(size_t i);
  StackWorld& world() { return *world_; }
  TierRequest request;

 protected:
  void sweep(const Scenario& scenario, const std::string& layout, int stages, const SweptFault& fault);
  void prepare(const Scenario& scenario, const std::string& layout, int stages);
  void run_operation(const Scenario& scenario);
  void check_what_is_left(const Scenario& scenario);

 private:
  using Reasons = std::map<std::string, double>;  // counters with a reason in their labels
  struct Outcome {
    uint64_t reused = 0;  // tokens, of all requests
    size_t published = 0;
    Reasons reasons;
    bool started = true;
  };
  [[nodiscard]] Reasons reasons_counted();
  static std::string says_why(const Reasons& reasons, const Reasons& undisturbed);
  Outcome pass(const Scenario& scenario, const std::string& layout, int stages, const SweptFault* fault,
               uint64_t nth, bool& clean);

  std::vector<std::vector<Token>> stored_;
  std::vector<std::string> published_before_;
  uint64_t reused_ = 0;
  int failures_ = 0;
  bool started_ = true;
};

}  // namespace strata::testing
