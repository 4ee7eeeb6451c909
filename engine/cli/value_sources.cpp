#include "engine/cli/value_sources.hpp"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <fstream>
#include <set>

namespace strata::cli {
namespace {

constexpr const char* kConfig = "--config";
constexpr const char* kOnlyCommandLine = "--only-command-line";

bool is_option(const std::string& argument, const std::string& option) {
  return argument == option || argument.starts_with(option + "=");
}

bool present(const std::vector<std::string>& arguments, const std::string& option) {
  return std::ranges::any_of(arguments,
                             [&](const std::string& argument) { return is_option(argument, option); });
}

bool present(const std::vector<std::string>& arguments, const CLI::Option& option) {
  return std::ranges::any_of(option.get_lnames(),
                             [&](const std::string& name) { return present(arguments, "--" + name); });
}

// The value of --config on the command line, or of its environment name; empty without either.
std::string config_file(const std::vector<std::string>& arguments, const Environment& environment) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(std::string("--config=").size());
    if (arguments[i] == kConfig) return i + 1 < arguments.size() ? arguments[i + 1] : "";
  }
  return environment(environment_name(kConfig)).value_or("");
}

// The options of a command that a value may come for from elsewhere, by long name with dashes.
std::vector<const CLI::Option*> settable(const CLI::App& command) {
  std::vector<const CLI::Option*> found;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (name != "--help" && name != kConfig && name != kOnlyCommandLine) found.push_back(option);
  }
  return found;
}

using FileValues = std::map<std::string, std::vector<std::string>>;

bool knows(const CLI::App& command, const std::string& option) {
  return std::ranges::any_of(settable(command),
                             [&](const CLI::Option* known) { return known->check_lname(option); });
}

Result<FileValues> read_file(const std::string& path, const std::vector<const CLI::App*>& commands) {
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::invalid, fmt::format("--config: cannot read {}", path));
  FileValues values;
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    return make_error(ErrorCode::invalid, fmt::format("--config: {}: {}", path, error.what()));
  }
  for (CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // begin and end of a section
    std::ranges::replace(item.name, '_', '-');
    const bool known = item.parents.empty() && std::ranges::any_of(commands, [&](const CLI::App* command) {
                         return knows(*command, item.name);
                       });
    if (!known)
      return make_error(ErrorCode::invalid,
                        fmt::format("--config: {}: unknown option {}", path, item.fullname()));
    std::vector<std::string>& inputs = values[item.name];
    inputs.insert(inputs.end(), item.inputs.begin(), item.inputs.end());
  }
  return values;
}

bool repeatable(const CLI::Option& option) {
  return option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

Result<CompleteArguments> complete_arguments(const std::vector<std::string>& arguments,
                                             const CLI::App& command,
                                             const std::vector<const CLI::App*>& siblings,
                                             const Environment& environment) {
  CompleteArguments complete{arguments, {}};
  if (present(arguments, kOnlyCommandLine)) return complete;
  FileValues from_file;
  const std::string path = config_file(arguments, environment);
  if (!path.empty()) {
    STRATA_ASSIGN(from_file, read_file(path, siblings));
  }
  for (const CLI::Option* option : settable(command)) {
    if (present(arguments, *option)) continue;
    const std::string name = "--" + option->get_lnames().front();
    const auto add = [&](const std::vector<std::string>& values, const std::string& origin) {
      for (const std::string& value : values) complete.arguments.push_back(fmt::format("{}={}", name, value));
      complete.origin[name] = origin;
    };
    if (const auto value = environment(environment_name(name)); value && !value->empty())
      add(repeatable(*option) ? split_commas(*value) : std::vector{*value}, environment_name(name));
    else if (const auto found = from_file.find(option->get_lnames().front()); found != from_file.end())
      add(found->second, path);
  }
  return complete;
}

}  // namespace strata::cli
