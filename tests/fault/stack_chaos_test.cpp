// Long random histories: agents and sub-agents over small budgets, several requests at once, some given up,
// pins, crashes and restarts, conversations that expire, and (every other seed) faults of disk, device and
// model. After every step the budgets hold (invariants 2 and 3) and the slots hold what they say; every
// answer equals that of a world without a cache (invariant 1); no index is published before its bytes were
// synced (invariant 4); a request fails only where the model did. STRATA_SEED=n runs that seed alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "core/manifest.hpp"
#include "tests/support/stack_pair.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kRam = 900 << 10;
constexpr uint64_t kDisk = 1600 << 10;

struct Agent {
  std::vector<Token> tokens;
  uint64_t salt = 0;
};

class StackChaos : public StackPair, public ::testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override {
    const char* only = std::getenv("STRATA_SEED");
    seed_ = only != nullptr ? std::strtoull(only, nullptr, 10) : GetParam();
    random_ = FakeRandom(seed_);
    faults_ = seed_ % 2 == 0;
    StackWorldOptions options;
    options.layout = std::array{"attention", "sliding", "hybrid"}[seed_ % 3];
    options.stages = 1 + static_cast<int>(seed_ / 3 % 2);
    options.whole = seed_ % 12 >= 10;
    options.slots = 2 + static_cast<int>(seed_ % 3);
    options.seed = seed_;
    options.tiers = ram_and_disk(kRam, kDisk);
    options.tiers.checkpoints_every_tokens = 64;
    options.tiers.disk_persist = seed_ % 5 != 4;
    options.tiers.disk_ttl_ns = seed_ % 4 == 1 ? 10 * kMinuteNs : 0;
    std::printf("seed %llu: %s, %d stages, %d slots%s%s\n", static_cast<unsigned long long>(seed_),
                options.layout.c_str(), options.stages, options.slots, options.whole ? ", whole" : "",
                faults_ ? ", faults" : "");
    make(options);
    world_->after_step = [this](StackWorld&) { check_step(); };
    system_ = prompt_of(seed_, 90);
    for (uint64_t i = 0; i < 6; ++i) agents_.push_back({followed_by(system_, 100 + i, 40), i % 3 == 2});
  }

  [[nodiscard]] uint64_t below(uint64_t limit) { return random_.below(limit); }
  [[nodiscard]] bool one_in(uint64_t count) { return below(count) == 0; }

  void check_step() {
    const TierStatus status = world_->stack().status();
    ASSERT_LE(status.ram_bytes, kRam);
    ASSERT_LE(status.disk_bytes, kDisk);
    ASSERT_TRUE(faults_ || world_->files().allocated_bytes() <= kDisk);
    for (const SlotStatus& slot : status.slots) {
      if (slot.request) continue;
      ASSERT_EQ(slot.tokens, world_->model().length(slot.slot)) << "slot " << slot.slot;
    }
    if (faults_) return;  // then bytes of failed writes, which no index refers to, stay unsynced
    ASSERT_TRUE(world_->recorded_files().violations.empty()) << world_->recorded_files().violations.front();
  }

  void plan_faults() {
    world_->faulty_files().set_plan({});
    world_->faulty_device().set_faults({});
    world_->faulty_model().set_fault({});
    if (!faults_ || one_in(3)) return;
    switch (below(4)) {
      case 0: {
        const DeviceFaults faults{.fail_record_at = below(2) * (1 + below(20)), .fail_finish_at = below(40)};
        world_->faulty_device().set_faults(faults);
        break;
      }
      case 1: {
        const ModelCall calls[] = {ModelCall::export_block, ModelCall::import_block, ModelCall::import_commit,
                                   ModelCall::export_checkpoint};
        ModelFault fault;
        fault.call = calls[below(4)];
        fault.at = 1 + below(12);
        world_->faulty_model().set_fault(fault);
        break;
      }
      default:
        world_->faulty_files().set_plan(
            {{FileCall::any, 1 + below(80), one_in(3) ? ENOSPC : EIO, one_in(10)}});
    }
  }

  TierRequest request_of(const Agent& agent) {
    TierRequest request;
    request.borders = {90};
    request.salt = agent.salt;
    request.keep = !one_in(12);
    if (one_in(8)) request.slot = static_cast<SlotId>(below(static_cast<uint64_t>(world_->options().slots)));
    return request;
  }

  void renew(Agent& agent) {
    if (agent.tokens.size() > 400) agent.tokens = followed_by(system_, random_.next(), 30);
    if (one_in(7) && agent.tokens.size() > 200) {  // the history is rewritten some way back
      agent.tokens = branch(agent.tokens, static_cast<uint32_t>(agent.tokens.size() - 20 - below(100)),
                            random_.next(), 20);
    }
  }

  // Several agents ask at once; some are given up.
  void turn() {
    std::vector<InFlight> all;
    std::vector<size_t> who;
    const uint64_t count = one_in(2) ? 1 : 1 + below(4);
    for (uint64_t i = 0; i < count; ++i) {
      const size_t agent = below(agents_.size());
      if (std::find(who.begin(), who.end(), agent) != who.end()) continue;
      renew(agents_[agent]);
      who.push_back(agent);
      all.push_back(world_->launch(agents_[agent].tokens, 3, request_of(agents_[agent])));
    }
    const bool gives_up = one_in(4);
    if (gives_up) {
      for (uint64_t steps = below(25); steps > 0; --steps) {
        world_->step();
        for (InFlight& one : all) world_->move(one);
      }
      if (!all[0].done) {
        world_->stack().finish(all[0].id);
        all.erase(all.begin());
        who.erase(who.begin());
      }
    }
    world_->run(all);
    for (size_t i = 0; i < all.size(); ++i) take_answer(agents_[who[i]], all[i]);
  }

  void take_answer(Agent& agent, const InFlight& one) {
    ASSERT_TRUE(one.answer.failure.empty()) << one.answer.failure;
    ASSERT_EQ(one.answer, expected(one.prompt, 3)) << "reused " << one.answer.placement.reused_tokens
                                                   << " from " << to_string(one.answer.placement.tier);
    ++seen_[one.answer.placement.tier];
    agent.tokens = next_prompt(one.prompt, one.answer, random_.next(), 5 + static_cast<uint32_t>(below(40)));
  }

  void meddle() {
    world_->options().writes_run = !one_in(3);
    world_->clock().advance(below(4) * kMinuteNs);
    const auto stored = world_->stack().conversations();
    if (stored.empty()) return;
    const StoredConversation& one = stored[below(stored.size())];
    if (one_in(6)) (void)world_->stack().pin(one.id, one_in(3));
    if (one_in(15)) (void)world_->stack().forget(one.id);
    if (one_in(15)) (void)world_->stack().erase(static_cast<SlotId>(below(2)));
  }

  void maybe_restart() {
    if (!one_in(12)) return;
    world_->faulty_device().set_faults({});
    if (one_in(2)) world_->shutdown();
    world_->faulty_files().set_plan({});
    world_->restart();
  }

  uint64_t seed_ = 0;
  FakeRandom random_;
  bool faults_ = false;
  std::vector<Token> system_;
  std::vector<Agent> agents_;
  std::map<Tier, int> seen_;
};

