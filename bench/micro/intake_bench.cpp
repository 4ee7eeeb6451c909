// P-8: intake of 10,000 conversations of 200,000 tokens with sparse session files, from a real folder in the
// system's temporary folder (TMPDIR). Targets: < 1 s warm, < 150 MiB read, < 200 MiB of memory. The folder
// takes about 9 GB when all bodies are written, so bodies are holes: intake does not read them.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"
#include "core/posix/file_system.hpp"
#include "tiers/intake.hpp"

namespace strata {
namespace {

constexpr uint32_t kTokens = 200'000;
constexpr uint64_t kSessionBytes = limits::kGiB;

class SilentLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

// One conversation's index and session file; only what intake reads is written.
void store(FileSystem& files, const std::string& folder, ConversationId id, Manifest& manifest) {
  manifest.head.id = id;
  manifest.head.files = {{id, kSessionBytes}};
  manifest.head.last_used_ns = id.value;
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  const auto sizes = peek_manifest(bytes);
  const auto index =
      files.open(folder + "/" + index_file_name(id), OpenMode::create_exclusive, Caching::buffered);
  STRATA_CHECK(sizes.ok() && index.ok());
  STRATA_CHECK(files.write_at(*index, std::span(bytes).first(sizes->head_bytes), 0).ok());
  STRATA_CHECK(files.truncate(*index, sizes->total_bytes).ok());
  files.close(*index);
  const auto session =
      files.open(folder + "/" + session_file_name(id), OpenMode::create_exclusive, Caching::buffered);
  STRATA_CHECK(session.ok() && files.truncate(*session, kSessionBytes).ok());
  files.close(*session);
}

Manifest sample() {
  Manifest manifest;
  manifest.head.stage_count = 1;
  manifest.head.tokens_per_block = 1024;
  std::mt19937 random(1);
  for (uint32_t i = 0; i < kTokens; ++i) manifest.tokens.push_back(static_cast<Token>(random() % 150'000));
  for (uint32_t first = 0; first < kTokens; first += 1024) {
    const uint32_t count = std::min(1024u, kTokens - first);
    manifest.parts.push_back(
        {PartKind::block, 0, 0, first, count, limits::kSessionHeaderBytes + first * 4096ull, 4096, {}});
  }
  return manifest;
}

class Folder {
 public:
  explicit Folder(int64_t conversations) {
    const char* base = std::getenv("TMPDIR");
    path = std::string(base != nullptr ? base : "/tmp") + "/strata-intake-bench-XXXXXX";
    STRATA_CHECK(::mkdtemp(path.data()) != nullptr);
    Manifest manifest = sample();
    for (int64_t i = 1; i <= conversations; ++i)
      store(files, path, ConversationId{static_cast<uint64_t>(i)}, manifest);
  }
  ~Folder() {
    const auto names = files.list(path);
    for (const std::string& name : *names) (void)files.unlink(path + "/" + name);
    ::rmdir(path.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  PosixFileSystem files;
  std::string path;
};

// A field of /proc/self/status or io, in its own unit.
double proc_value(const char* file, const char* format) {
  std::FILE* stream = std::fopen(file, "r");
  if (stream == nullptr) return 0;
  char line[256];
  double value = 0;
  while (std::fgets(line, sizeof line, stream) != nullptr && std::sscanf(line, format, &value) != 1) {
  }
  std::fclose(stream);
  return value;
}

void intake(benchmark::State& state) {
  Folder folder(state.range(0));
  SilentLog log;
  Metrics metrics;
  IntakeRules rules;
  rules.folder = folder.path;
  rules.budget_bytes = UINT64_MAX / 2;
  const double rss_before = proc_value("/proc/self/status", "VmRSS: %lf kB");
  const double read_before = proc_value("/proc/self/io", "rchar: %lf");
  double rss = 0;
  for (auto _ : state) {
    const auto report = take_in(folder.files, log, metrics, rules);
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
}  // namespace strata
