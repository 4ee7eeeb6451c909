// What the table of each plugin kind must hold: the fields and functions of ABI 1.0, and the functions that
// its capabilities promise. Static data; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/abi/strata_plugin.h"

namespace strata {

struct TableFunction {
  const char* name;
  size_t offset;
  uint64_t implied_by = 0;  // the capability that promises it; 0: every plugin has it
};

struct TableRules {
  size_t size_1_0;  // of the table in ABI 1.0
  uint64_t known_caps;
  std::span<const TableFunction> functions;
};

// Null for an unknown kind.
[[nodiscard]] const TableRules* table_rules(uint32_t kind);

// The name of the first field or function that is missing, or null. The table is at least as long as
// strata_plugin.
[[nodiscard]] const char* missing_of_1_0(const TableRules& rules, const strata_plugin* table);
[[nodiscard]] const char* missing_implied(const TableRules& rules, const strata_plugin* table);

}  // namespace strata
