// The Log port for the program: lines to standard error and, if asked for, a file; plain or one JSON object a
// line. Plain lines are "strata: <line>", nothing else, because dashboards parse them; the file puts the time
// in front.
#pragma once

#include <memory>

#include "core/log.hpp"
#include "core/result.hpp"
#include "engine/cli/settings.hpp"

namespace strata::cli {

// invalid: the file cannot be opened for appending.
Result<std::unique_ptr<Log>> open_log(const LogSettings& settings);

class SilentLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

}  // namespace strata::cli
