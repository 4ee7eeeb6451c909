#include "engine/cli/command_line.hpp"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <ostream>

#include "engine/cli/commands.hpp"
#include "engine/cli/help_formatter.hpp"
#include "engine/cli/settings.hpp"
#include "engine/cli/value_sources.hpp"
#include "engine/cli/version.hpp"

namespace strata::cli {
namespace {

constexpr int kWrongUse = 2;

constexpr const char* kFooter =
    "Every option has an environment name (--conversation-disk-dir: STRATA_CONVERSATION_DISK_DIR) and can "
    "stand in the\n"
    "file of --config (conversation-disk-dir = \"...\"). Order: command line, environment, file, default.\n";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

const CLI::App* chosen_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto meant = [&](const CLI::App* command) { return command->check_name(arguments.front()); };
  if (arguments.empty()) return nullptr;
  const std::vector<const CLI::App*> found = app.get_subcommands(meant);
  return found.empty() ? nullptr : found.front();
}

// One line that names the option; CLI11 words some of its errors over several lines or without the option.
std::string explain(const CLI::App& app, const CLI::ParseError& error,
                    const std::map<std::string, std::string>& origins) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string see =
      fmt::format("; see strata {}--help", chosen.empty() ? "" : command.get_name() + " ");
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    const std::vector<std::string> extras = app.remaining(true);
    const bool option = !extras.empty() && extras.front().starts_with('-');
    return fmt::format("{}: {}{}", option ? "unknown option" : "unexpected argument", joined(extras), see);
  }
  const std::vector<std::string> left = app.remaining(true);
  if (chosen.empty() && !left.empty()) return fmt::format("unknown command: {}{}", joined(left), see);
  if (chosen.empty()) return "a command is needed: serve, engine, sessions, selftest or plugins" + see;
  std::string message = error.what();
  std::ranges::replace(message, '\n', ' ');
  for (const auto& [option, origin] : origins)
    if (message.starts_with(option + ":") || message.starts_with(option + " "))
      message += " (from " + origin + ")";
  return message;
}

}  // namespace

std::string environment_name(const std::string& option) {
  std::string name = "STRATA_";
  for (const char c : option.substr(option.find_first_not_of('-')))
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

int run_program(const std::vector<std::string>& arguments, const Environment& environment, std::ostream& out,
                std::ostream& err) {
  CLI::App app("Strata keeps conversations warm: in VRAM slots, pinned RAM and on disk.", "strata");
  int exit_status = 0;
  Settings settings;
  app.require_subcommand(1);
  app.set_version_flag(
      "--version", [] { return version_text(); }, "version, commit, compiler, plugins");
  app.formatter(std::make_shared<HelpFormatter>());
  add_serve_command(app, exit_status, settings);
  add_engine_command(app, exit_status, settings);
  add_sessions_command(app, exit_status);
  add_selftest_command(app, exit_status, settings);
  add_plugins_command(app, exit_status);

  CompleteArguments complete{arguments, {}};
  const CLI::App* command = chosen_command(app, arguments);
  const std::vector<const CLI::App*> configurable{app.get_subcommand("serve"), app.get_subcommand("engine")};
  if (std::ranges::find(configurable, command) != configurable.end() && command != nullptr) {
    app.get_subcommand(command->get_name())->footer(kFooter);
    auto completed = complete_arguments(arguments, *command, configurable, environment);
    if (!completed.ok()) {
      err << "strata: " << completed.error().message << '\n';
      return kWrongUse;
    }
    complete = std::move(*completed);
  }
  try {
    app.parse(std::vector<std::string>(complete.arguments.rbegin(), complete.arguments.rend()));
  } catch (const CLI::Success& asked_for) {
    return app.exit(asked_for, out, err);
  } catch (const CLI::ParseError& error) {
    err << "strata: " << explain(app, error, complete.origin) << '\n';
    return kWrongUse;
  }
  return exit_status;
}

}  // namespace strata::cli
