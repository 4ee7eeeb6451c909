// Values that options get without standing on the command line: from the environment, then from the
// configuration file. They are added to the arguments as --name=value, so that every value is checked by the
// same rules.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "engine/cli/command_line.hpp"

namespace strata::cli {

struct CompleteArguments {
  std::vector<std::string> arguments;
  std::map<std::string, std::string>
      origin;  // option → where its value came from, when not from the command line
};

// `command` is the one that the arguments (after its name) are for; keys of the file that only `siblings`
// know are passed over. invalid: the file cannot be read, or names an unknown option; the message is
// complete.
Result<CompleteArguments> complete_arguments(const std::vector<std::string>& arguments,
                                             const CLI::App& command,
                                             const std::vector<const CLI::App*>& siblings,
                                             const Environment& environment);

}  // namespace strata::cli
