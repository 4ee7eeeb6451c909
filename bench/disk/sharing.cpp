// P-6: twelve sub-agents with a common prefix, in RAM and on disk.
#include <fmt/format.h>

#include "bench/disk/benchmarks.hpp"
#include "bench/disk/engine_driver.hpp"

namespace strata::bench {
namespace {

constexpr uint64_t kAgents = 12;
constexpr uint32_t kTailTokens = 2'000;
constexpr uint64_t kBytesPerToken = 16'384;  // of the synthetic model, as it is by default

Row row_of(const char* where, double bytes, double ideal) {
  Row row;
  row.id = "P-6";
  row.what = fmt::format("{} sub-agents, common prefix: {}", kAgents, where);
  row.measured = fmt::format("{:.1f} MB", bytes / 1e6);
  row.beside = fmt::format("prefix once + tails {:.1f} MB", ideal / 1e6);
  row.value = bytes / ideal;
  row.target = Row::Target::at_most;
  row.bound = 1.05;
  return row;
}

}  // namespace

void measure_sharing(const Settings& settings, Report& report) {
  EngineSettings engine = synthetic_engine(settings.folder, settings.ram_bytes);
  // Whole blocks are shared: with small ones little of the prefix is beyond the last.
  engine.model_options["tokens_per_block"] = "64";
  engine.context_tokens = settings.prefix_tokens + 2 * kTailTokens;
  EngineDriver driver(engine);
  const std::vector<Token> prefix = tokens_of(1, settings.prefix_tokens);
  driver.ask(prefix);
  for (uint64_t agent = 0; agent < kAgents; ++agent) {
    const Asked asked = driver.ask(joined(prefix, tokens_of(100 + agent, kTailTokens)));
    report.check(asked.placement.reused_tokens + 64 >= settings.prefix_tokens,
                 "a sub-agent reuses the prefix");
  }
  const Asked control = driver.ask(tokens_of(999, 64), EngineDriver::Keep::no);
  report.check(control.placement.reused_tokens == 0, "another prefix reuses nothing");
  const double ideal = static_cast<double>(kBytesPerToken) *
                       static_cast<double>(settings.prefix_tokens + kAgents * kTailTokens);
  const double in_ram = static_cast<double>(driver.tiers().status().ram_bytes);
  driver.shutdown();
  report.add(row_of("RAM", in_ram, ideal));
  report.add(row_of("disk", static_cast<double>(driver.tiers().status().disk_bytes), ideal));
}

}  // namespace strata::bench
