// The commands of the program. Each adds itself to the application; when it is the one that was asked for, it
// runs and stores the exit status: 0 done, 1 failed, 2 wrong use.
#pragma once

#include <CLI/App.hpp>

namespace strata::cli {

struct Settings;

void add_serve_command(CLI::App& app, int& exit_status, Settings& settings);
void add_engine_command(CLI::App& app, int& exit_status, Settings& settings);
void add_sessions_command(CLI::App& app, int& exit_status);
void add_plugins_command(CLI::App& app, int& exit_status);
void add_selftest_command(CLI::App& app, int& exit_status, Settings& settings);

}  // namespace strata::cli