TEST_P(StackChaos, AnswersStayExactAndBudgetsHold) {
  for (int i = 0; i < 60; ++i) {
    plan_faults();
    meddle();
    turn();
    if (HasFatalFailure() || HasFailure()) {
      FAIL() << "seed " << seed_ << ", turn " << i;
    }
    maybe_restart();
  }
  EXPECT_GT(seen_[Tier::ram] + seen_[Tier::disk] + seen_[Tier::vram], 20);
  world_->faulty_files().set_plan({});
  world_->settle();
  if (faults_) return;
  EXPECT_EQ(world_->metrics().value("strata_quarantined_total", "reason=\"corrupt\""), 0);
  for (const std::string& path : files(".idx")) {
    const auto id = parse_conversation_file_name(path.substr(path.rfind('/') + 1), "idx");
    const auto manifest = read_published(world_->files(), StackWorld::kFolder, *id);
    EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  }
}

std::vector<uint64_t> seeds() {
  // Those behind the first run found something once.
  std::vector<uint64_t> list{137, 148, 217, 652, 654, 756, 1161};
  for (uint64_t seed = 1; seed <= 18; ++seed) list.push_back(seed);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Seeds, StackChaos, ::testing::ValuesIn(seeds()),
                         [](const auto& seed) { return "seed" + std::to_string(seed.param); });

}  // namespace
}  // namespace strata::testing
