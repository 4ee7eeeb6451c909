// strata_disk_bench: what the disk tier reaches beside the limits of the same machine in the same run. See
// docs/benchmarks.md. Ends with 0 when all bytes were right and all controls differed; times decide nothing.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/disk/benchmarks.hpp"

namespace strata::bench {
namespace {

constexpr const char* kUsage =
    "usage: strata_disk_bench [--quick] [--dir FOLDER] [--json FILE] [--rounds N] [--only "
    "transfers|conversations|"
    "sharing|intake]\n"
    "  --quick   small sizes: shows that everything works\n"
    "  --dir     a folder on the disk to be measured [TMPDIR, else /tmp]; up to 20 GB are written there\n"
    "  --json    the table as JSON, for programs\n"
    "  --rounds  alternating runs of which medians are taken [5]\n";

struct CommandLine {
  bool quick = false;
  std::string folder;
  std::string json;
  std::string only;
  uint32_t rounds = 0;
};

bool parse(int count, char** arguments, CommandLine& line) {
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (name == "--quick") {
      line.quick = true;
      continue;
    }
    if (i + 1 == count) return false;
    const std::string value = arguments[++i];
    if (name == "--dir")
      line.folder = value;
    else if (name == "--json")
      line.json = value;
    else if (name == "--only")
      line.only = value;
    else if (name == "--rounds")
      line.rounds = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    else
      return false;
  }
  return true;
}

// A folder of its own, removed with everything in it.
class RunFolder {
 public:
  explicit RunFolder(std::string parent) : path_(std::move(parent) + "/strata-disk-bench-XXXXXX") {
    there_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~RunFolder() {
    std::error_code ignored;
    if (there_) std::filesystem::remove_all(path_, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  [[nodiscard]] bool there() const { return there_; }
  // Each measurement gets one: what one stored is no other's.
  [[nodiscard]] std::string part(const char* name) const {
    std::filesystem::create_directory(path_ + "/" + name);
    return path_ + "/" + name;
  }

 private:
  std::string path_;
  bool there_ = false;
};

struct Measurement {
  const char* name;
  void (*run)(const Settings&, Report&);
};
constexpr Measurement kMeasurements[] = {{"transfers", measure_transfers},
                                         {"conversations", measure_conversations},
                                         {"sharing", measure_sharing},
                                         {"intake", measure_intake}};

int run(const CommandLine& line) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string parent = !line.folder.empty() ? line.folder : temporary != nullptr ? temporary : "/tmp";
  const RunFolder folder(parent);
  if (!folder.there()) {
    std::fprintf(stderr, "bench/disk: %s: %s\n", parent.c_str(), std::strerror(errno));
    return 1;
  }
  Settings settings = line.quick ? quick_settings() : Settings();
  if (line.rounds > 0) settings.rounds = line.rounds;
  Report report;
  for (const Measurement& measurement : kMeasurements) {
    if (!line.only.empty() && line.only != measurement.name) continue;
    std::fprintf(stderr, "bench/disk: %s\n", measurement.name);
    settings.folder = folder.part(measurement.name);
    measurement.run(settings, report);
  }
  std::fputs(report.table().c_str(), stdout);
  if (!line.json.empty()) std::ofstream(line.json) << report.json(line.quick) << '\n';
  return report.checks_hold() ? 0 : 1;
}

}  // namespace
}  // namespace strata::bench

int main(int count, char** arguments) {
  strata::bench::CommandLine line;
  if (!strata::bench::parse(count, arguments, line)) {
    std::fputs(strata::bench::kUsage, stderr);
    return 2;
  }
  return strata::bench::run(line);
}
