#include "engine/cli/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/limits.hpp"

namespace strata::cli {
namespace {

constexpr uint64_t kMaxMib = 1ULL << 30;  // 1 PiB
constexpr uint64_t kMinutesADay = 24 * 60;
constexpr uint64_t kMaxMinutes = 100ULL * 366 * kMinutesADay;

CLI::Validator between(uint64_t low, uint64_t high) {
  const auto check = [low, high](std::string& text) -> std::string {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    if (whole && value >= low && value <= high) return {};
    return fmt::format("'{}' is not a number from {} to {}", text, low, high);
  };
  return {check, fmt::format("{}-{}", low, high)};
}

CLI::Validator one_of(std::vector<std::string> names) {
  const auto check = [names](std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return {};
    return fmt::format("'{}' is none of {}", text, fmt::join(names, ", "));
  };
  return {check, fmt::format("{}", fmt::join(names, "|"))};
}

CLI::Validator matching(const char* form, bool (*accepts)(std::string_view)) {
  const auto check = [form, accepts](std::string& text) -> std::string {
    return accepts(text) ? std::string() : fmt::format("'{}' is not of the form {}", text, form);
  };
  return {check, ""};
}

bool is_key_value(std::string_view text) {
  const size_t equals = text.find('=');
  return equals != std::string_view::npos && equals > 0;
}

bool is_not_empty(std::string_view text) { return !text.empty(); }

// One group of options of one command.
class Group {
 public:
  Group(CLI::App& command, const char* name) : command_(command), name_(name) {}

  template <class Number>
  CLI::Option* number(const char* option, Number& value, const char* unit, uint64_t low, uint64_t high,
                      const char* text) {
    CLI::Option* added =
        command_.add_option(option, value, text)->group(name_)->type_name(unit)->check(between(low, high));
    if constexpr (std::is_integral_v<Number>) added->capture_default_str();
    return added;
  }
  CLI::Option* choice(const char* option, std::string& value, std::vector<std::string> names,
                      const char* text) {
    return command_.add_option(option, value, text)
        ->group(name_)
        ->type_name("")
        ->check(one_of(std::move(names)))
        ->capture_default_str();
  }
  CLI::Option* text(const char* option, std::string& value, const char* type, const char* description) {
    return command_.add_option(option, value, description)
        ->group(name_)
        ->type_name(type)
        ->check(matching(type, is_not_empty))
        ->capture_default_str();
  }
  CLI::Option* repeated(const char* option, std::vector<std::string>& values, const char* type,
                        const char* description) {
    return command_.add_option(option, values, description)
        ->group(name_)
        ->type_name(type)
        ->type_size(1)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false);
  }
  CLI::Option* flag(const char* option, bool& value, const char* text) {
    return command_.add_flag(option, value, text)->group(name_);
  }

