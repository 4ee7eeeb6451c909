// P-8: intake of 10,000 conversations of 200,000 tokens with sparse session files, from a real folder in the
// system's temporary folder (TMPDIR). Targets: < 1 s warm, < 150 MiB read, < 200 MiB of memory. The folder
// takes about 9 GB when all bodies are written, so bodies are holes: intake does not read them.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "bench/support/stored_folder.hpp"
#include "core/check.hpp"
#include "core/limits.hpp"
#include "tiers/intake.hpp"

namespace strata::bench {
namespace {

class SilentLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

void intake(benchmark::State& state) {
  const char* base = std::getenv("TMPDIR");
  StoredFolder folder(base != nullptr ? base : "/tmp", static_cast<uint32_t>(state.range(0)));
  SilentLog log;
  Metrics metrics;
  IntakeRules rules;
  rules.folder = folder.path();
  rules.budget_bytes = UINT64_MAX / 2;
  rules.now_wall_ns = UINT64_MAX / 2;
  const double rss_before = proc_value("/proc/self/status", "VmRSS: %lf kB");
  const double read_before = proc_value("/proc/self/io", "rchar: %lf");
  double rss = 0;
  for (auto _ : state) {
    const auto report = take_in(folder.files(), log, metrics, rules);
    STRATA_CHECK(report.ok() && report->taken.size() == static_cast<size_t>(state.range(0)));
    STRATA_CHECK(report->taken.front().head.last_used_ns == static_cast<uint64_t>(state.range(0)));
    state.PauseTiming();
    rss = proc_value("/proc/self/status", "VmRSS: %lf kB");
    state.ResumeTiming();
  }
  state.counters["memory_MiB"] = (rss - rss_before) / 1024;
  state.counters["read_MiB"] = (proc_value("/proc/self/io", "rchar: %lf") - read_before) /
                               static_cast<double>(limits::kMiB) / static_cast<double>(state.iterations());
}

BENCHMARK(intake)->Arg(1000)->Arg(10'000)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace
}  // namespace strata::bench
