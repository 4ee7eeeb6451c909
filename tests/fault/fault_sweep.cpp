#include "tests/fault/fault_sweep.hpp"

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "core/manifest.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kMostCalls = 3000;
constexpr uint64_t kMostSteps = 1'000'000;

void ask_new(FaultSweep& sweep, uint64_t from, uint64_t count, uint32_t tokens) {
  for (uint64_t i = 0; i < count; ++i) sweep.ask_and_survive(prompt_of(from + i, tokens));
}

void go_on_with_all(FaultSweep& sweep) {
  for (size_t i = 0; i < FaultSweep::kStored; ++i) sweep.ask_and_survive(sweep.next_of(i));
}

// One conversation is saved, moved to the other slot by name, and goes on there; then it is saved over the
// old file.
void save_and_restore(FaultSweep& sweep) {
  using Kind = SessionRequest::Kind;
  sweep.act_and_survive(Kind::save, 0);
  sweep.act_and_survive(Kind::erase, 0);
  sweep.act_and_survive(Kind::restore, 1);
  go_on_with_all(sweep);
  sweep.act_and_survive(Kind::save, 1);
  sweep.world().settle();
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  constexpr uint64_t kMuch = 8 << 20;
  static const std::vector<Scenario> all{
      {"intake", kMuch, kMuch, 2, false, true, [](FaultSweep&) {},
       [](FaultSweep& sweep) { go_on_with_all(sweep); }},
      {"fetch", kMuch, kMuch, 2, false, false, [](FaultSweep&) {},
       [](FaultSweep& sweep) { go_on_with_all(sweep); }},
      {"park", kMuch, kMuch, 1, false, false, [](FaultSweep& sweep) { ask_new(sweep, 40, 1, 60); },
       [](FaultSweep& sweep) {
         ask_new(sweep, 41, 2, 60);
         ask_new(sweep, 40, 1, 60);
       }},
      {"spill", 160 << 10, kMuch, 1, false, false, [](FaultSweep&) {},
       [](FaultSweep& sweep) {
         ask_new(sweep, 50, 3, 60);
         sweep.ask_and_survive(sweep.next_of(0));  // a second generation of what is published
         ask_new(sweep, 53, 2, 60);
         sweep.world().settle();
       }},
      {"evict", 160 << 10, 220 << 10, 1, true, false, [](FaultSweep&) {},
       [](FaultSweep& sweep) {
         ask_new(sweep, 60, 5, 60);
         sweep.world().settle();
         sweep.ask_and_survive(sweep.next_of(2));
         sweep.world().settle();
       }},
      {"shutdown", kMuch, kMuch, 2, false, false,
       [](FaultSweep& sweep) {
         sweep.ask_and_survive(sweep.next_of(1));
         ask_new(sweep, 70, 3, 60);
       },
       [](FaultSweep& sweep) { sweep.world().shutdown(); }},
      {"by_name", kMuch, kMuch, 2, false, false, [](FaultSweep& sweep) { go_on_with_all(sweep); },
       save_and_restore},
      {"disk_mode", 0, kMuch, 1, false, false, [](FaultSweep&) {},
       [](FaultSweep& sweep) {
         ask_new(sweep, 80, 2, 60);
         sweep.ask_and_survive(sweep.next_of(0));
         ask_new(sweep, 82, 1, 60);
         sweep.ask_and_survive(sweep.next_of(1));
         sweep.ask_and_survive(
             branch(sweep.stored(1), 40, 84, 20));  // shares what the slot and the disk hold
         sweep.world().settle();
       },
       true},
      {"disk_mode_evict", 0, 220 << 10, 1, true, false, [](FaultSweep&) {},
       [](FaultSweep& sweep) {
         ask_new(sweep, 90, 4, 60);
         sweep.ask_and_survive(sweep.next_of(2));
         sweep.world().settle();
       },
       true},
  };
  return all;
}

void FaultSweep::ask_and_survive(const std::vector<Token>& prompt) {
  if (!started_) return;
  const Answer answer = world_->ask(prompt, kGenerate, request);
  if (!answer.failure.empty()) {
    ++failures_;
    return;
  }
  EXPECT_EQ(answer, expected(prompt))
      << "reused " << answer.placement.reused_tokens << " from " << to_string(answer.placement.tier);
  reused_ += answer.placement.reused_tokens;
}

void FaultSweep::act_and_survive(SessionRequest::Kind kind, SlotId slot) {
  ASSERT_TRUE(world_->stack().begin_session({kind, slot, "/saved/chat.sess"}).ok());
  const auto over = [this] {
    const auto state = world_->stack().session()->state;
    return state != SessionView::State::waiting && state != SessionView::State::running;
  };
  for (uint64_t i = 0; i < kMostSteps && !over(); ++i) world_->step();
  ASSERT_TRUE(over()) << "the action never ends";
  const SessionView view = *world_->stack().session();
  world_->stack().end_session();
  EXPECT_NE(view.state, SessionView::State::fatal) << "imports are staged";
  EXPECT_TRUE(view.state == SessionView::State::done || !view.reason.empty());
}

std::vector<Token> FaultSweep::next_of(size_t i) {
  return next_prompt(stored_[i], expected(stored_[i]), 50 + i, 6);
}

