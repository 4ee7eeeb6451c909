#include "tests/sim/power_loss_history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

constexpr int kSteps = 50;
constexpr uint64_t kMinuteNs = 60'000'000'000;
constexpr uint64_t kTtlNs = 20 * kMinuteNs;
constexpr uint64_t kRam = 120 << 10;
constexpr uint64_t kDisk = 240 << 10;
constexpr uint32_t kGenerate = 2;
constexpr uint32_t kLongest = 130;
constexpr size_t kAgents = 6;
constexpr size_t kLogLines = 12;  // of a failure
constexpr int kRestores = 2;      // compared logit by logit after each cut

const std::string kFolder = StackWorld::kFolder;
constexpr std::array kForeign{"notes.txt", "conv-00000000000000aa.idx", "conv-00000000000000bb.sess"};

const std::vector<Token>& system_prompt() {
  static const std::vector<Token> tokens = prompt_of(1, 20);
  return tokens;
}

}  // namespace

// ---- cold answers

const Answer& ColdAnswers::to(const StackWorldOptions& shape, const std::vector<Token>& prompt,
                              uint32_t generate) {
  Shape& cold = shapes_[shape.layout + std::to_string(shape.stages)];
  if (!cold.world) {
    StackWorldOptions plain = shape;
    plain.tiers = {};
    plain.slots = 1;
    plain.files = nullptr;
    cold.world = std::make_unique<StackWorld>(plain);
  }
  Answer& answer = cold.known[{prompt, generate}];
  if (!answer.tokens.empty()) return answer;
  TierRequest request;
  request.use_cache = false;
  return answer = cold.world->ask(prompt, generate, request);
}

// ---- counts

void PowerLossCounts::add(const PowerLossCounts& other) {
  histories += other.histories;
  cuts += other.cuts;
  cuts_in_a_job += other.cuts_in_a_job;
  cuts_at_start += other.cuts_at_start;
  unsynced += other.unsynced;
  publications += other.publications;
  removals += other.removals;
  survived += other.survived;
  restored += other.restored;
  refused += other.refused;
  compactions += other.compactions;
  compared += other.compared;
  reused += other.reused;
  for (const auto& [reason, count] : other.refusals) refusals[reason] += count;
}

std::string PowerLossCounts::text() const {
  std::string reasons;
  for (const auto& [reason, count] : refusals) reasons += fmt::format(" {} {}", reason, count);
  return fmt::format(
      "{} histories: {} cuts ({} in the middle of a job, {} while starting) with {} unsynced changes; {} "
      "publications, {} removals, {} compactions; after the cuts {} conversations were there and whole: {} "
      "taken in, {} "
      "refused{}; {} answers compared logit by logit, {} of them with reused tokens",
      histories, cuts, cuts_in_a_job, cuts_at_start, unsynced, publications, removals, compactions, survived,
      restored, refused, reasons, compared, reused);
}

// ---- setting up

StackWorldOptions PowerLossHistory::options_for(uint64_t seed, PowerLossFileSystem& files) {
  StackWorldOptions options;
  options.layout = std::array{"attention", "sliding", "hybrid"}[seed % 3];
  options.stages = 1 + static_cast<int>(seed / 3 % 2);
  options.slots = 1 + static_cast<int>(seed / 6 % 2);
  options.context = 160;
  options.seed = seed;
  options.files = &files;
  options.model = {{"layers", options.layout == "attention" ? "2" : "4"},
                   {"dim", "16"},
                   {"heads", "1"},
                   {"kv_heads", "1"},
                   {"ffn", "16"},
                   {"window", "16"}};
  options.tiers = ram_and_disk(kRam, kDisk);
  options.tiers.checkpoints_every_tokens = 40;
  options.tiers.checkpoints_max = 2;
  options.tiers.disk_ttl_ns = seed % 4 == 1 ? kTtlNs : 0;
  options.tiers.compaction_min_bytes = limits::kAlignment;
  options.tiers.disk_mode = seed % 5 == 3;
  if (options.tiers.disk_mode) options.tiers.ram_budget_bytes = 0;
  if (seed % 5 == 4) options.tiers.write_policy = seed % 2 == 0 ? WritePolicy::through : WritePolicy::idle;
  return options;
}

