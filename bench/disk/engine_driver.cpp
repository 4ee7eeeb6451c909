#include "bench/disk/engine_driver.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/disk/bare_loop.hpp"
#include "bench/disk/must.hpp"
#include "bench/disk/transfer_rig.hpp"
#include "core/check.hpp"
#include "core/limits.hpp"

namespace strata::bench {
namespace {

constexpr uint32_t kReadAtOnce = 8192;  // tokens
// 165,000 tokens in 78 s: what a restore is weighed against.
constexpr uint64_t kLargeModelNsPerToken = 472'000;

}  // namespace

EngineSettings synthetic_engine(const std::string& folder, uint64_t ram_bytes) {
  EngineSettings settings;
  settings.model = "synthetic";
  settings.model_options = {{"tokens_per_second", "0"}};
  settings.slots = 1;
  settings.tiers.ram_budget_bytes = ram_bytes;
  settings.tiers.ram_min_free_bytes = limits::kGiB;
  settings.tiers.disk_folder = folder;
  settings.tiers.disk_persist = true;
  settings.tiers.disk_min_free_bytes = limits::kGiB;
  return settings;
}

std::vector<Token> tokens_of(uint64_t seed, uint32_t count) {
  std::vector<Token> tokens(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (Token& token : tokens) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<Token>(32 + (state >> 33) % 90);
  }
  return tokens;
}

std::vector<Token> joined(std::vector<Token> head, const std::vector<Token>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

EngineDriver::EngineDriver(const EngineSettings& settings) : host_(must(EngineHost::open(settings, log_))) {}
EngineDriver::~EngineDriver() = default;

bool EngineDriver::step(Asked& asked) {
  const uint64_t start = wall_ns();
  const bool moving = tiers().step();
  const uint64_t ns = wall_ns() - start;
  asked.blocked_ns += ns;
  asked.longest_step_ns = std::max(asked.longest_step_ns, ns);
  return moving;
}

Asked EngineDriver::ask(const std::vector<Token>& prompt, Keep keep) {
  TierRequest request;
  request.id = next_++;
  request.tokens = prompt;
  request.keep = keep == Keep::yes;
  const RequestId id = request.id;
  must(tiers().admit(std::move(request)));
  Asked asked;
  step(asked);
  while (tiers().state(id) != RequestState::serving) {
    STRATA_CHECK(tiers().state(id) != RequestState::failed);
    pause_as_the_engine_does();
    step(asked);
  }
  asked.placement = tiers().placement(id);
  read(prompt, asked.placement);
  tiers().finish(id);
  (void)tiers().step();
  return asked;
}

void EngineDriver::read(const std::vector<Token>& prompt, const Placement& placement) {
  std::vector<std::span<const float>> logits;
  for (size_t at = placement.reused_tokens; at < prompt.size();) {
    while (!tiers().may_decode(placement.slot)) (void)tiers().step();
    const size_t limit = std::min<size_t>(tiers().read_limit(placement.slot), prompt.size());
    const auto chunk = std::span(prompt).subspan(at, std::min<size_t>(kReadAtOnce, limit - at));
    const BatchItem item{placement.slot, static_cast<uint32_t>(at), chunk, true};
    must(model().decode({&item, 1}, logits));
    tiers().appended(placement.slot, chunk);
    tiers().observe_prompt(static_cast<uint32_t>(chunk.size()), chunk.size() * kLargeModelNsPerToken);
    at += chunk.size();
  }
}

void EngineDriver::settle() {
  // Also the memory that is made ahead, which begins only when nothing was asked for a while.
  do {
    while (tiers().step() || tiers().status().disk_queue_jobs > 0) pause_as_the_engine_does();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (tiers().step());
}

void EngineDriver::shutdown() {
  tiers().begin_shutdown();
  while (!tiers().drain_progress().finished) {
    (void)tiers().step();
    pause_as_the_engine_does();
  }
}

}  // namespace strata::bench
