// A StackPair whose slots are saved, restored and erased by name.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/stack_pair.hpp"

namespace strata::testing {

class SessionPair : public StackPair {
 protected:
  static constexpr const char* kSaved = "/saved";
  static constexpr const char* kFile = "/saved/chat.sess";
  using Kind = SessionRequest::Kind;

  struct Outcome {
    SessionView view;
    std::vector<uint64_t> moved;
    std::vector<SessionView::Phase> phases;
    [[nodiscard]] bool done() const { return view.state == SessionView::State::done; }
    [[nodiscard]] std::string fault() const { return to_string(view.fault); }
  };

  static StackWorldOptions session_options(const std::string& layout = "attention", int stages = 1,
                                           bool whole = false) {
    StackWorldOptions options;
    options.layout = layout;
    options.stages = stages;
    options.whole = whole;
    options.tiers.ram_min_free_bytes = 0;
    options.tiers.session_min_free_bytes = 0;
    return options;
  }
  // Parts in the slot, in RAM and on the disk.
  static StackWorldOptions hybrid_in_disk_mode() {
    StackWorldOptions options = session_options("hybrid");
    options.tiers = ram_and_disk(0, 64 * limits::kMiB);
    options.tiers.disk_mode = true;
    options.tiers.checkpoints_every_tokens = 64;
    options.tiers.session_min_free_bytes = 0;
    return options;
  }

  [[nodiscard]] bool over() const {
    const auto state = world_->stack().session()->state;
    return state != SessionView::State::waiting && state != SessionView::State::running;
  }
  void look(Outcome& outcome) {
    for (const uint64_t bytes : world_->stack().take_session_progress()) outcome.moved.push_back(bytes);
    const SessionView& view = *world_->stack().session();
    if (outcome.phases.empty() || outcome.phases.back() != view.phase) outcome.phases.push_back(view.phase);
  }
  Outcome finish(Outcome outcome = {}) {
    constexpr int kMaxSteps = 200'000;
    look(outcome);
    for (int i = 0; i < kMaxSteps && !over(); ++i) {
      world_->step();
      look(outcome);
    }
    EXPECT_TRUE(over()) << "the action never ends";
    outcome.view = *world_->stack().session();
    world_->stack().end_session();
    return outcome;
  }
  Outcome act(Kind kind, SlotId slot, const std::string& path = kFile) {
    const Status begun = world_->stack().begin_session({kind, slot, path});
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return finish();
  }
  Outcome save(SlotId slot, const std::string& path = kFile) { return act(Kind::save, slot, path); }
  Outcome restore(SlotId slot, const std::string& path = kFile) { return act(Kind::restore, slot, path); }

  static TierRequest in_slot(SlotId slot) {
    TierRequest extra;
    extra.slot = slot;
    return extra;
  }
  [[nodiscard]] std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const std::string& path : world_->files().paths())
      if (path.find("/.strata-") != std::string::npos) found.push_back(path);
    return found;
  }
};

}  // namespace strata::testing
