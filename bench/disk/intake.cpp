// P-8: intake of many conversations, beside a loop that opens each index and reads its head.
#include <fmt/format.h>

#include "bench/disk/bare_loop.hpp"
#include "bench/disk/benchmarks.hpp"
#include "bench/disk/must.hpp"
#include "bench/disk/quiet_log.hpp"
#include "bench/support/stored_folder.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"
#include "tiers/intake.hpp"

namespace strata::bench {
namespace {

double read_heads(StoredFolder& folder, uint32_t conversations) {
  std::vector<std::byte> head(folder.head_bytes());
  const uint64_t start = wall_ns();
  for (uint32_t i = 1; i <= conversations; ++i) {
    const std::string path = folder.path() + "/" + index_file_name(ConversationId{i});
    const FileHandle file = must(folder.files().open(path, OpenMode::read, Caching::buffered));
    (void)must(folder.files().read_at(file, head, 0));
    folder.files().close(file);
  }
  return static_cast<double>(wall_ns() - start) / 1e9;
}

Row row_of(const std::string& what, double value, const char* unit, double bound) {
  Row row;
  row.id = "P-8";
  row.what = what;
  row.measured = fmt::format("{:.2f} {}", value, unit);
  row.value = value;
  row.target = Row::Target::at_most;
  row.bound = bound;
  return row;
}

}  // namespace

void measure_intake(const Settings& settings, Report& report) {
  const uint32_t count = settings.stored_conversations;
  StoredFolder folder(settings.folder, count);
  QuietLog log;
  Metrics metrics;
  IntakeRules rules;
  rules.folder = folder.path();
  rules.budget_bytes = UINT64_MAX / 2;
  rules.now_wall_ns = UINT64_MAX / 2;
  std::vector<double> seconds;
  std::vector<double> bare;
  const double resident = proc_value("/proc/self/status", "VmRSS: %lf kB");
  double grown = 0;
  double read = 0;
  for (uint32_t round = 0; round < settings.rounds; ++round) {
    bare.push_back(read_heads(folder, count));
    const double before = proc_value("/proc/self/io", "rchar: %lf");
    const uint64_t start = wall_ns();
    const IntakeReport taken = must(take_in(folder.files(), log, metrics, rules));
    seconds.push_back(static_cast<double>(wall_ns() - start) / 1e9);
    read = proc_value("/proc/self/io", "rchar: %lf") - before;
    grown = std::max(grown, proc_value("/proc/self/status", "VmRSS: %lf kB") - resident);
    report.check(taken.taken.size() == count && taken.taken.front().head.last_used_ns == count,
                 "every conversation was taken in, the most recent first");
  }
  rules.identity.model = {1, 1};  // the control: another model's folder, which is left as it is
  rules.remove_foreign = false;
  report.check(must(take_in(folder.files(), log, metrics, rules)).taken.empty(),
               "another model takes none of them in");
  Row time = row_of(fmt::format("intake of {} conversations, warm", count), median(seconds), "s", 1);
  time.beside = fmt::format("opening and reading heads {:.2f} s", median(bare));
  time.runs = seconds;
  report.add(std::move(time));
  report.add(row_of("bytes read at intake", read / static_cast<double>(limits::kMiB), "MiB", 150));
  report.add(row_of("memory held after intake", grown / 1024, "MiB", 200));
}

}  // namespace strata::bench
