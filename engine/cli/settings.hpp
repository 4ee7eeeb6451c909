// What the command line, the environment and the configuration file said, as plain values
// (docs/operations.md). Defaults here are those that --help shows. Units are in the names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/engine_host.hpp"

namespace strata::cli {

struct ModelSettings {
  std::string model = "reference";
  std::vector<std::string> options;  // KEY=VALUE
  std::string alias;                 // empty: the model's name
  uint32_t context_tokens = 0;       // 0: the model's own
  uint32_t slots = 4;
  std::string state_granularity = "auto";
  std::string device = "auto";
};

struct HttpSettings {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> allowed_hosts;
  std::string slot_save_folder;
  uint32_t max_body_mib = 64;
  bool no_page = false;
};

struct RamSettings {
  std::optional<uint64_t> cache_mib;  // unset: 0 for the engine, a quarter of available RAM for serve
  uint32_t cache_slots = 0;
  uint64_t min_free_mib = 2560;
  uint32_t checkpoints = 6;
  uint32_t checkpoint_every_tokens = 16384;
  bool checkpoint_spread = true;
};

struct DiskSettings {
  std::string folder;  // empty: off
  uint64_t budget_mib = 32768;
  uint64_t min_free_mib = 4096;
  std::optional<uint64_t> ttl_minutes;  // unset: 30, with persist 0
  bool persist = false;
  std::string foreign = "remove";
  std::string io = "auto";
  std::string write_policy = "evict";
  uint64_t mode_mib = 0;  // disk mode; 0: off
  uint32_t mode_days = 7;
};

struct SessionSettings {
  uint64_t min_free_mib = 4096;
  bool save_reclaim = false;
};

struct PluginSettings {
  std::vector<std::string> files;
  std::string folder;
};

struct LogSettings {
  std::string level = "info";
  std::string file;
  bool json = false;
};

struct Settings {
  std::string config_file;
  bool only_command_line = false;
  ModelSettings model;
  HttpSettings http;
  RamSettings ram;
  DiskSettings disk;
  SessionSettings sessions;
  PluginSettings plugins;
  LogSettings log;
};

// What two options together make impossible, as one line that names them; nullopt when all is well.
[[nodiscard]] std::optional<std::string> contradiction(const Settings& settings);

// The same settings as the engine process takes them; with --only-command-line, so that nothing else is added
// to them.
[[nodiscard]] std::vector<std::string> engine_arguments(const Settings& settings);

// Conversations are parked straight to the disk (DM-1); the RAM tier is off then.
[[nodiscard]] bool disk_mode(const Settings& settings);
// Stored conversations outlive the engine.
[[nodiscard]] bool persists(const Settings& settings);

[[nodiscard]] EngineSettings engine_settings(const Settings& settings);

}  // namespace strata::cli