// Three conversations with a common beginning, stored by an earlier run; then what comes before the
// operation.
void FaultSweep::prepare(const Scenario& scenario, const std::string& layout, int stages) {
  StackWorldOptions options;
  options.layout = layout;
  options.stages = stages;
  options.slots = scenario.slots;
  options.context = 160;
  options.model = {{"dim", "16"}, {"heads", "1"}, {"kv_heads", "1"}, {"ffn", "16"}, {"window", "16"}};
  options.tiers = ram_and_disk(scenario.ram_bytes, scenario.disk_bytes);
  options.tiers.disk_mode = scenario.disk_mode;
  options.tiers.session_min_free_bytes = 0;
  make(options);
  request.borders = {32};
  stored_.clear();
  published_before_.clear();
  failures_ = 0;
  started_ = true;
  const std::vector<Token> system = prompt_of(1, 32);
  for (uint64_t i = 0; i < kStored; ++i) {
    const auto prompt = followed_by(system, 10 + i, 14);
    stored_.push_back(next_prompt(prompt, ask(prompt, request), 20 + i, 4));
  }
  world_->shutdown();
  world_->halt();
  if (scenario.starts) return;
  world_->restart();
  scenario.lead(*this);
  world_->settle();
  published_before_ = files(".idx");
}

void FaultSweep::run_operation(const Scenario& scenario) {
  reused_ = 0;
  const uint64_t budget = scenario.disk_bytes;
  world_->after_step = [budget](StackWorld& world) {
    const TierStatus status = world.stack().status();
    ASSERT_LE(status.disk_bytes, budget);
    const bool disk_mode = !status.ram_on;  // then a few buffers
    ASSERT_TRUE(disk_mode || status.ram_bytes <= status.ram_budget_bytes);
  };
  if (scenario.starts) {
    published_before_ = files(".idx");
    started_ = world_->try_restart().ok();
    EXPECT_TRUE(started_ || !world_->opened.error().message.empty());
  }
  scenario.operation(*this);
}

FaultSweep::Reasons FaultSweep::reasons_counted() {
  std::istringstream text(world_->metrics().prometheus());
  Reasons reasons;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("#") || line.find("reason=") == std::string::npos) continue;
    const size_t space = line.rfind(' ');
    reasons[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return reasons;
}

// The first reason that was counted more often than without a fault; empty: none.
std::string FaultSweep::says_why(const Reasons& reasons, const Reasons& undisturbed) {
  for (const auto& [reason, count] : reasons) {
    const auto before = undisturbed.find(reason);
    if (before == undisturbed.end() || before->second < count) return reason;
  }
  return {};
}

FaultSweep::Outcome FaultSweep::pass(const Scenario& scenario, const std::string& layout, int stages,
                                     const SweptFault* fault, uint64_t nth, bool& clean) {
  prepare(scenario, layout, stages);
  if (fault != nullptr) fault->arm(*world_, nth);
  run_operation(scenario);
  clean = fault == nullptr || fault->hits(*world_) == 0;
  if (fault != nullptr) fault->disarm(*world_);
  EXPECT_LE(failures_, fault != nullptr && fault->request_may_fail ? 1 : 0)
      << "a cache's fault is never a request's";
  if (started_) world_->settle();
  const Outcome outcome{reused_, files(".idx").size(), reasons_counted(), started_};
  check_what_is_left(scenario);
  return outcome;
}

void FaultSweep::check_what_is_left(const Scenario& scenario) {
  // An evicted conversation whose index could not be removed is nobody's: the next start refuses it.
  const bool stuck = scenario.evicts && (world_->log().contains("space could not be given back"));
  for (const std::string& path : files(".idx")) {
    const auto id = parse_conversation_file_name(path.substr(path.rfind('/') + 1), "idx");
    const auto whole = read_published(world_->files(), StackWorld::kFolder, *id);
    EXPECT_TRUE(whole.ok() || stuck) << path << ": " << whole.error().message;
  }
  const auto now = files(".idx");
  for (const std::string& path : published_before_) {
    EXPECT_TRUE(scenario.evicts || std::find(now.begin(), now.end(), path) != now.end()) << path;
  }
  world_->after_step = nullptr;
  world_->restart();
  for (size_t i = 0; i < kStored; ++i) {
    const auto next = next_of(i);
    const Answer answer = ask(next_prompt(next, expected(next), 80, 3), request);
    EXPECT_TRUE(scenario.evicts || answer.placement.reused_tokens >= stored_[i].size() - 4)
        << "conversation " << i << ": " << answer.placement.reused_tokens << " tokens, "
        << to_string(answer.placement.cause);
  }
  world_->settle();
  EXPECT_LE(world_->files().open_files(), 1u) << "the lock";
}

void FaultSweep::sweep(const Scenario& scenario, const std::string& layout, int stages,
                       const SweptFault& fault) {
  bool clean = false;
  const Outcome undisturbed = pass(scenario, layout, stages, nullptr, 0, clean);
  EXPECT_TRUE(undisturbed.started &&
              undisturbed.published >= static_cast<size_t>(kStored) - (scenario.evicts ? 2 : 0));
  for (uint64_t nth = 1; nth < kMostCalls; ++nth) {
    const Outcome outcome = pass(scenario, layout, stages, &fault, nth, clean);
    const bool lost =
        failures_ == 0 && (outcome.reused < undisturbed.reused || outcome.published < undisturbed.published);
    EXPECT_TRUE(!lost || !outcome.started || !says_why(outcome.reasons, undisturbed.reasons).empty())
        << "nobody says why: reused " << outcome.reused << " of " << undisturbed.reused
        << " tokens, published " << outcome.published << " of " << undisturbed.published;
    if (HasFailure()) {
      ADD_FAILURE() << scenario.name << ", " << fault.name << ", call " << nth;
      return;
    }
    if (clean) {
      EXPECT_EQ(outcome.reused, undisturbed.reused);
      return;
    }
  }
  ADD_FAILURE() << "no pass came through clean";
}

}  // namespace strata::testing
