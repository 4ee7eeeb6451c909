#include "engine/cli/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "core/limits.hpp"
#include "engine/runtime/model_file.hpp"

namespace strata::cli {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;
constexpr uint64_t kDefaultTtlMinutes = 30;

// KEY=VALUE, checked when the option was parsed.
std::pair<std::string, std::string> split(const std::string& option) {
  const size_t equals = option.find('=');
  return {option.substr(0, equals), option.substr(equals + 1)};
}

// What the model plugin is told by options of their own.
struct ModelKey {
  std::string_view key;
  const char* option;
};
constexpr ModelKey kModelKeys[] = {
    {"context", "--context"}, {"slots", "--slots"}, {"state_granularity", "--state-granularity"}};

constexpr uint64_t kMinutesADay = 24 * 60;

// In disk mode the age limit is given in days.
uint64_t ttl_minutes(const Settings& settings) {
  if (disk_mode(settings)) return uint64_t{settings.disk.mode_days} * kMinutesADay;
  return settings.disk.ttl_minutes.value_or(settings.disk.persist ? 0 : kDefaultTtlMinutes);
}

// Empty: no disk tier. In disk mode a model's conversations lie beside it.
std::string disk_folder(const Settings& settings) {
  if (!settings.disk.folder.empty() || !disk_mode(settings)) return settings.disk.folder;
  if (!is_model_file(settings.model.model)) return {};
  const std::filesystem::path pack = std::filesystem::absolute(settings.model.model).parent_path();
  return (pack / "conversation_cache").string();
}

uint64_t disk_budget_mib(const Settings& settings) {
  return disk_mode(settings) ? settings.disk.mode_mib : settings.disk.budget_mib;
}

WritePolicy write_policy(const std::string& name) {
  if (name == "through") return WritePolicy::through;
  return name == "idle" ? WritePolicy::idle : WritePolicy::evict;
}

class ArgumentList {
 public:
  template <class Value>
  void add(const char* name, const Value& value) {
    arguments_.push_back(fmt::format("{}={}", name, value));
  }
  void add_each(const char* name, const std::vector<std::string>& values) {
    for (const std::string& value : values) add(name, value);
  }
  void add_if_set(const char* name, const std::string& value) {
    if (!value.empty()) add(name, value);
  }
  void add_flag(const char* name) { arguments_.emplace_back(name); }
  std::vector<std::string> take() { return std::move(arguments_); }

