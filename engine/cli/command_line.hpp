// From the arguments of main() to the command that runs: the program's options, their values from the
// environment and the configuration file, and one line for whatever is wrong (docs/operations.md).
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace strata::cli {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// "--conversation-disk-dir" → "STRATA_CONVERSATION_DISK_DIR".
[[nodiscard]] std::string environment_name(const std::string& option);

// `arguments` without the program's name. Returns the exit status; help goes to `out`, complaints to `err`.
[[nodiscard]] int run_program(const std::vector<std::string>& arguments, const Environment& environment,
                              std::ostream& out, std::ostream& err);

}  // namespace strata::cli