PowerLossHistory::PowerLossHistory(uint64_t seed, ColdAnswers& cold, ForgottenSync forgotten)
    : seed_(seed),
      random_(seed),
      cold_(cold),
      promises_(files_, kFolder),
      options_(options_for(seed, files_)) {
  for (uint64_t i = 0; i < kAgents; ++i)
    agents_.push_back({followed_by(system_prompt(), 100 + i, 14), 100 + i});
  files_.forgets_sync = [this, forgotten](DiskChange change, const std::string& path) {
    if (foreign_.size() < kForeign.size()) return false;  // still setting up
    return forgotten != ForgottenSync::none && forgotten == sync_of(change, path);
  };
}

// Which of the promised ones this sync is.
ForgottenSync PowerLossHistory::sync_of(DiskChange change, const std::string& path) const {
  if (change == DiskChange::sync_data)
    return path.ends_with(".sess") ? ForgottenSync::session_data : ForgottenSync::index_data;
  switch (files_.last_change()) {
    case DiskChange::rename:
      return ForgottenSync::published_name;
    case DiskChange::unlink:
      return ForgottenSync::removed_name;
    default:
      return ForgottenSync::created_name;
  }
}

void PowerLossHistory::note(std::string what) { steps_.push_back(std::move(what)); }

void PowerLossHistory::wrong(std::string what) {
  if (!failure_.empty()) return;
  failure_ = fmt::format("seed {} ({}, {} stages, {} slots{}): {}\n  {}", seed_, options_.layout,
                         options_.stages, options_.slots,
                         std::string(options_.tiers.disk_ttl_ns > 0 ? ", ttl" : "") +
                             (options_.tiers.disk_mode ? ", disk mode" : "") +
                             (options_.tiers.write_policy != WritePolicy::evict ? ", writes early" : ""),
                         what, fmt::join(steps_, "\n  "));
  const auto lines = world_ ? world_->log().lines() : std::vector<RecordingLog::Line>{};
  for (size_t i = lines.size() - std::min(lines.size(), kLogLines); i < lines.size(); ++i)
    failure_ += "\n  log: " + lines[i].text;
}

std::string PowerLossHistory::run() {
  world_ = std::make_unique<StackWorld>(options_);
  if (!world_->opened.ok()) wrong("no start: " + world_->opened.error().message);
  if (seed_ % 4 == 2) world_->faulty_files().set_plan({{FileCall::punch, 1, EOPNOTSUPP, true}});
  for (const char* name : kForeign) {
    const std::string path = kFolder + "/" + name;
    const std::string text = std::string("not a conversation: ") + name;
    const auto file = files_.open(path, OpenMode::create_exclusive, Caching::buffered);
    if (!file.ok() || !files_.write_at(*file, std::as_bytes(std::span(text)), 0).ok() ||
        !files_.sync_data(*file).ok()) {
      wrong("cannot write " + path);
    }
    files_.close(*file);
    if (!files_.sync_directory(kFolder).ok()) wrong("cannot sync the folder");
    foreign_[path] = *files_.content(path);
  }
  uint64_t cut_at = below(kSteps);
  for (uint64_t i = 0; i < kSteps && failure_.empty(); ++i) {
    if (i == cut_at) cut_soon();
    step();
    if (!files_.off()) continue;
    cut_at = i + 6 + below(30);
    cut_and_come_back();
  }
  if (failure_.empty()) {
    cut_soon();
    step();
    world_->options().writes_run = true;
    if (!files_.off()) world_->settle();
    cut_and_come_back();
  }
  counts_.histories = 1;
  counts_.publications = promises_.publications();
  counts_.removals = promises_.removals();
  counts_.compactions = static_cast<uint64_t>(world_->metrics().value("strata_compactions_total", ""));
  return failure_;
}

