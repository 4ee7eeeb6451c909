#include "plugins/host/loader.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "plugins/host/table_rules.hpp"

namespace strata {
namespace {

constexpr std::array<uint32_t, 3> kKinds = {STRATA_KIND_DEVICE, STRATA_KIND_IO, STRATA_KIND_MODEL};

Status check_folder(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  struct stat state {};
  if (::stat(folder.c_str(), &state) != 0) {
    return plugin_refusal(PluginStep::path, path, std::string("its folder: ") + strerrordesc_np(errno));
  }
  if ((state.st_mode & S_IWOTH) != 0 && (state.st_mode & S_ISVTX) == 0) {
    return plugin_refusal(PluginStep::path, path, "its folder is writable by others");
  }
  return {};
}

Status check_path(const std::string& path) {
  if (path.empty() || path.front() != '/') {
    return plugin_refusal(PluginStep::path, path, "the path must be absolute");
  }
  struct stat state {};
  if (::lstat(path.c_str(), &state) != 0) {
    return plugin_refusal(PluginStep::path, path, strerrordesc_np(errno));
  }
  if (!S_ISREG(state.st_mode)) return plugin_refusal(PluginStep::path, path, "not a regular file");
  if ((state.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return plugin_refusal(PluginStep::path, path, "writable by others");
  }
  if (state.st_uid != 0 && state.st_uid != ::geteuid()) {
    return plugin_refusal(PluginStep::path, path, "owned by another user");
  }
  return check_folder(path);
}

}  // namespace

const char* label(PluginStep step) {
  static constexpr std::array<const char*, 11> kLabels = {
      "path", "open", "symbol", "size", "major", "kind", "required", "table", "implied", "probe", "create"};
  return kLabels[static_cast<size_t>(step)];
}

Error plugin_refusal(PluginStep step, const std::string& source, const std::string& reason) {
  const bool cannot_run = step == PluginStep::probe || step == PluginStep::create;
  return make_error(cannot_run ? ErrorCode::unavailable : ErrorCode::invalid,
                    "plugin " + source + ": refused (" + label(step) + "): " + reason);
}

Status check_plugin_table(const strata_plugin* table, uint32_t kind, const std::string& source) {
  if (table->struct_size < sizeof(strata_plugin)) {
    return plugin_refusal(PluginStep::size, source,
                          "a table of " + std::to_string(table->struct_size) + " bytes is no plugin table");
  }
  if (table->abi_major != STRATA_ABI_MAJOR) {
    return plugin_refusal(PluginStep::major, source,
                          "ABI " + std::to_string(table->abi_major) + ", this program speaks " +
                              std::to_string(STRATA_ABI_MAJOR));
  }
  const TableRules* const rules = table_rules(kind);
  if (rules == nullptr || table->kind != kind) {
    return plugin_refusal(PluginStep::kind, source,
                          "asked for kind " + std::to_string(kind) + ", got " + std::to_string(table->kind));
  }
  if (const uint64_t unknown = table->caps_required & ~rules->known_caps; unknown != 0) {
    return plugin_refusal(PluginStep::required, source,
                          "it requires capabilities unknown here (bits " + std::to_string(unknown) + ")");
  }
  if (const char* const missing = missing_of_1_0(*rules, table); missing != nullptr) {
    return plugin_refusal(PluginStep::table, source, std::string("missing: ") + missing);
  }
  if (const char* const missing = missing_implied(*rules, table); missing != nullptr) {
    return plugin_refusal(PluginStep::implied, source, std::string("a capability promises ") + missing);
  }
  return {};
}

Result<std::vector<const strata_plugin*>> plugin_tables(strata_plugin_entry_fn entry,
                                                        const std::string& source) {
  std::vector<const strata_plugin*> tables;
  for (const uint32_t kind : kKinds) {
    const strata_plugin* const table = entry(kind);
    if (table == nullptr) continue;
    STRATA_TRY(check_plugin_table(table, kind, source));
    tables.push_back(table);
  }
  if (tables.empty()) return plugin_refusal(PluginStep::kind, source, "it offers no kind that is known here");
  return tables;
}

Result<strata_plugin_entry_fn> open_plugin(const std::string& absolute_path) {
  STRATA_TRY(check_path(absolute_path));
  void* const library = ::dlopen(absolute_path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return plugin_refusal(PluginStep::open, absolute_path, ::dlerror());
  void* const symbol = ::dlsym(library, STRATA_PLUGIN_ENTRY_SYMBOL);
  if (symbol == nullptr) {
    return plugin_refusal(PluginStep::symbol, absolute_path, "no symbol " STRATA_PLUGIN_ENTRY_SYMBOL);
  }
  return reinterpret_cast<strata_plugin_entry_fn>(symbol);
}

}  // namespace strata
