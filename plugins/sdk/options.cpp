#include "plugins/sdk/options.hpp"

#include <charconv>

#include "plugins/sdk/error.hpp"

namespace strata::sdk {

std::optional<std::string> option_text(const strata_host* host, const char* key) {
  if (host == nullptr || !STRATA_HAS(host, get_option)) return std::nullopt;
  std::string value(64, '\0');
  int32_t length = host->get_option(host->ctx, key, value.data(), static_cast<uint32_t>(value.size()));
  if (length < 0) return std::nullopt;
  if (static_cast<size_t>(length) >= value.size()) {
    value.resize(static_cast<size_t>(length) + 1);
    length = host->get_option(host->ctx, key, value.data(), static_cast<uint32_t>(value.size()));
    if (length < 0) return std::nullopt;
  }
  value.resize(static_cast<size_t>(length));
  return value;
}

strata_status option_number(const strata_host* host, const NumberOption& option, uint64_t* value,
                            strata_error* error) {
  *value = option.fallback;
  const std::optional<std::string> text = option_text(host, option.key);
  if (!text) return STRATA_OK;
  const char* const end = text->data() + text->size();
  const auto [stop, failure] = std::from_chars(text->data(), end, *value);
  if (failure == std::errc{} && stop == end && *value >= option.minimum && *value <= option.maximum)
    return STRATA_OK;
  return fail(error, STRATA_INVALID,
              std::string(option.key) + "=" + *text + ": must be a number from " +
                  std::to_string(option.minimum) + " to " + std::to_string(option.maximum));
}

strata_status option_state_whole(const strata_host* host, bool* whole, strata_error* error) {
  const auto none_of = [error](const char* key, const std::string& value, const char* allowed) {
    return fail(error, STRATA_INVALID,
                std::string("option ") + key + ": \"" + value.substr(0, 40) + "\" is none of " + allowed);
  };
  const std::string granularity = option_text(host, "state_granularity").value_or("auto");
  if (granularity != "auto" && granularity != "blocks" && granularity != "whole")
    return none_of("state_granularity", granularity, "auto, blocks, whole");
  const std::string state =
      option_text(host, "state").value_or(granularity == "auto" ? "blocks" : granularity);
  if (state != "blocks" && state != "whole") return none_of("state", state, "blocks, whole");
  if (granularity != "auto" && granularity != state)
    return fail(error, STRATA_INVALID,
                "option state: " + state + " contradicts state_granularity=" + granularity);
  *whole = state == "whole";
  return STRATA_OK;
}

void log(const strata_host* host, int32_t level, std::string_view text) {
  if (host == nullptr || !STRATA_HAS(host, log)) return;
  host->log(host->ctx, level, text.data(), static_cast<uint32_t>(text.size()));
}

}  // namespace strata::sdk