void PowerLossHistory::cut_soon() {
  const uint64_t calls = 1 + below(one_in(2) ? 12 : 60);
  note(fmt::format("the power goes after {} more changes", calls));
  files_.cut_in(calls);
}

// ---- steps

void PowerLossHistory::step() {
  world_->options().writes_run = options_.tiers.disk_mode || !one_in(4);  // there a switch is a write
  const uint64_t dice = below(40);
  if (dice < 26) {
    turn();
  } else if (dice < 29) {
    fork();
  } else if (dice < 31) {
    note("time passes");
    world_->clock().advance((1 + below(8)) * kMinuteNs);
    world_->step(2);
  } else if (dice < 34) {
    note("the writer does one job");
    (void)world_->writer().run_one();
    world_->step();
  } else if (dice < 36) {
    note("everything settles");
    world_->settle();
  } else if (dice < 38) {
    const auto stored = world_->stack().conversations();
    if (stored.empty()) return;
    const StoredConversation& one = stored[below(stored.size())];
    const bool forget = one_in(2);
    note((forget ? "forget " : "pin ") + to_hex(one.id));
    if (forget) {
      (void)world_->stack().forget(one.id);
    } else {
      (void)world_->stack().pin(one.id, one_in(2));
    }
  } else {
    drain_and_restart();
  }
  check_space();
}

void PowerLossHistory::turn() {
  Agent& agent = agents_[below(agents_.size())];
  note(fmt::format("a prompt of {} tokens", agent.tokens.size()));
  TierRequest request;
  request.borders = {static_cast<uint32_t>(system_prompt().size())};
  request.keep = !one_in(16);
  const Answer answer = world_->ask(agent.tokens, kGenerate, request);
  steps_.back() +=
      fmt::format(", {} from {}", answer.placement.reused_tokens, to_string(answer.placement.tier));
  compare(agent.tokens, answer);
  // Two ways to go on from each state, so that cold answers are known after some histories.
  agent.tokens = next_prompt(agent.tokens, answer, 200 + below(2), 12);
  if (agent.tokens.size() > kLongest) agent.tokens = followed_by(system_prompt(), agent.seed, 14);
}

void PowerLossHistory::fork() {
  const Agent& from = agents_[below(agents_.size())];
  const size_t length = std::min<size_t>(from.tokens.size() - 1, 20 + 14 * below(5));
  std::vector<Token> tokens(from.tokens.begin(), from.tokens.begin() + static_cast<ptrdiff_t>(length));
  note(fmt::format("a fork at {}", length));
  agents_[below(agents_.size())].tokens = followed_by(std::move(tokens), 300 + below(2), 10);
}

void PowerLossHistory::drain_and_restart() {
  const bool drains = one_in(2);
  note(drains ? "shutdown and start" : "the process is killed and started");
  if (drains) world_->shutdown();
  world_->halt();
  if (!start() && !files_.off()) wrong("no start: " + world_->opened.error().message);
}

void PowerLossHistory::compare(const std::vector<Token>& prompt, const Answer& answer) {
  if (!answer.failure.empty()) {
    wrong("a request failed: " + answer.failure);
  } else if (!(answer == cold_.to(options_, prompt, kGenerate))) {
    wrong(fmt::format("a wrong answer, with {} tokens from {}", answer.placement.reused_tokens,
                      to_string(answer.placement.tier)));
  }
}

// Every byte of ours is charged, and what is charged is within the budget; what is not ours is as it was.
void PowerLossHistory::check_space() {
  if (files_.off() || !failure_.empty()) return;
  uint64_t physical = 0;
  for (const std::string& path : files_.paths()) {
    if (path.find("/conv-") != std::string::npos && !foreign_.contains(path))
      physical += files_.allocated_bytes(path);
  }
  const uint64_t charged = world_->stack().status().disk_bytes;
  if (physical > charged) wrong(fmt::format("{} bytes of ours, {} charged", physical, charged));
  if (charged > kDisk) wrong(fmt::format("{} bytes charged, the budget is {}", charged, kDisk));
  for (const auto& [path, bytes] : foreign_) {
    if (files_.content(path) != bytes) wrong(path + " is not ours, and not as it was");
  }
}

