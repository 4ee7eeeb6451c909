// P-1, P-2, P-9, P-10: what the writer and the reader reach beside the bare loop, fio, memcpy and XXH3.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>

#include "bench/disk/bare_loop.hpp"
#include "bench/disk/benchmarks.hpp"
#include "bench/disk/fio.hpp"
#include "bench/disk/must.hpp"
#include "bench/disk/transfer_rig.hpp"
#include "core/check.hpp"
#include "core/digest.hpp"

namespace strata::bench {
namespace {

constexpr double kGiga = 1e9;

struct FioSetting {
  uint32_t depth;
  Buffers buffers;
};
constexpr std::array<FioSetting, 4> kFioSettings = {
    {{4, Buffers::plain}, {4, Buffers::registered}, {8, Buffers::plain}, {8, Buffers::registered}}};

// Bytes a second of every run, in order.
struct Series {
  std::vector<double> real, real_cpu, bare, bare_digests, plain_buffers;
  std::map<size_t, std::vector<double>> fio;  // by setting
};

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> all;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) all.push_back(a[i] / b[i]);
  return all;
}

class Transfers {
 public:
  Transfers(const Settings& settings, Report& report)
      : settings_(settings), report_(report), rig_(settings), bare_file_(settings.folder + "/bare.bin") {}
  ~Transfers() { ::unlink(bare_file_.c_str()); }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void run() {
    const bool witness = fio_is_there();
    if (!witness) report_.note("fio is not installed (apt-get install fio): the rows beside it are missing");
    for (uint32_t round = 0; round < settings_.rounds; ++round) {
      take_turns(round, Direction::write);
      take_turns(round, Direction::read);
      if (witness) run_witness();
    }
    run_control();
    report_limits();
    report_direction("P-1", "spill: pinned RAM to published file", writes_);
    report_direction("P-2", "fetch: file to verified pinned RAM", reads_);
    report_digests("writing", writes_);
    report_digests("reading", reads_);
    report_cpu();
  }

 private:
  [[nodiscard]] double rate(uint64_t ns) const {
    return static_cast<double>(rig_.bytes()) / static_cast<double>(ns) * 1e9;
  }

  double bare(Direction direction, Digests digests, Buffers buffers = Buffers::registered) {
    if (direction == Direction::write) {
      ::unlink(bare_file_.c_str());
      settle_disk();
    }
    BareLoop loop;
    loop.file = bare_file_;
    loop.direction = direction;
    loop.digests = digests;
    loop.buffers = buffers;
    return rate(run_bare_loop(loop, rig_.blocks()).wall_ns);
  }

  // Who begins changes from round to round: what a run leaves behind is not always the same one's burden.
  void take_turns(uint32_t round, Direction direction) {
    Series& series = direction == Direction::write ? writes_ : reads_;
    const std::array<std::function<void()>, 4> turns = {
        [&] { series.bare.push_back(bare(direction, Digests::none)); },
        [&] { direction == Direction::write ? write_real() : read_real(); },
        [&] { series.bare_digests.push_back(bare(direction, Digests::each_block)); },
        [&] { series.plain_buffers.push_back(bare(direction, Digests::none, Buffers::plain)); }};
    for (size_t i = 0; i < turns.size(); ++i) turns[(i + round) % turns.size()]();
  }

