#include "engine/cli/settings.hpp"

#include <fmt/format.h>

#include "core/limits.hpp"

namespace strata::cli {
namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;
constexpr uint64_t kDefaultTtlMinutes = 30;

// KEY=VALUE, checked when the option was parsed.
std::pair<std::string, std::string> split(const std::string& option) {
  const size_t equals = option.find('=');
  return {option.substr(0, equals), option.substr(equals + 1)};
}

uint64_t ttl_minutes(const DiskSettings& disk) {
  return disk.ttl_minutes.value_or(disk.persist ? 0 : kDefaultTtlMinutes);
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

void add_disk(ArgumentList& list, const DiskSettings& disk) {
  if (disk.folder.empty()) return;
  list.add("--conversation-disk-dir", disk.folder);
  list.add("--conversation-disk-mib", disk.budget_mib);
  list.add("--conversation-disk-min-free-mib", disk.min_free_mib);
  list.add("--conversation-disk-ttl-min", ttl_minutes(disk));
  if (disk.persist) list.add_flag("--conversation-disk-persist");
  list.add("--conversation-disk-foreign", disk.foreign);
  list.add("--io", disk.io);
}

}  // namespace

std::optional<std::string> contradiction(const Settings& settings) {
  if (!settings.disk.folder.empty() && settings.ram.cache_mib.value_or(1) == 0)
    return "--conversation-disk-dir needs --conversation-cache-mib above 0: the disk tier takes what the RAM "
           "tier evicts";
  for (const std::string& option : settings.model.options) {
    const std::string key = split(option).first;
    if (key == "context" || key == "slots")
      return fmt::format("--model-option {} contradicts --{}: only the latter sets it", key, key);
  }
  return std::nullopt;
}

std::vector<std::string> engine_arguments(const Settings& settings) {
  ArgumentList list;
  list.add_flag("--only-command-line");
  list.add("--model", settings.model.model);
  list.add_each("--model-option", settings.model.options);
  list.add_if_set("--alias", settings.model.alias);
  list.add("--context", settings.model.context_tokens);
  list.add("--slots", settings.model.slots);
  list.add("--device", settings.model.device);
  list.add("--conversation-cache-mib", settings.ram.cache_mib.value_or(0));
  list.add("--conversation-cache-slots", settings.ram.cache_slots);
  list.add("--conversation-cache-min-free-mib", settings.ram.min_free_mib);
  list.add("--prompt-cache", settings.ram.checkpoints);
  list.add("--prompt-cache-every", settings.ram.checkpoint_every_tokens);
  list.add("--prompt-cache-spread", settings.ram.checkpoint_spread);
  add_disk(list, settings.disk);
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
  tiers.disk_folder = settings.disk.folder;
  tiers.disk_budget_bytes = settings.disk.budget_mib * limits::kMiB;
  tiers.disk_min_free_bytes = settings.disk.min_free_mib * limits::kMiB;
  tiers.disk_ttl_ns = ttl_minutes(settings.disk) * kMinuteNs;
  tiers.disk_persist = settings.disk.persist;
  tiers.foreign = settings.disk.foreign == "keep" ? ForeignFiles::keep : ForeignFiles::remove;
  return engine;
}

}  // namespace strata::cli
