// A TierStack that keeps nothing: slots, and answers that a test sets. Requests get the lowest idle slot,
// after as many steps as `placing_steps` says.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/scripted_model.hpp"
#include "tiers/tier_stack.hpp"

namespace strata::testing {

class ScriptedTierStack final : public TierStack {
 public:
  explicit ScriptedTierStack(ScriptedModel& model) : model_(model), holders_(model.info().slots) {}

  // Set by tests
  std::map<RequestId, Placement> placements;  // all but the slot; absent: nothing reused, reason "new"
  std::map<RequestId, std::string> failures;  // these end as failed instead of serving
  std::map<RequestId, uint32_t> placing_steps;
  std::map<SlotId, uint32_t> limits;  // read_limit; absent: none
  std::set<SlotId> held;              // may_decode is false
  DrainProgress drain{0, 0, 0, true};
  std::vector<DrainProgress> drain_script;  // one per step after begin_shutdown, then `drain`
  std::vector<StoredConversation> stored;
  std::vector<SessionView>
      session_script;  // of a save or restore, what each look shows; the last one ends it
  std::function<void()> on_step = [] {};

  // Seen
  std::map<SlotId, std::vector<Token>> held_tokens;  // as reported by appended
  std::vector<RequestId> finished;
  uint32_t observed_prompt_tokens = 0;
  bool shutdown_begun = false;
  std::vector<SessionRequest> session_requests;

  Status admit(TierRequest request) override;
  RequestState state(RequestId id) const override { return requests_.at(id).state; }
  const Placement& placement(RequestId id) const override { return requests_.at(id).placement; }
  const std::string& failure(RequestId id) const override { return failures.at(id); }
  void finish(RequestId id) override;
  bool step() override;
  void appended(SlotId slot, std::span<const Token> tokens) override;
  uint32_t read_limit(SlotId slot) const override {
    const auto limit = limits.find(slot);
    return limit == limits.end() ? UINT32_MAX : limit->second;
  }
  void observe_prompt(uint32_t tokens, uint64_t) override { observed_prompt_tokens += tokens; }
  bool may_decode(SlotId slot) override { return !held.contains(slot); }
  TierStatus status() const override;
  std::vector<StoredConversation> conversations() const override { return stored; }
  Result<uint32_t> erase(SlotId slot) override;
  Status begin_session(SessionRequest request) override;
  const SessionView* session() const override { return session_ ? &*session_ : nullptr; }
  std::vector<uint64_t> take_session_progress() override;
  void cancel_session() override;
  void end_session() override { session_.reset(); }
  Status forget(ConversationId id) override;
  Status pin(ConversationId id, bool pinned) override;
  void begin_shutdown() override { shutdown_begun = true; }
  DrainProgress drain_progress() const override {
    return drain_script.empty() ? drain : drain_script.front();
  }

 private:
  struct Entry {
    TierRequest request;
    RequestState state = RequestState::waiting;
    Placement placement;
    uint32_t steps_left = 0;
  };
  bool advance(RequestId id, Entry& entry);

  ScriptedModel& model_;
  std::vector<std::optional<RequestId>> holders_;
  std::map<RequestId, Entry> requests_;
  std::optional<SessionView> session_;
};

}  // namespace strata::testing