  // Removed files are discarded in the background: not on the next one's account.
  void settle_disk() const {
    const int folder = ::open(settings_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    STRATA_CHECK(folder >= 0 && ::syncfs(folder) == 0);
    ::close(folder);
  }

  void write_real() {
    rig_.remove_files();
    settle_disk();
    const LoopTime time = rig_.publish();
    writes_.real.push_back(rate(time.wall_ns));
    writes_.real_cpu.push_back(static_cast<double>(time.cpu_ns) / static_cast<double>(rig_.bytes()));
  }

  void read_real() {
    rig_.poison();
    const LoopTime time = must(rig_.fetch());
    reads_.real.push_back(rate(time.wall_ns));
    reads_.real_cpu.push_back(static_cast<double>(time.cpu_ns) / static_cast<double>(rig_.bytes()));
    report_.check(rig_.intact(), "fetched bytes are the bytes that were spilled");
  }

  void run_witness() {
    for (size_t i = 0; i < kFioSettings.size(); ++i) {
      const std::string file = settings_.folder + "/fio.bin";
      for (Series* const series : {&writes_, &reads_}) {
        const Direction direction = series == &writes_ ? Direction::write : Direction::read;
        settle_disk();
        const auto reached = run_fio({file, direction, kFioSettings[i].buffers, kFioSettings[i].depth,
                                      settings_.block_bytes, rig_.bytes()});
        if (reached) series->fio[i].push_back(*reached);
      }
      ::unlink(file.c_str());
    }
  }

  void run_control() {
    rig_.damage_one_byte();
    const auto damaged = rig_.fetch();
    report_.check(!damaged.ok() && damaged.error().code == ErrorCode::corrupt,
                  "one wrong byte in the file is refused");
    rig_.mend();
    rig_.poison();
    report_.check(rig_.fetch().ok() && rig_.intact(), "mended, it is taken again");
  }

  void report_limits() {
    const auto blocks = rig_.blocks();
    std::vector<double> copy;
    std::vector<double> digest;
    uint64_t sum = 0;
    for (uint32_t round = 0; round < settings_.rounds; ++round) {
      uint64_t start = wall_ns();
      for (size_t i = 0; i + 1 < blocks.size(); i += 2)
        std::memcpy(blocks[i].data(), blocks[i + 1].data(), blocks[i].size());
      copy.push_back(rate(wall_ns() - start) / 2);
      start = wall_ns();
      for (const auto block : blocks) sum ^= digest_bytes(block).low;
      digest.push_back(rate(wall_ns() - start));
    }
    report_.check(sum != 1, "digests were computed");
    add_limit("memcpy, one core", copy);
    add_limit("XXH3-128, one core", digest);
  }

  void add_limit(const std::string& what, const std::vector<double>& runs) {
    Row row;
    row.what = what;
    row.value = median(runs) / kGiga;
    row.measured = fmt::format("{:.2f} GB/s", row.value);
    row.runs = runs;
    report_.add(std::move(row));
  }

  void report_direction(const std::string& id, const std::string& what, const Series& series) {
    Row row;
    row.id = id;
    row.what = what;
    row.measured = fmt::format("{:.2f} GB/s", median(series.real) / kGiga);
    row.beside = fmt::format("bare loop {:.2f} GB/s", median(series.bare) / kGiga);
    row.runs = ratios(series.real, series.bare);
    row.value = median(row.runs);
    row.target = Row::Target::at_least;
    row.bound = 0.97;
    report_.add(row);
    row.beside = fmt::format("the same, plain buffers {:.2f} GB/s", median(series.plain_buffers) / kGiga);
    row.runs = ratios(series.real, series.plain_buffers);
    row.value = median(row.runs);
    row.target = Row::Target::none;
    report_.add(row);
    if (!series.fio.empty()) report_witness(row, series);
  }

  void report_witness(Row row, const Series& series) {
    double best = 0;
    for (const auto& [setting, runs] : series.fio) {
      if (median(runs) <= best) continue;
      best = median(runs);
      const FioSetting& used = kFioSettings[setting];
      row.beside = fmt::format("fio {:.2f} GB/s (depth {}{})", best / kGiga, used.depth,
                               used.buffers == Buffers::registered ? ", fixedbufs" : "");
      row.runs = ratios(series.real, runs);
    }
    row.value = median(series.real) / best;
    row.target = Row::Target::at_least;
    row.bound = 1;
    report_.add(std::move(row));
  }

  // What the bare loop loses when the same thread digests each block while others are in flight.
  void report_digests(const std::string& what, const Series& series) {
    Row row;
    row.id = "P-9";
    row.what = "digests while " + what + ": share lost";
    row.measured = fmt::format("{:.2f} GB/s", median(series.bare_digests) / kGiga);
    row.beside = fmt::format("without {:.2f} GB/s", median(series.bare) / kGiga);
    row.runs = ratios(series.bare_digests, series.bare);
    for (double& run : row.runs) run = 1 - run;
    row.value = median(row.runs);
    row.target = Row::Target::at_most;
    row.bound = 0.05;
    report_.add(std::move(row));
  }

  void report_cpu() {
    Row row;
    row.id = "P-10";
    row.what = "CPU of the writer, digests included";
    row.value = median(writes_.real_cpu);
    row.measured = fmt::format("{:.3f} s/GB", row.value);
    row.runs = writes_.real_cpu;
    row.target = Row::Target::at_most;
    row.bound = 0.08;
    report_.add(row);
    row.id = "";
    row.what = "CPU of a fetch, digests included";
    row.value = median(reads_.real_cpu);
    row.measured = fmt::format("{:.3f} s/GB", row.value);
    row.runs = reads_.real_cpu;
    row.target = Row::Target::none;
    report_.add(std::move(row));
  }

  const Settings& settings_;
  Report& report_;
  TransferRig rig_;
  std::string bare_file_;
  Series writes_;
  Series reads_;
};

}  // namespace

void measure_transfers(const Settings& settings, Report& report) { Transfers(settings, report).run(); }

}  // namespace strata::bench
