#include "plugins/host/registry.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "plugins/host/abi_error.hpp"
#include "plugins/host/device_adapter.hpp"
#include "plugins/host/host_context.hpp"
#include "plugins/host/io_adapter.hpp"
#include "plugins/host/loader.hpp"
#include "plugins/host/model_adapter.hpp"

extern "C" {
const strata_plugin* strata_plugin_entry_v1_device_host(uint32_t kind);
const strata_plugin* strata_plugin_entry_v1_io_uring(uint32_t kind);
const strata_plugin* strata_plugin_entry_v1_io_posix(uint32_t kind);
const strata_plugin* strata_plugin_entry_v1_model_reference(uint32_t kind);
const strata_plugin* strata_plugin_entry_v1_model_synthetic(uint32_t kind);
}

namespace strata {
namespace {

// What the host gives every model, whether it uses it or not.
constexpr std::string_view kEveryModels[] = {"path", "slots", "context"};
constexpr char kBuiltIn[] = "built in";
constexpr char kAuto[] = "auto";
constexpr char kDeviceIndexOption[] = "device_index";
constexpr int32_t kMaxDeviceIndex = 63;

std::string_view kind_name(uint32_t kind) {
  switch (kind) {
    case STRATA_KIND_DEVICE:
      return "device";
    case STRATA_KIND_IO:
      return "io";
    default:
      return "model";
  }
}

// "io_uring" and "uring" are the same plugin of kind io.
std::string_view without_kind(std::string_view name, uint32_t kind) {
  const std::string_view prefix = kind_name(kind);
  const bool prefixed =
      name.size() > prefix.size() + 1 && name.starts_with(prefix) && name[prefix.size()] == '_';
  return prefixed ? name.substr(prefix.size() + 1) : name;
}

Result<int32_t> device_index(const PluginOptions& options) {
  const auto found = options.find(kDeviceIndexOption);
  if (found == options.end()) return 0;
  const std::string& text = found->second;
  int32_t index = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9' || index > kMaxDeviceIndex) {
      return make_error(ErrorCode::invalid, "device_index=" + text + ": not a number of a device");
    }
    index = index * 10 + (digit - '0');
  }
  return index;
}

}  // namespace

struct PluginRegistry::Impl {
  struct Entry {
    const strata_plugin* table = nullptr;
    std::string source;
    int32_t probe = 0;
    std::string unavailable;
  };
  struct Created {
    const Entry* entry = nullptr;
    strata_instance* instance = nullptr;
  };

  Impl(Log& log_port, Clock& clock_port)
      : log(log_port), clock(clock_port), probing(log_port, clock_port, {}) {}

  void add(const strata_plugin* table, const std::string& source);
  void add_built_in(strata_plugin_entry_fn entry);
  Result<std::vector<const Entry*>> candidates(uint32_t kind, const std::string& name) const;
  Result<strata_instance*> create(const Entry& entry, const PluginOptions& options);
  Result<Created> create(uint32_t kind, const std::string& name, const PluginOptions& options);
  void say_unasked(const char* plugin) const;

  Log& log;
  Clock& clock;
  HostContext probing;
  std::vector<Entry> entries;
  std::vector<std::unique_ptr<HostContext>> contexts;  // of every instance ever made
};

void PluginRegistry::Impl::add(const strata_plugin* table, const std::string& source) {
  strata_error error = empty_abi_error();
  Entry entry{table, source, table->probe(probing.abi(), &error), {}};
  if (entry.probe <= 0) entry.unavailable = error.message[0] != '\0' ? error.message : "it cannot run here";
  entries.push_back(std::move(entry));
}

void PluginRegistry::Impl::add_built_in(strata_plugin_entry_fn entry) {
  const auto tables = plugin_tables(entry, kBuiltIn);
  if (!tables.ok()) {
    log.write(LogLevel::error, tables.error().message);
    return;
  }
  for (const strata_plugin* const table : *tables) add(table, kBuiltIn);
}

// The plugins that the name means, best first; all of them can run here.
Result<std::vector<const PluginRegistry::Impl::Entry*>> PluginRegistry::Impl::candidates(
    uint32_t kind, const std::string& name) const {
  std::vector<const Entry*> found;
  std::string unavailable;
  for (const Entry& entry : entries) {
    const bool meant = name == kAuto || name == entry.source ||
                       without_kind(name, kind) == without_kind(entry.table->name, kind);
    if (entry.table->kind != kind || !meant) continue;
    if (entry.probe > 0)
      found.push_back(&entry);
    else
      unavailable +=
          std::string(unavailable.empty() ? "" : "; ") + entry.table->name + ": " + entry.unavailable;
  }
  const std::string what = std::string(kind_name(kind)) + " plugin \"" + name + "\"";
  if (found.empty() && unavailable.empty()) return make_error(ErrorCode::not_found, what + ": there is none");
  if (found.empty()) return make_error(ErrorCode::unavailable, what + ": " + unavailable);
  if (name == kAuto) {
    std::stable_sort(found.begin(), found.end(),
                     [](const Entry* a, const Entry* b) { return a->probe > b->probe; });
  } else {
    found.erase(found.begin() + 1, found.end());
  }
  return found;
}

