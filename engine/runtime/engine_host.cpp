#include "engine/runtime/engine_host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/limits.hpp"
#include "core/posix/clock.hpp"
#include "core/posix/file_system.hpp"
#include "core/posix/memory_probe.hpp"
#include "core/posix/page_source.hpp"
#include "core/posix/random.hpp"
#include "engine/runtime/disk_route.hpp"
#include "engine/runtime/model_file.hpp"
#include "engine/runtime/model_identity.hpp"
#include "engine/runtime/worker_thread.hpp"
#include "engine/runtime/writer_thread.hpp"
#include "tiers/conversation_folder.hpp"

namespace strata {
namespace {

double mib(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(limits::kMiB); }

std::string on_off(bool on) { return on ? "1" : "0"; }

}  // namespace

Status load_plugins(PluginRegistry& registry, const EngineSettings& settings) {
  std::vector<std::string> paths = settings.plugins;
  if (!settings.plugin_folder.empty()) {
    PosixFileSystem files;
    auto names = files.list(settings.plugin_folder);
    if (!names.ok()) return with_context(names.error(), "--plugin-dir");
    std::ranges::sort(*names);
    for (const std::string& name : *names)
      if (name.ends_with(".so")) paths.push_back(settings.plugin_folder + "/" + name);
  }
  for (const std::string& path : paths) STRATA_TRY(registry.load(path));
  const auto runs_files = [](const PluginDescription& plugin) {
    return plugin.kind == STRATA_KIND_MODEL && plugin.name == "llama";
  };
  if (!is_model_file(settings.model) || std::ranges::any_of(registry.list(), runs_files)) return {};
  STRATA_ASSIGN(const std::string file, llama_plugin_file());
  return registry.load(file);
}

PluginOptions model_options(const EngineSettings& settings) {
  PluginOptions options = settings.model_options;
  if (is_model_file(settings.model)) options["path"] = settings.model;
  options["slots"] = std::to_string(settings.slots);
  if (settings.context_tokens > 0) options["context"] = std::to_string(settings.context_tokens);
  if (settings.state_granularity != "auto") options["state_granularity"] = settings.state_granularity;
  return options;
}

// Learned positions end where training ended. Less than was asked for would surprise in the middle of a
// conversation.
Status check_context(const EngineSettings& settings, const Model& model) {
  const uint32_t possible = model.info().context_tokens;
  if (settings.context_tokens <= possible) return {};
  return make_error(ErrorCode::invalid, fmt::format("--context {}: this model's context ends at {} tokens",
                                                    settings.context_tokens, possible));
}

uint64_t conversation_bytes(const Model& model) {
  const ModelInfo& info = model.info();
  uint64_t bytes = uint64_t{info.context_tokens} * sizeof(Token);
  for (uint32_t stage = 0; stage < info.stages; ++stage) {
    if (info.state_in_blocks) {
      const uint32_t rest = info.context_tokens % info.tokens_per_block;
      bytes += uint64_t{info.context_tokens / info.tokens_per_block} * info.max_block_bytes[stage];
      if (rest > 0) bytes += model.block_bytes(static_cast<StageId>(stage), rest);
    }
    bytes += info.checkpoint_bytes[stage];
  }
  return bytes;
}

std::optional<std::string> budget_warning(const TierOptions& tiers, uint64_t conversation_bytes,
                                          uint32_t context_tokens) {
  const uint64_t budget = tiers.disk_mode ? tiers.disk_budget_bytes : tiers.ram_budget_bytes;
  if (budget == 0 || budget >= conversation_bytes) return std::nullopt;
  return fmt::format(
      "strata: conversation cache: the budget of {:.1f} MiB is smaller than one conversation of {} tokens "
      "({:.1f} MiB): "
      "long conversations will not be kept; see {}",
      mib(budget), context_tokens, mib(conversation_bytes),
      tiers.disk_mode ? "--conversation-cache-disk-mib" : "--conversation-cache-mib");
}

// In the order of construction; taken down in reverse.
struct EngineHost::Parts {
  Parts(const EngineSettings& wanted, Log& log_port)
      : settings(wanted), log(log_port), registry(log_port, clock) {}

