// The options that serve and engine share, and those of serve alone, on a CLI11 command: groups, units,
// ranges, defaults. The settings must outlive the command.
#pragma once

#include <CLI/App.hpp>

#include "engine/cli/settings.hpp"

namespace strata::cli {

enum class RamDefault : uint8_t { off, quarter };

void add_source_options(CLI::App& command, Settings& settings);  // where values come from
void add_model_options(CLI::App& command, Settings& settings);   // of those, what names and makes the model
void add_engine_options(CLI::App& command, Settings& settings, RamDefault ram_default);
void add_http_options(CLI::App& command, Settings& settings);

// Throws the CLI11 error that main() turns into exit status 2.
void refuse_contradiction(const Settings& settings);

}  // namespace strata::cli
