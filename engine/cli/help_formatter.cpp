#include "engine/cli/help_formatter.hpp"

#include <fmt/format.h>

#include <vector>

namespace strata::cli {
namespace {

constexpr size_t kColumn = 48;

// CLI11 joins unit and validators as "MIB:0-64"; a choice has no unit.
struct TypeText {
  std::string unit, allowed;
};

TypeText type_text(const CLI::Option& option) {
  const std::string text = option.get_type_name();
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0; }

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kColumn); }

std::string HelpFormatter::make_group(std::string group, bool is_positional,
                                      std::vector<const CLI::Option*> options) const {
  std::string text = fmt::format("\n{}:\n", group);
  for (const CLI::Option* option : options) text += make_option(option, is_positional);
  return text;
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional || !is_flag(*option)) return Formatter::make_option_name(option, is_positional);
  std::string names;
  for (const std::string& name : option->get_snames()) names += "-" + name + ",";
  for (const std::string& name : option->get_lnames()) names += "--" + name + ",";
  names.pop_back();
  return names;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (is_flag(*option)) return "";
  const TypeText type = type_text(*option);
  return " " + (type.unit.empty() ? type.allowed : type.unit);
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  if (is_flag(*option)) return text;
  const TypeText type = type_text(*option);
  std::string notes = type.unit.empty() ? "" : type.allowed;
  if (!option->get_default_str().empty())
    notes += (notes.empty() ? "default " : "; default ") + option->get_default_str();
  return notes.empty() ? text : fmt::format("{} [{}]", text, notes);
}

}  // namespace strata::cli
