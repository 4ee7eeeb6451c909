// What the cache stores, in bytes: P-5, a conversation parked again after 2,000 new tokens, and P-6, twelve
// conversations with a common prefix. The counters are ratios; the time says nothing (files are in memory).
// Every run checks that the conversation comes back from disk with all its tokens, and has a control with
// another prefix.
#include <benchmark/benchmark.h>

#include <string>

#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

constexpr uint32_t kBlockTokens = 64;
constexpr double kRatioError = -1;

StackWorldOptions roomy(const char* layout) {
  StackWorldOptions options;
  options.layout = layout;
  options.slots = 1;
  options.context = 12288;
  options.model = {{"tokens_per_block", std::to_string(kBlockTokens)}, {"kv_heads", "4"}};  // 2 KiB a token
  options.tiers = ram_and_disk(uint64_t{256} << 20, uint64_t{512} << 20);
  return options;
}

std::vector<Token> joined(std::vector<Token> head, const std::vector<Token>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// Parks what the only slot holds, by asking something with another prefix.
bool push_out(StackWorld& world, uint64_t seed) {
  const Answer control = world.ask(prompt_of(seed, 40), 0);
  world.settle();
  return control.placement.reused_tokens == 0;
}

double bytes_of(StackWorld& world, uint32_t tokens) {
  double bytes = 0;
  const ModelInfo& info = world.model().info();
  for (StageId stage = 0; stage < info.stages; ++stage) {
    for (uint32_t first = 0; first < tokens; first += kBlockTokens) {
      bytes += static_cast<double>(world.model().block_bytes(stage, std::min(kBlockTokens, tokens - first)));
    }
  }
  return bytes;
}

// P-5: copied and written bytes over the bytes of the blocks that hold new tokens.
void ParkAgainAfter2000Tokens(benchmark::State& state) {
  const uint32_t first_tokens = 8000;
  const uint32_t new_tokens = 2000;
  double copied = kRatioError;
  double written = kRatioError;
  double whole = kRatioError;
  for ([[maybe_unused]] auto round : state) {
    StackWorld world(roomy("attention"));
    const std::vector<Token> first = prompt_of(1, first_tokens);
    world.ask(first, 0);
    bool ok = push_out(world, 1001);
    world.shutdown();
    world.restart();
    const double copied_before = world.metrics().value("strata_parked_bytes_total");
    const double written_before = world.metrics().value("strata_disk_written_bytes_total");
    const Answer more = world.ask(joined(first, prompt_of(2, new_tokens)), 0);
    ok = ok && more.placement.tier == Tier::disk && more.placement.reused_tokens == first_tokens;
    ok = ok && push_out(world, 1002);
    const double copied_after = world.metrics().value("strata_parked_bytes_total");
    world.shutdown();
    const double fresh = bytes_of(world, first_tokens + new_tokens) - bytes_of(world, first_tokens);
    copied = (copied_after - copied_before) / fresh;
    written = (world.metrics().value("strata_disk_written_bytes_total") - written_before) / fresh;
    whole = bytes_of(world, first_tokens + new_tokens) / fresh;
    if (!ok) state.SkipWithError("the conversation did not come back whole, or the control was reused");
  }
  state.counters["copied/new"] = copied;
  state.counters["written/new"] = written;
  state.counters["whole_image/new"] = whole;
}

// P-6: bytes of twelve conversations in RAM and on disk over (prefix once + twelve tails).
void TwelveConversationsWithACommonPrefix(benchmark::State& state) {
  const uint32_t prefix_tokens = 8000;
  const uint32_t tail_tokens = 160;
  double in_ram = kRatioError;
  double on_disk = kRatioError;
  for ([[maybe_unused]] auto round : state) {
    StackWorld world(roomy("attention"));
    const std::vector<Token> prefix = prompt_of(3, prefix_tokens);
    world.ask(prefix, 0);
    bool ok = true;
    for (uint64_t agent = 0; agent < 12; ++agent) {
      const Answer answer = world.ask(joined(prefix, prompt_of(100 + agent, tail_tokens)), 0);
      ok = ok && answer.placement.reused_tokens >= prefix_tokens - kBlockTokens;
    }
    ok = ok && push_out(world, 1003);
    const double ideal = bytes_of(world, prefix_tokens) + 12 * bytes_of(world, tail_tokens);
    in_ram = static_cast<double>(world.stack().status().ram_bytes) / ideal;
    world.shutdown();
    on_disk = static_cast<double>(world.files().allocated_bytes()) / ideal;
    if (!ok) state.SkipWithError("a prefix was not reused, or the control was");
  }
  state.counters["ram/ideal"] = in_ram;
  state.counters["disk/ideal"] = on_disk;
}

BENCHMARK(ParkAgainAfter2000Tokens)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(TwelveConversationsWithACommonPrefix)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::testing
