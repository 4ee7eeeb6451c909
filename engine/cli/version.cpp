#include "engine/cli/version.hpp"

#include <fmt/format.h>

#include "core/posix/clock.hpp"
#include "engine/cli/logging.hpp"
#include "plugins/host/registry.hpp"

namespace strata::cli {

const char* kind_name(uint32_t kind) {
  switch (kind) {
    case STRATA_KIND_DEVICE:
      return "device";
    case STRATA_KIND_IO:
      return "io";
    case STRATA_KIND_MODEL:
      return "model";
    default:
      return "unknown";
  }
}

const char* release() { return STRATA_RELEASE; }

std::string version_text() {
  std::string text = fmt::format("strata {} ({})\ncompiler: {}\n", release(), STRATA_COMMIT, STRATA_COMPILER);
  SilentLog log;
  PosixClock clock;
  const PluginRegistry registry(log, clock);
  for (const PluginDescription& plugin : registry.list())
    text += fmt::format("plugin: {} {} {} ({})\n", kind_name(plugin.kind), plugin.name, plugin.version,
                        plugin.source);
  text.pop_back();
  return text;
}

}  // namespace strata::cli
