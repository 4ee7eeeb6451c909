// Pieces of protocol lines: a cursor over fields that are separated by exactly one space, and numbers in the
// strict form of docs/engine-protocol.md. Internal to the line codec. Pure, thread-safe.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace strata::lines {

// Plain decimal without sign or leading zeros, at most `max`.
[[nodiscard]] std::optional<uint64_t> parse_decimal(std::string_view text, uint64_t max);
[[nodiscard]] std::optional<double> parse_real(std::string_view text);         // finite, ≥ 0
[[nodiscard]] std::optional<double> parse_signed_real(std::string_view text);  // finite
[[nodiscard]] std::optional<uint64_t> parse_hex(std::string_view text);        // 1 … 16 lower-case digits
[[nodiscard]] std::string format_real(double value);         // shortest that reads back equal
[[nodiscard]] std::string free_text(std::string_view text);  // without control characters, never empty
[[nodiscard]] bool is_free_text(std::string_view text);
// Any bytes as one word of a line.
[[nodiscard]] std::string percent_encoded(std::string_view value);
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view text);

[[nodiscard]] inline bool parse(std::string_view text, double& out) {
  const auto value = parse_real(text);
  if (value) out = *value;
  return value.has_value();
}
[[nodiscard]] inline bool parse(std::string_view text, bool& out) {
  out = text == "1";
  return text == "0" || text == "1";
}
template <std::integral T>
requires(!std::same_as<T, bool>) [[nodiscard]] bool parse(std::string_view text, T& out) {
  const auto value = parse_decimal(text, static_cast<uint64_t>(std::numeric_limits<T>::max()));
  if (value) out = static_cast<T>(*value);
  return value.has_value();
}

class Cursor {
 public:
  Cursor(std::string_view name, std::string_view rest, bool ended)
      : name_(name), rest_(rest), ended_(ended) {}

  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] std::string_view peek() const {
    return ended_ ? std::string_view() : rest_.substr(0, rest_.find(' '));
  }

  Result<std::string_view> word(std::string_view field);
  Result<std::string_view> text(std::string_view field);  // the rest of the line
  Status finish() const;

  template <class T>
  Status number(std::string_view field, T& out) {
    STRATA_ASSIGN(const std::string_view content, word(field));
    return parse(content, out) ? Status{} : Status(bad(field));
  }
  // field=value
  Result<std::string_view> value(std::string_view field);
  template <class T>
  Status keyed(std::string_view field, T& out) {
    STRATA_ASSIGN(const std::string_view content, value(field));
    return parse(content, out) ? Status{} : Status(bad(field));
  }
  [[nodiscard]] Error bad(std::string_view field) const;

 private:
  std::string_view name_;
  std::string_view rest_;
  bool ended_;
};

// Splits the first word off.
struct NamedLine {
  std::string_view name;
  Cursor rest;
};
Result<NamedLine> open_line(std::string_view line);

}  // namespace strata::lines