 private:
  CLI::App& command_;
  const char* name_;
};

void add_model(CLI::App& command, ModelSettings& model) {
  Group group(command, "Model");
  group.text("--model", model.model, "NAME|FILE",
             "model plugin (built in: reference, synthetic), or a GGUF file");
  group.repeated("--model-option", model.options, "KEY=VALUE", "handed to the model plugin (repeatable)")
      ->check(matching("KEY=VALUE", is_key_value));
  group.text("--alias", model.alias, "NAME", "name that clients see; without it the model's own");
  group.number("--context", model.context_tokens, "TOKENS", 0, limits::kMaxTokens,
               "context of each slot; 0: the model's own");
  group.number("--slots", model.slots, "COUNT", 1, limits::kMaxSlots, "conversations in device memory");
  group.choice("--state-granularity", model.state_granularity, {"auto", "blocks", "whole"},
               "how a conversation's state is kept; whole: in one piece, without shared blocks");
  group.choice("--device", model.device, {"auto", "host", "cuda", "hip"}, "where the model runs");
}

void add_ram(CLI::App& command, RamSettings& ram, RamDefault ram_default) {
  Group group(command, "RAM tier");
  group
      .number("--conversation-cache-mib", ram.cache_mib, "MIB", 0, kMaxMib,
              "RAM for parked conversations; 0: off, nothing is parked")
      ->default_str(ram_default == RamDefault::off ? "0" : "a quarter of available RAM");
  group.number("--conversation-cache-slots", ram.cache_slots, "COUNT", 0, UINT32_MAX,
               "parked conversations at most; 0: no limit by count");
  group.number("--conversation-cache-min-free-mib", ram.min_free_mib, "MIB", 0, kMaxMib,
               "RAM that stays available");
  group.number("--prompt-cache", ram.checkpoints, "COUNT", 0, limits::kMaxCheckpointsPerImage,
               "checkpoints of a conversation whose state cannot be cut; 0: off");
  group.number("--prompt-cache-every", ram.checkpoint_every_tokens, "TOKENS", 0, limits::kMaxTokens,
               "distance of checkpoints; 0: none by distance");
  command
      .add_flag("--prompt-cache-spread,!--no-prompt-cache-spread", ram.checkpoint_spread,
                "checkpoints also close to the end [default on]")
      ->group("RAM tier");
}

void add_disk(CLI::App& command, DiskSettings& disk) {
  Group group(command, "Disk tier");
  CLI::Option* folder = group.text("--conversation-disk-dir", disk.folder, "FOLDER",
                                   "where conversations evicted from RAM go; without it nothing is written");
  group
      .number("--conversation-disk-mib", disk.budget_mib, "MIB", 1, kMaxMib,
              "disk space of the folder, a hard ceiling")
      ->needs(folder);
  group
      .number("--conversation-disk-min-free-mib", disk.min_free_mib, "MIB", 0, kMaxMib,
              "space that stays free on the file system")
      ->needs(folder);
  group
      .number("--conversation-disk-ttl-min", disk.ttl_minutes, "MINUTES", 0, kMaxMinutes,
              "age at which a conversation is removed; 0: no limit")
      ->default_str("30, with persistence 0")
      ->needs(folder);
  group.flag("--conversation-disk-persist", disk.persist, "conversations outlive the engine")->needs(folder);
  group
      .choice("--conversation-disk-foreign", disk.foreign, {"remove", "keep"},
              "conversations found there that this model cannot use")
      ->needs(folder);
  group.choice("--io", disk.io, {"auto", "uring", "posix"}, "how the disk is read and written");
  group.choice("--disk-write-policy", disk.write_policy, {"evict", "through", "idle"},
               "write when the place is needed, after each answer, or when nothing runs");
}

void add_disk_mode(CLI::App& command, DiskSettings& disk) {
  Group group(command, "Disk mode");
  CLI::Option* mode = group
                          .number("--conversation-cache-disk-mib", disk.mode_mib, "MIB", 0, kMaxMib,
                                  "park straight to the disk, without a RAM tier, in so much disk space")
                          ->default_str("0: off");
  group
      .number("--conversation-cache-days", disk.mode_days, "DAYS", 0, kMaxMinutes / kMinutesADay,
              "age at which a conversation parked there is removed; 0: emptied at start and end")
      ->needs(mode);
  for (const char* other : {"--conversation-disk-mib", "--conversation-disk-ttl-min"})
    mode->excludes(command.get_option(other));
}

void add_sessions(CLI::App& command, SessionSettings& sessions) {
  Group group(command, "Sessions saved by name");
  group.number("--session-min-free-mib", sessions.min_free_mib, "MIB", 0, kMaxMib,
               "space that a save leaves free on the file system; 0: not checked");
  group.flag("--session-save-reclaim", sessions.save_reclaim,
             "a save that lacks RAM frees parked copies and conversations instead of failing");
}

void add_plugins(CLI::App& command, PluginSettings& plugins) {
  Group group(command, "Plugins");
  group.repeated("--plugin", plugins.files, "FILE", "load this plugin; an absolute path (repeatable)");
  group.text("--plugin-dir", plugins.folder, "FOLDER", "load every plugin there; an absolute path");
}

void add_log(CLI::App& command, LogSettings& log) {
  Group group(command, "Log");
  group.choice("--log-level", log.level, {"debug", "info", "warning", "error"},
               "least important line to print");
  group.text("--log-file", log.file, "FILE", "also append lines there");
  group.flag("--log-json", log.json, "one JSON object a line");
}

}  // namespace

void add_source_options(CLI::App& command, Settings& settings) {
  command.add_option("--config", settings.config_file, "TOML file with options")->type_name("FILE");
  command
      .add_flag("--only-command-line", settings.only_command_line,
                "ignore the environment and configuration files")
      ->group("");
}

void refuse_contradiction(const Settings& settings) {
  if (const auto problem = contradiction(settings))
    throw CLI::ValidationError(*problem, CLI::ExitCodes::ValidationError);
}

void add_model_options(CLI::App& command, Settings& settings) {
  add_model(command, settings.model);
  add_plugins(command, settings.plugins);
}

void add_engine_options(CLI::App& command, Settings& settings, RamDefault ram_default) {
  add_model(command, settings.model);
  add_ram(command, settings.ram, ram_default);
  add_disk(command, settings.disk);
  add_disk_mode(command, settings.disk);
  add_sessions(command, settings.sessions);
  add_plugins(command, settings.plugins);
  add_log(command, settings.log);
}

void add_http_options(CLI::App& command, Settings& settings) {
  HttpSettings& http = settings.http;
  Group group(command, "HTTP");
  group.text("--host", http.host, "ADDRESS", "address to listen on");
  group.number("--port", http.port, "PORT", 0, 65535, "port to listen on; 0: any free one, printed");
  group.repeated("--api-key", http.api_keys, "KEY", "key that clients must send (repeatable)")
      ->check(matching("KEY", is_not_empty));
  group.text("--api-key-file", http.api_key_file, "FILE", "keys, one a line");
  group.repeated("--allowed-host", http.allowed_hosts, "NAME",
                 "Host header accepted besides loopback (repeatable)");
  group.text("--slot-save-path", http.slot_save_folder, "FOLDER",
             "allow saving and restoring slots by name there");
  group.number("--max-body-mib", http.max_body_mib, "MIB", 1, 4096, "largest request body");
  group.flag("--no-page", http.no_page, "no page at /");
}

}  // namespace strata::cli