  Status make_model();
  std::vector<IoCandidate> io_candidates() const;
  DiskRoute route();
  Status make_disk(std::function<void()> wake);
  Status make_tiers();
  void announce() const;

  EngineSettings settings;
  Log& log;
  PosixClock clock;
  PosixFileSystem files;
  PosixMemoryProbe memory;
  PosixPageSource pages;
  PosixRandom random;
  Metrics metrics;
  PluginRegistry registry;
  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  Identity identity;
  std::unique_ptr<IoQueue> reader;
  std::unique_ptr<IoQueue> writer_io;
  std::unique_ptr<WriterThread> writer;
  std::unique_ptr<WorkerThread> worker;
  std::unique_ptr<TierStack> tiers;
};

Status EngineHost::Parts::make_model() {
  STRATA_ASSIGN(device, registry.make_device(settings.device, {}));
  STRATA_ASSIGN(model, registry.make_model(model_plugin(settings), model_options(settings), *device));
  STRATA_TRY(check_context(settings, *model));
  STRATA_ASSIGN(identity, identity_of(*model, files));
  const uint64_t bytes = conversation_bytes(*model);
  if (const auto warning = budget_warning(settings.tiers, bytes, model->info().context_tokens))
    log.write(LogLevel::warning, *warning);
  return {};
}

// The queues by which this engine could reach its disk, best first.
std::vector<IoCandidate> EngineHost::Parts::io_candidates() const {
  if (settings.io != "auto") return {{settings.io, {}}};
  std::vector<PluginDescription> plugins = registry.list();
  std::erase_if(plugins, [](const PluginDescription& plugin) { return plugin.kind != STRATA_KIND_IO; });
  std::ranges::stable_sort(plugins, std::greater(), &PluginDescription::probe);
  std::vector<IoCandidate> candidates;
  for (const PluginDescription& plugin : plugins)
    candidates.push_back({"io_" + plugin.name, plugin.unavailable});
  return candidates;
}

// Tried in the folder itself, unless another process is at work there: the disk tier will say so.
DiskRoute EngineHost::Parts::route() {
  const std::vector<IoCandidate> candidates = io_candidates();
  const auto usable = std::ranges::find(candidates, std::string(), &IoCandidate::unavailable);
  const DiskRoute untried{usable == candidates.end() ? settings.io : usable->name, true, {}};
  const std::string& folder = settings.tiers.disk_folder;
  if (usable == candidates.end() || !create_conversation_folder(files, folder).ok()) return untried;
  const auto lock = files.lock(folder + "/LOCK");
  if (!lock.ok()) return untried;
  const DiskRoute chosen = choose_disk_route(
      files, folder, candidates, [this](const std::string& name) { return registry.make_io(name, {}); });
  files.unlock(*lock);
  return chosen;
}

Status EngineHost::Parts::make_disk(std::function<void()> wake) {
  worker = std::make_unique<WorkerThread>(wake);
  if (settings.tiers.disk_folder.empty()) {  // saved sessions are read all the same
    STRATA_ASSIGN(reader, registry.make_io(settings.io == "auto" ? "io_posix" : settings.io, {}));
    return {};
  }
  const DiskRoute chosen = route();
  if (!chosen.note.empty()) log.write(LogLevel::warning, "strata: conversation disk: " + chosen.note);
  if (!chosen.direct) files.refuse_direct();
  metrics.describe("strata_disk_route",
                   "How the disk is reached: by which I/O queue, past the page cache or through it.");
  metrics.set("strata_disk_route",
              fmt::format("io=\"{}\",caching=\"{}\"", chosen.io, chosen.direct ? "direct" : "buffered"), 1);
  STRATA_ASSIGN(reader, registry.make_io(chosen.io, {}));
  STRATA_ASSIGN(writer_io, registry.make_io(chosen.io, {}));
  writer = std::make_unique<WriterThread>(files, *writer_io, clock, log, std::move(wake));
  return {};
}

Status EngineHost::Parts::make_tiers() {
  const TierPorts ports{*model,  *device, clock,        memory,       random, log,
                        metrics, &files,  reader.get(), writer.get(), &pages, worker.get()};
  STRATA_ASSIGN(tiers, TierStack::open(settings.tiers, ports, identity));
  announce();
  return {};
}

// What a person needs at start, and one line for whatever is off (OBS-2).
void EngineHost::Parts::announce() const {
  const ModelInfo& info = model->info();
  const TierStatus status = tiers->status();
  log.write(LogLevel::info,
            fmt::format("strata: model {}, {} slots of {} tokens, one conversation up to {:.1f} MiB",
                        info.name, info.slots, info.context_tokens, mib(conversation_bytes(*model))));
  log.write(LogLevel::info, fmt::format("strata: identity: model {}, configuration {}",
                                        to_hex(identity.model), to_hex(identity.configuration)));
  if (status.disk_mode)
    log.write(LogLevel::info, "strata: conversation cache: none in RAM; parked straight to the disk");
  else
    log.write(LogLevel::info,
              status.ram_on
                  ? fmt::format("strata: conversation cache: {:.0f} MiB", mib(status.ram_budget_bytes))
                  : "strata: conversation cache: off (--conversation-cache-mib 0): nothing is parked");
  if (status.disk_on)
    log.write(LogLevel::info, fmt::format("strata: conversation disk: {}, {:.0f} MiB, {}",
                                          settings.tiers.disk_folder, mib(status.disk_budget_bytes),
                                          settings.tiers.disk_persist ? "kept when the engine ends"
                                                                      : "removed when the engine ends"));
  else if (!settings.tiers.disk_folder.empty())
    log.write(LogLevel::warning, "strata: conversation disk: off: " + status.disk_off_reason);
  else
    log.write(LogLevel::info, "strata: conversation disk: off: no --conversation-disk-dir");
}

Result<std::unique_ptr<EngineHost>> EngineHost::open(const EngineSettings& settings, Log& log,
                                                     std::function<void()> wake) {
  auto parts = std::make_unique<Parts>(settings, log);
  STRATA_TRY(load_plugins(parts->registry, settings));
  STRATA_TRY(parts->make_model());
  STRATA_TRY(parts->make_disk(std::move(wake)));
  STRATA_TRY(parts->make_tiers());
  return std::unique_ptr<EngineHost>(new EngineHost(std::move(parts)));
}

EngineHost::EngineHost(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
EngineHost::~EngineHost() = default;

Model& EngineHost::model() { return *parts_->model; }
TierStack& EngineHost::tiers() { return *parts_->tiers; }
Clock& EngineHost::clock() { return parts_->clock; }
Random& EngineHost::random() { return parts_->random; }
Metrics& EngineHost::metrics() { return parts_->metrics; }

lines::Info EngineHost::info(const std::string& release) const {
  const ModelInfo& model = parts_->model->info();
  const TierStatus status = parts_->tiers->status();
  lines::Info info;
  const auto add = [&info](const char* key, std::string value) {
    info.values.emplace_back(key, std::move(value));
  };
  add("engine", release);
  add("model", model.name);
  add("alias", parts_->settings.alias.empty() ? model.name : parts_->settings.alias);
  add("context", std::to_string(model.context_tokens));
  add("slots", std::to_string(model.slots));
  add("vocabulary", std::to_string(model.vocabulary));
  add("parameters", std::to_string(model.parameters));
  add("weight_bytes", std::to_string(model.weight_bytes));
  add("conversation_bytes", std::to_string(conversation_bytes(*parts_->model)));
  add("model_identity", to_hex(parts_->identity.model));
  add("configuration_identity", to_hex(parts_->identity.configuration));
  add("ram_on", on_off(status.ram_on));
  add("ram_budget_bytes", std::to_string(status.ram_budget_bytes));
  add("disk_on", on_off(status.disk_on));
  add("disk_folder", parts_->settings.tiers.disk_folder);
  add("disk_budget_bytes", std::to_string(status.disk_budget_bytes));
  add("disk_persist", on_off(parts_->settings.tiers.disk_persist));
  add("disk_off_reason", status.disk_off_reason);
  add("taken_in", std::to_string(status.intake_taken));
  add("refused", std::to_string(status.intake_refused));
  return info;
}

}  // namespace strata
