// Loading a plugin file, and the checks every plugin table passes before anything in it is called.
//
// Loading is running code as us. The steps, in this order, each with a label that the error message carries:
//   path      absolute, no link, a regular file of root or ours, neither it nor its folder writable by others
//   open      dlopen(NOW | LOCAL | NODELETE)
//   symbol    strata_plugin_entry_v1
//   size      at least the frozen header
//   major     of the ABI
//   kind      it offers one that is known, and says so in the table
//   required  no required capability that is unknown here
//   table     every field and function of ABI 1.0
//   implied   every function a capability promises
//   probe     > 0
// A plugin is never unloaded. Tables are static. One thread at a time.
#pragma once

#include <string>
#include <vector>

#include "core/result.hpp"
#include "plugins/abi/strata_plugin.h"

namespace strata {

enum class PluginStep : uint8_t {
  path,
  open,
  symbol,
  size,
  major,
  kind,
  required,
  table,
  implied,
  probe,
  create
};

[[nodiscard]] const char* label(PluginStep step);

// "plugin SOURCE: refused (STEP): REASON"
[[nodiscard]] Error plugin_refusal(PluginStep step, const std::string& source, const std::string& reason);

// The steps from size to implied, on one table that `entry` returned for `kind`.
Status check_plugin_table(const strata_plugin* table, uint32_t kind, const std::string& source);

// Every table that the entry offers, checked. Used for linked-in plugins as well.
Result<std::vector<const strata_plugin*>> plugin_tables(strata_plugin_entry_fn entry,
                                                        const std::string& source);

// The steps from path to symbol.
Result<strata_plugin_entry_fn> open_plugin(const std::string& absolute_path);

}  // namespace strata