// ---- the cut

void PowerLossHistory::cut_and_come_back() {
  ++counts_.cuts;
  counts_.cuts_in_a_job += files_.off() ? 1 : 0;
  files_.cut_now();
  survive();
  while (failure_.empty() && one_in(4)) {
    note("and goes again while starting");
    files_.cut_in(1 + below(12));
    const bool started = start();
    if (started) files_.cut_now();
    ++counts_.cuts_at_start;
    survive();
  }
  if (!failure_.empty()) return;
  const auto before = promises_.published();
  counts_.survived += before.size();
  if (!start()) return wrong("no start on what survived: " + world_->opened.error().message);
  check_taken_in(before);
  check_space();
  restore_some();
  check_space();
}

void PowerLossHistory::survive() {
  world_->halt();
  counts_.unsynced += files_.unsynced_changes();
  const uint64_t dice = below(16);
  const auto survival = dice < 2   ? PowerLossFileSystem::Survival::everything
                        : dice < 3 ? PowerLossFileSystem::Survival::nothing
                                   : PowerLossFileSystem::Survival::by_seed;
  note(fmt::format("the power is gone with {} changes unsynced", files_.unsynced_changes()));
  files_.come_back(random_.next(), survival);
  for (const std::string& line : promises_.check_survivors()) wrong(line);
}

bool PowerLossHistory::start() { return world_->try_restart().ok(); }

bool PowerLossHistory::expired(const Manifest& manifest) {
  const uint64_t now = world_->clock().wall_ns();
  return options_.tiers.disk_ttl_ns > 0 && manifest.head.last_used_ns + options_.tiers.disk_ttl_ns < now;
}

// Each of the survivors is in the tier, or was refused for its age or the budget.
void PowerLossHistory::check_taken_in(const std::map<ConversationId, Manifest>& before) {
  std::map<ConversationId, uint32_t> taken;
  for (const StoredConversation& stored : world_->stack().conversations()) taken[stored.id] = stored.tokens;
  for (const auto& [id, manifest] : before) {
    const auto found = taken.find(id);
    if (found != taken.end() && found->second == manifest.tokens.size()) {
      ++counts_.restored;
      continue;
    }
    const std::string line = "refused " + index_file_name(id) + ": ";
    std::string reason = "none";
    for (const char* known : {"expired", "budget"}) {
      if (world_->log().contains(line + known)) reason = known;
    }
    const bool right = reason == "expired" ? expired(manifest) : reason == "budget";
    if (!right) wrong(fmt::format("{} was not taken in, reason: {}", index_file_name(id), reason));
    ++counts_.refused;
    ++counts_.refusals[reason];
  }
}

// Continues some of what is stored; the first comes back whole.
void PowerLossHistory::restore_some() {
  const auto stored = promises_.published();
  for (int i = 0; i < kRestores && failure_.empty() && !stored.empty(); ++i) {
    auto one = stored.begin();
    std::advance(one, static_cast<ptrdiff_t>(below(stored.size())));
    std::vector<Token> prompt = one->second.tokens;
    const size_t length = prompt.size();
    prompt.push_back(40);
    note(fmt::format("{} goes on after {} tokens", index_file_name(one->first), length));
    const Answer answer = world_->ask(prompt, kGenerate);
    compare(prompt, answer);
    ++counts_.compared;
    counts_.reused += answer.placement.reused_tokens > 0 ? 1 : 0;
    if (i == 0 && answer.placement.reused_tokens < length)
      wrong(fmt::format("only {} of {} tokens came back: {}", answer.placement.reused_tokens, length,
                        to_string(answer.placement.cause)));
  }
  if (world_->log().contains("quarantined")) wrong("a stored conversation was quarantined");
}

}  // namespace strata::testing
