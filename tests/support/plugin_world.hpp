// A registry with the ports it needs, and the plugin files that the build made for tests. One thread at a
// time.
#pragma once

#include <string>

#include "core/posix/clock.hpp"
#include "plugins/host/registry.hpp"
#include "tests/support/recording_log.hpp"

namespace strata::testing {

struct PluginWorld {
  RecordingLog log;
  PosixClock clock;
  PluginRegistry registry{log, clock};
};

// A copy of that plugin file in a fresh folder, with a mode that the loader accepts: builds may leave files
// writable by the group. Removed at the end of the process; the loader never unloads.
[[nodiscard]] std::string installed_plugin(const std::string& built_file);

}  // namespace strata::testing
