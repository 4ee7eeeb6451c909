// P-3, P-4, P-5: a long conversation is parked, comes back from the disk, and is parked again after it grew;
// and many switches between short ones while the writer works.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "bench/disk/bare_loop.hpp"
#include "bench/disk/benchmarks.hpp"
#include "bench/disk/engine_driver.hpp"
#include "bench/disk/must.hpp"
#include "core/posix/page_source.hpp"

namespace strata::bench {
namespace {

constexpr uint32_t kControlTokens = 64;
constexpr double kNsPerMs = 1e6;
constexpr uint32_t kSwitchAgents = 8;
constexpr uint32_t kSwitchTokens = 1'500;    // of each at the start
constexpr uint32_t kTurnTokens = 16;         // it grows by, each turn
constexpr uint64_t kBytesPerToken = 16'384;  // of the synthetic model, as it is by default

std::vector<Token> control_prompt(uint64_t seed) { return tokens_of(90'000 + seed, kControlTokens); }

class Conversations {
 public:
  Conversations(const Settings& settings, Report& report) : settings_(settings), report_(report) {
    prompt_ = tokens_of(1, settings.conversation_tokens);
  }

  void run() {
    park_and_store();
    restore_from_disk();
    park_again();
    switch_under_load();
  }

 private:
  [[nodiscard]] EngineSettings engine() const {
    EngineSettings engine = synthetic_engine(settings_.folder, settings_.ram_bytes);
    engine.context_tokens = settings_.conversation_tokens + 2 * settings_.new_tokens;
    return engine;
  }

  void park_and_store();
  void restore_from_disk();
  void park_again();
  void switch_under_load();
  std::vector<double> switches(const std::string& folder);
  double export_alone(Model& model);
  double import_alone(Model& model);
  double read_alone(uint64_t bytes);

  const Settings& settings_;
  Report& report_;
  std::vector<Token> prompt_;
};

// Memory of the kind the pools have.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : span_(must(pages_.take(bytes))) {}
  ~Memory() { pages_.give_back(span_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::span<std::byte> span() const { return span_; }

 private:
  PosixPageSource pages_;
  std::span<std::byte> span_;
};

struct Block {
  uint32_t first;
  uint32_t count;
  std::span<std::byte> bytes;
};

std::vector<Block> blocks_of(const Model& model, uint32_t tokens, std::span<std::byte> memory) {
  std::vector<Block> blocks;
  const uint32_t size = model.info().tokens_per_block;
  for (uint32_t first = 0; first < tokens; first += size) {
    const uint32_t count = std::min(size, tokens - first);
    const uint64_t bytes = model.block_bytes(0, count);
    blocks.push_back({first, count, memory.first(bytes)});
    memory = memory.subspan(bytes);
  }
  return blocks;
}

uint64_t state_bytes(const Model& model, uint32_t tokens) {
  uint64_t bytes = 0;
  const uint32_t size = model.info().tokens_per_block;
  for (uint32_t first = 0; first < tokens; first += size)
    bytes += model.block_bytes(0, std::min(size, tokens - first));
  return bytes;
}

// Milliseconds of the copies that a park of the whole slot consists of, into memory that was touched.
double Conversations::export_alone(Model& model) {
  const Memory memory(state_bytes(model, model.length(0)));
  const std::vector<Block> blocks = blocks_of(model, model.length(0), memory.span());
  const uint64_t start = wall_ns();
  for (const Block& block : blocks) must(model.export_block(0, 0, block.first, block.count, block.bytes, {}));
  return static_cast<double>(wall_ns() - start) / kNsPerMs;
}

// Milliseconds of the copies that a restore of the whole slot consists of.
double Conversations::import_alone(Model& model) {
  const uint32_t tokens = settings_.conversation_tokens;
  const Memory memory(state_bytes(model, tokens));
  const std::vector<Block> blocks = blocks_of(model, tokens, memory.span());
  for (const Block& block : blocks) must(model.export_block(0, 0, block.first, block.count, block.bytes, {}));
  const ImportId import = must(model.import_begin(0, prompt_));
  const uint64_t start = wall_ns();
  for (const Block& block : blocks)
    must(model.import_block(import, 0, block.first, block.count, block.bytes, {}));
  const double ms = static_cast<double>(wall_ns() - start) / kNsPerMs;
  model.import_abort(import);
  return ms;
}

// Milliseconds of the bare loop for as many bytes.
double Conversations::read_alone(uint64_t bytes) {
  const uint64_t block = std::min<uint64_t>(uint64_t{16} << 20, bytes / 8 / 4096 * 4096);
  const Memory memory(bytes / block * block);
  std::vector<std::span<std::byte>> blocks;
  for (uint64_t at = 0; at < memory.span().size(); at += block)
    blocks.push_back(memory.span().subspan(at, block));
  BareLoop loop;
  loop.file = settings_.folder + "/bare.bin";
  if (::access(loop.file.c_str(), F_OK) != 0) (void)run_bare_loop(loop, blocks);
  loop.direction = Direction::read;
  const LoopTime time = run_bare_loop(loop, blocks);
  return static_cast<double>(time.wall_ns) / kNsPerMs * static_cast<double>(bytes) /
         static_cast<double>(memory.span().size());
}

void Conversations::park_and_store() {
  EngineDriver driver(engine());
  std::vector<double> ratios;
  std::vector<double> blocked;
  std::vector<double> alone;
  for (uint32_t round = 0; round < settings_.rounds; ++round) {
    driver.settle();
    // The last one is the conversation that the other measurements go on with.
    const bool last = round + 1 == settings_.rounds;
    driver.ask(last ? prompt_ : tokens_of(1'000 + round, settings_.conversation_tokens));
    driver.settle();
    alone.push_back(export_alone(driver.model()));
    const Asked control = driver.ask(control_prompt(round), EngineDriver::Keep::no);
    report_.check(control.placement.reused_tokens == 0, "another prefix reuses nothing");
    blocked.push_back(static_cast<double>(control.blocked_ns) / kNsPerMs);
    ratios.push_back(blocked.back() / alone.back());
  }
  Row row;
  row.id = "P-4";
  row.what = fmt::format("park of {} tokens: engine loop blocked", settings_.conversation_tokens);
  row.measured = fmt::format("{:.0f} ms", median(blocked));
  row.beside = fmt::format("device copy of the new bytes {:.0f} ms", median(alone));
  row.value = median(ratios);
  row.target = Row::Target::at_most;
  row.bound = 1.10;
  row.runs = ratios;
  report_.add(std::move(row));
  driver.shutdown();
}

void Conversations::restore_from_disk() {
  std::vector<double> ratios;
  std::vector<double> restore;
  std::vector<double> limit;
  for (uint32_t round = 0; round < settings_.rounds; ++round) {
    EngineDriver driver(engine());
    driver.settle();
    const uint64_t bytes = state_bytes(driver.model(), settings_.conversation_tokens);
    const double read = read_alone(bytes);
    const Asked asked = driver.ask(joined(prompt_, tokens_of(2, 16)), EngineDriver::Keep::yes);
    report_.check(
        asked.placement.tier == Tier::disk && asked.placement.reused_tokens == settings_.conversation_tokens,
        "the whole conversation comes back from the disk");
    restore.push_back(static_cast<double>(asked.placement.placing_ns) / kNsPerMs);
    limit.push_back(std::max(read, import_alone(driver.model())));
    ratios.push_back(restore.back() / limit.back());
  }
  ::unlink((settings_.folder + "/bare.bin").c_str());
  Row row;
  row.id = "P-3";
  row.what = fmt::format("restore of {} tokens from disk", settings_.conversation_tokens);
  row.measured = fmt::format("{:.0f} ms", median(restore));
  row.beside = fmt::format("the slower of read and copy {:.0f} ms", median(limit));
  row.value = median(ratios);
  row.target = Row::Target::at_most;
  row.bound = 1.10;
  row.runs = ratios;
  report_.add(std::move(row));
}

void Conversations::park_again() {
  EngineDriver driver(engine());
  const Asked back = driver.ask(joined(prompt_, tokens_of(3, settings_.new_tokens)));
  report_.check(
      back.placement.tier == Tier::disk && back.placement.reused_tokens == settings_.conversation_tokens,
      "the conversation that grows comes back from the disk");
  const double copied_before = driver.metrics().value("strata_parked_bytes_total");
  const double written_before = driver.metrics().value("strata_disk_written_bytes_total");
  const Asked control = driver.ask(control_prompt(77), EngineDriver::Keep::no);
  report_.check(control.placement.reused_tokens == 0, "another prefix reuses nothing");
  const double copied = driver.metrics().value("strata_parked_bytes_total") - copied_before;
  driver.shutdown();
  const double written = driver.metrics().value("strata_disk_written_bytes_total") - written_before;
  const auto fresh =
      static_cast<double>(state_bytes(driver.model(), settings_.conversation_tokens + settings_.new_tokens) -
                          state_bytes(driver.model(), settings_.conversation_tokens));
  for (const auto& [what, bytes] : {std::pair("copied", copied), std::pair("written", written)}) {
    Row row;
    row.id = "P-5";
    row.what = fmt::format("parked again after {} tokens: {}", settings_.new_tokens, what);
    row.measured = fmt::format("{:.1f} MB", bytes / 1e6);
    row.beside = fmt::format("the new tokens' state {:.1f} MB", fresh / 1e6);
    row.value = bytes / fresh;
    row.target = Row::Target::at_most;
    row.bound = 1.1;
    report_.add(std::move(row));
  }
}

// Milliseconds that placing took, of each switch; sorted.
std::vector<double> Conversations::switches(const std::string& folder) {
  const uint32_t turns = settings_.switches / kSwitchAgents + 2;
  const uint32_t longest = kSwitchTokens + turns * kTurnTokens;
  // Room for all of them, and so little more that the writer keeps copies ready.
  const uint64_t all_bytes = uint64_t{kSwitchAgents} * longest * kBytesPerToken;
  EngineSettings settings = synthetic_engine(folder, all_bytes * 5 / 4 + (uint64_t{16} << 20));
  settings.context_tokens = longest + kTurnTokens;
  EngineDriver driver(settings);
  driver.settle();
  std::vector<std::vector<Token>> agents;
  for (uint32_t i = 0; i < kSwitchAgents; ++i) {
    agents.push_back(tokens_of(500 + i, kSwitchTokens));
    driver.ask(agents.back());
  }
  std::vector<double> ms;
  for (uint32_t i = 0; i < settings_.switches; ++i) {
    std::vector<Token>& agent = agents[i % kSwitchAgents];
    const auto held = static_cast<uint32_t>(agent.size());
    agent = joined(std::move(agent), tokens_of(10'000 + i, kTurnTokens));
    const Asked asked = driver.ask(agent);
    report_.check(asked.placement.tier == Tier::ram && asked.placement.reused_tokens == held,
                  "a switch comes back from RAM, whole");
    ms.push_back(static_cast<double>(asked.placement.placing_ns) / kNsPerMs);
  }
  if (!folder.empty())
    report_.check(driver.metrics().value("strata_disk_written_bytes_total") > 0,
                  "the writer was at work meanwhile");
  std::ranges::sort(ms);
  return ms;
}

// The same switches with and without the disk tier at work.
void Conversations::switch_under_load() {
  const std::vector<double> with = switches(settings_.folder);
  const std::vector<double> without = switches("");
  const auto p99 = [](const std::vector<double>& sorted) { return sorted[(sorted.size() - 1) * 99 / 100]; };
  Row row;
  row.id = "P-4";
  row.what = fmt::format("{} switches, the writer at work: p99", settings_.switches);
  row.measured = fmt::format("{:.1f} ms (median {:.1f})", p99(with), median(with));
  row.beside = fmt::format("without a disk {:.1f} ms ({:.1f})", p99(without), median(without));
  row.value = p99(with) / p99(without);
  report_.add(std::move(row));
}

}  // namespace

void measure_conversations(const Settings& settings, Report& report) {
  Conversations(settings, report).run();
}

}  // namespace strata::bench
