// strata plugins: what is there, what each can do, why one cannot run here.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "core/posix/clock.hpp"
#include "engine/cli/commands.hpp"
#include "engine/cli/logging.hpp"
#include "engine/cli/version.hpp"
#include "engine/runtime/model_file.hpp"
#include "plugins/host/registry.hpp"

namespace strata::cli {
namespace {

void print(const PluginDescription& plugin) {
  std::cout << fmt::format("{:<7} {:<12} {:<8} {:<32} {}\n", kind_name(plugin.kind), plugin.name,
                           plugin.version, plugin.source,
                           plugin.probe > 0 ? "can run here" : "cannot run here: " + plugin.unavailable);
}

// The plugin that runs model files is a file of its own, taken in only when a command needs it.
int list_plugins() {
  SilentLog log;
  PosixClock clock;
  PluginRegistry registry(log, clock);
  Status llama = {};
  if (const auto file = llama_plugin_file(); file.ok())
    llama = registry.load(*file);
  else
    llama = file.error();
  for (const PluginDescription& plugin : registry.list()) print(plugin);
  if (!llama.ok())
    std::cout << fmt::format("{:<7} {:<12} {:<8} {:<32} not here: {}\n", kind_name(STRATA_KIND_MODEL),
                             "llama", "-", "-", llama.error().message);
  return 0;
}

int check_plugin(const std::string& file) {
  SilentLog log;
  PosixClock clock;
  PluginRegistry registry(log, clock);
  const std::string path = std::filesystem::absolute(file).lexically_normal();
  if (const Status loaded = registry.load(path); !loaded.ok()) {
    std::cerr << "strata: " << loaded.error().message << '\n';
    return 1;
  }
  for (const PluginDescription& plugin : registry.list())
    if (plugin.source == path) print(plugin);
  return 0;
}

}  // namespace

void add_plugins_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("plugins", "built-in plugins, and checking a plugin file");
  command->require_subcommand(1);
  command->add_subcommand("list", "every plugin of this program")->callback([&exit_status] {
    exit_status = list_plugins();
  });
  CLI::App* check =
      command->add_subcommand("check", "load a plugin file and say what it offers, or why it is refused");
  auto file = std::make_shared<std::string>();
  check->add_option("FILE", *file, "shared object")->required()->type_name("");
  check->callback([&exit_status, file] { exit_status = check_plugin(*file); });
}

}  // namespace strata::cli