 private:
  std::vector<std::string> arguments_;
};

void add_disk(ArgumentList& list, const Settings& settings) {
  const DiskSettings& disk = settings.disk;
  const std::string folder = disk_folder(settings);
  if (folder.empty()) return;
  list.add("--conversation-disk-dir", folder);
  if (disk_mode(settings)) {
    list.add("--conversation-cache-disk-mib", disk.mode_mib);
    list.add("--conversation-cache-days", disk.mode_days);
  } else {
    list.add("--conversation-disk-mib", disk.budget_mib);
    list.add("--conversation-disk-ttl-min", ttl_minutes(settings));
    if (disk.persist) list.add_flag("--conversation-disk-persist");
  }
  list.add("--conversation-disk-min-free-mib", disk.min_free_mib);
  list.add("--conversation-disk-foreign", disk.foreign);
  list.add("--disk-write-policy", disk.write_policy);
  list.add("--io", disk.io);
}

std::optional<std::string> disk_mode_contradiction(const Settings& settings) {
  if (settings.ram.cache_mib.value_or(0) > 0)
    return "--conversation-cache-disk-mib contradicts --conversation-cache-mib: it parks straight to the "
           "disk, "
           "without a RAM tier";
  if (disk_folder(settings).empty())
    return fmt::format(
        "--conversation-cache-disk-mib needs --conversation-disk-dir: the model {} has no folder",
        settings.model.model);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> contradiction(const Settings& settings) {
  if (disk_mode(settings)) {
    if (auto problem = disk_mode_contradiction(settings)) return problem;
  } else if (!settings.disk.folder.empty() && settings.ram.cache_mib.value_or(1) == 0) {
    return "--conversation-disk-dir needs --conversation-cache-mib above 0: the disk tier takes what the RAM "
           "tier evicts";
  } else if (settings.disk.folder.empty() && settings.disk.write_policy != "evict") {
    return "--disk-write-policy needs --conversation-disk-dir";
  }
  for (const std::string& option : settings.model.options) {
    const std::string key = split(option).first;
    const auto* const own = std::ranges::find(kModelKeys, key, &ModelKey::key);
    if (own != std::end(kModelKeys))
      return fmt::format("--model-option {} contradicts {}: only the latter sets it", key, own->option);
  }
  return std::nullopt;
}

bool disk_mode(const Settings& settings) { return settings.disk.mode_mib > 0; }

bool persists(const Settings& settings) {
  return disk_mode(settings) ? settings.disk.mode_days > 0 : settings.disk.persist;
}

std::vector<std::string> engine_arguments(const Settings& settings) {
  ArgumentList list;
  list.add_flag("--only-command-line");
  list.add("--model", settings.model.model);
  list.add_each("--model-option", settings.model.options);
  list.add_if_set("--alias", settings.model.alias);
  list.add("--context", settings.model.context_tokens);
  list.add("--slots", settings.model.slots);
  list.add("--state-granularity", settings.model.state_granularity);
  list.add("--device", settings.model.device);
  list.add("--conversation-cache-mib", settings.ram.cache_mib.value_or(0));
  list.add("--conversation-cache-slots", settings.ram.cache_slots);
  list.add("--conversation-cache-min-free-mib", settings.ram.min_free_mib);
  list.add("--prompt-cache", settings.ram.checkpoints);
  list.add("--prompt-cache-every", settings.ram.checkpoint_every_tokens);
  list.add("--prompt-cache-spread", settings.ram.checkpoint_spread);
  add_disk(list, settings);
  list.add("--session-min-free-mib", settings.sessions.min_free_mib);
  if (settings.sessions.save_reclaim) list.add_flag("--session-save-reclaim");
  list.add_each("--plugin", settings.plugins.files);
  list.add_if_set("--plugin-dir", settings.plugins.folder);
  list.add("--log-level", settings.log.level);
  list.add_if_set("--log-file", settings.log.file);
  if (settings.log.json) list.add_flag("--log-json");
  return list.take();
}

EngineSettings engine_settings(const Settings& settings) {
  EngineSettings engine;
  engine.model = settings.model.model;
  for (const std::string& option : settings.model.options) engine.model_options.insert(split(option));
  engine.alias = settings.model.alias;
  engine.context_tokens = settings.model.context_tokens;
  engine.slots = settings.model.slots;
  engine.state_granularity = settings.model.state_granularity;
  engine.device = settings.model.device;
  engine.io = settings.disk.io;
  engine.plugins = settings.plugins.files;
  engine.plugin_folder = settings.plugins.folder;
  TierOptions& tiers = engine.tiers;
  tiers.ram_budget_bytes = settings.ram.cache_mib.value_or(0) * limits::kMiB;
  tiers.ram_max_images = settings.ram.cache_slots;
  tiers.ram_min_free_bytes = settings.ram.min_free_mib * limits::kMiB;
  tiers.checkpoints_max = settings.ram.checkpoints;
  tiers.checkpoints_every_tokens = settings.ram.checkpoint_every_tokens;
  tiers.checkpoints_spread = settings.ram.checkpoint_spread;
  tiers.disk_folder = disk_folder(settings);
  tiers.disk_mode = disk_mode(settings);
  tiers.disk_budget_bytes = disk_budget_mib(settings) * limits::kMiB;
  tiers.disk_min_free_bytes = settings.disk.min_free_mib * limits::kMiB;
  tiers.disk_ttl_ns = ttl_minutes(settings) * kMinuteNs;
  tiers.disk_persist = persists(settings);
  tiers.disk_empty_at_start = tiers.disk_mode && !tiers.disk_persist;
  tiers.write_policy = write_policy(settings.disk.write_policy);
  tiers.foreign = settings.disk.foreign == "keep" ? ForeignFiles::keep : ForeignFiles::remove;
  tiers.session_min_free_bytes = settings.sessions.min_free_mib * limits::kMiB;
  tiers.session_save_reclaim = settings.sessions.save_reclaim;
  return engine;
}

}  // namespace strata::cli
