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

void log(const strata_host* host, int32_t level, std::string_view text) {
  if (host == nullptr || !STRATA_HAS(host, log)) return;
  host->log(host->ctx, level, text.data(), static_cast<uint32_t>(text.size()));
}

}  // namespace strata::sdk