Result<strata_instance*> PluginRegistry::Impl::create(const Entry& entry, const PluginOptions& options) {
  contexts.push_back(std::make_unique<HostContext>(log, clock, options));
  strata_error error = empty_abi_error();
  strata_instance* instance = nullptr;
  const strata_status status = entry.table->create(contexts.back()->abi(), &instance, &error);
  const std::string source = entry.source == kBuiltIn ? entry.table->name : entry.source;
  if (status != STRATA_OK) {
    const Error cause = from_abi(status, error, "").error();
    Error refusal =
        plugin_refusal(PluginStep::create, source, error.message[0] != '\0' ? error.message : "failed");
    refusal.code = cause.code;
    refusal.os_errno = cause.os_errno;
    return refusal;
  }
  if (instance == nullptr) return plugin_refusal(PluginStep::create, source, "it made no instance");
  return instance;
}

Result<PluginRegistry::Impl::Created> PluginRegistry::Impl::create(uint32_t kind, const std::string& name,
                                                                   const PluginOptions& options) {
  STRATA_ASSIGN(const std::vector<const Entry*> found, candidates(kind, name));
  for (size_t i = 0;; ++i) {
    const Result<strata_instance*> instance = create(*found[i], options);
    if (instance.ok()) return Created{found[i], *instance};
    if (i + 1 == found.size()) return instance.error();
    log.write(LogLevel::warning, instance.error().message + "; trying " + found[i + 1]->table->name);
  }
}

// Of the instance made last. A plugin may ask later, so this is no error; but mostly it is a slip of the pen.
void PluginRegistry::Impl::say_unasked(const char* plugin) const {
  for (const std::string& key : contexts.back()->unasked())
    if (std::ranges::find(kEveryModels, key) == std::end(kEveryModels))
      log.write(LogLevel::warning,
                "strata: model option " + key + ": the plugin " + plugin + " has not asked for it");
}

PluginRegistry::PluginRegistry(Log& log, Clock& clock) : impl_(std::make_unique<Impl>(log, clock)) {
  impl_->add_built_in(strata_plugin_entry_v1_device_host);
  impl_->add_built_in(strata_plugin_entry_v1_io_uring);
  impl_->add_built_in(strata_plugin_entry_v1_io_posix);
  impl_->add_built_in(strata_plugin_entry_v1_model_reference);
  impl_->add_built_in(strata_plugin_entry_v1_model_synthetic);
}

PluginRegistry::~PluginRegistry() = default;

Status PluginRegistry::load(const std::string& absolute_path) {
  STRATA_ASSIGN(const strata_plugin_entry_fn entry, open_plugin(absolute_path));
  STRATA_ASSIGN(const std::vector<const strata_plugin*> tables, plugin_tables(entry, absolute_path));
  for (const strata_plugin* const table : tables) {
    impl_->add(table, absolute_path);
    if (impl_->entries.back().probe > 0) continue;
    const std::string reason = impl_->entries.back().unavailable;
    std::erase_if(impl_->entries, [&](const Impl::Entry& known) { return known.source == absolute_path; });
    return plugin_refusal(PluginStep::probe, absolute_path, reason);
  }
  return {};
}

std::vector<PluginDescription> PluginRegistry::list() const {
  std::vector<PluginDescription> descriptions;
  for (const Impl::Entry& entry : impl_->entries) {
    descriptions.push_back({entry.table->name, entry.table->version, entry.table->kind, entry.source,
                            entry.probe, entry.unavailable});
  }
  return descriptions;
}

Result<std::unique_ptr<Device>> PluginRegistry::make_device(const std::string& name,
                                                            const PluginOptions& options) {
  STRATA_ASSIGN(const int32_t index, device_index(options));
  STRATA_ASSIGN(const Impl::Created created, impl_->create(STRATA_KIND_DEVICE, name, options));
  const auto* const table = reinterpret_cast<const strata_device*>(created.entry->table);
  STRATA_ASSIGN(std::unique_ptr<Device> device, DeviceAdapter::make(table, created.instance, index));
  return device;
}

Result<std::unique_ptr<IoQueue>> PluginRegistry::make_io(const std::string& name,
                                                         const PluginOptions& options) {
  STRATA_ASSIGN(const Impl::Created created, impl_->create(STRATA_KIND_IO, name, options));
  const auto* const table = reinterpret_cast<const strata_io*>(created.entry->table);
  STRATA_ASSIGN(std::unique_ptr<IoQueue> queue, IoAdapter::make(table, created.instance));
  return queue;
}

Result<std::unique_ptr<Model>> PluginRegistry::make_model(const std::string& name,
                                                          const PluginOptions& options, Device& device) {
  auto* const adapter = dynamic_cast<DeviceAdapter*>(&device);
  if (adapter == nullptr) {
    return make_error(ErrorCode::invalid, "model plugin \"" + name + "\": its device must be a plugin's");
  }
  STRATA_ASSIGN(const Impl::Created created, impl_->create(STRATA_KIND_MODEL, name, options));
  impl_->say_unasked(created.entry->table->name);
  return adapt_model(reinterpret_cast<const strata_model*>(created.entry->table), created.instance,
                     adapter->table(), adapter->instance(), adapter->index());
}

Result<std::unique_ptr<Model>> PluginRegistry::make_vocabulary(const std::string& name,
                                                               const PluginOptions& options) {
  PluginOptions vocabulary_only = options;
  vocabulary_only["vocab_only"] = "1";
  STRATA_ASSIGN(const Impl::Created created, impl_->create(STRATA_KIND_MODEL, name, vocabulary_only));
  return adapt_model(reinterpret_cast<const strata_model*>(created.entry->table), created.instance, nullptr,
                     nullptr, 0);
}

}  // namespace strata
