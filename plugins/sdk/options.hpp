// Reading the options of an instance, and writing log lines through the host. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plugins/abi/strata_plugin.h"

namespace strata::sdk {

// Nothing when the option is not set.
[[nodiscard]] std::optional<std::string> option_text(const strata_host* host, const char* key);

struct NumberOption {
  const char* key;
  uint64_t fallback;  // when the option is not set
  uint64_t minimum;
  uint64_t maximum;
};

// INVALID, naming the option, its value and its range, when it is not a decimal number inside the range.
[[nodiscard]] strata_status option_number(const strata_host* host, const NumberOption& option,
                                          uint64_t* value, strata_error* error);

// Whether the state is to be kept in one piece: option state_granularity (auto, blocks or whole; auto means
// blocks here), or state (blocks or whole). INVALID, naming the option, when a value is none of these, or the
// two disagree.
[[nodiscard]] strata_status option_state_whole(const strata_host* host, bool* whole, strata_error* error);

// level: STRATA_LOG_*
void log(const strata_host* host, int32_t level, std::string_view text);

}  // namespace strata::sdk
