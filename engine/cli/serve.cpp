// strata serve: the HTTP server, with `strata engine` as its child.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "core/limits.hpp"
#include "core/posix/clock.hpp"
#include "core/posix/memory_probe.hpp"
#include "engine/cli/commands.hpp"
#include "engine/cli/logging.hpp"
#include "engine/cli/options.hpp"
#include "engine/runtime/model_file.hpp"
#include "engine/server/server.hpp"
#include "plugins/host/registry.hpp"

namespace strata::cli {
namespace {

constexpr uint64_t kRamShare = 4;  // serve takes a quarter of what is available

// A RAM budget nobody named; says what it is and how to change it (RAM-1).
void choose_ram_budget(RamSettings& ram, Log& log) {
  PosixMemoryProbe memory;
  const auto state = memory.probe();
  ram.cache_mib = state.ok() ? state->available_bytes / kRamShare / limits::kMiB : 0;
  if (state.ok())
    log.write(LogLevel::info,
              fmt::format("strata: conversation cache: {} MiB, a quarter of available RAM; see "
                          "--conversation-cache-mib",
                          *ram.cache_mib));
  else
    log.write(LogLevel::warning,
              fmt::format("strata: conversation cache: off, because available RAM is not known ({}); "
                          "see --conversation-cache-mib",
                          state.error().message));
}

Result<std::string> own_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return errno_error(error.value(), "/proc/self/exe");
  return path.string();
}

Result<ServerOptions> server_options(const Settings& settings) {
  const HttpSettings& http = settings.http;
  STRATA_ASSIGN(const std::string program, own_program());
  ServerOptions options;
  options.host = http.host;
  options.port = http.port;
  options.api_keys = http.api_keys;
  options.api_key_file = http.api_key_file;
  options.allowed_hosts = http.allowed_hosts;
  options.slot_save_path = http.slot_save_folder;
  options.max_body_mib = http.max_body_mib;
  options.no_page = http.no_page;
  options.alias = settings.model.alias;
  options.model_path = settings.model.model;
  options.persist = persists(settings);
  options.engine_argv = {program, "engine"};
  for (std::string& argument : engine_arguments(settings)) options.engine_argv.push_back(std::move(argument));
  return options;
}

// Tokenizer and template, without weights: the server needs no more of the model.
Result<std::unique_ptr<Model>> open_vocabulary(PluginRegistry& registry, const Settings& settings) {
  const EngineSettings engine = engine_settings(settings);
  STRATA_TRY(load_plugins(registry, engine));
  return registry.make_vocabulary(model_plugin(engine), model_options(engine));
}

int complain(const Error& error) {
  std::cerr << "strata: " << error.message << '\n';
  return 1;
}

int run_serve(Settings settings) {
  const auto log = open_log(settings.log);
  if (!log.ok()) return complain(log.error());
  if (!settings.ram.cache_mib && !disk_mode(settings)) choose_ram_budget(settings.ram, **log);
  PosixClock clock;
  PluginRegistry registry(**log, clock);
  const auto vocabulary = open_vocabulary(registry, settings);
  if (!vocabulary.ok()) return complain(vocabulary.error());
  const auto options = server_options(settings);
  if (!options.ok()) return complain(options.error());
  return run_server(*options, **vocabulary, **log);
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_status, Settings& settings) {
  CLI::App* command = app.add_subcommand("serve", "HTTP server with the engine as its child");
  add_source_options(*command, settings);
  add_http_options(*command, settings);
  add_engine_options(*command, settings, RamDefault::quarter);
  command->callback([&exit_status, &settings] {
    refuse_contradiction(settings);
    exit_status = run_serve(settings);
  });
}

}  // namespace strata::cli
