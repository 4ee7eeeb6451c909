#include "core/line_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/limits.hpp"

namespace strata::lines {

namespace {
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace

std::optional<uint64_t> parse_decimal(std::string_view text, uint64_t max) {
  if (text.empty() || !is_digit(text.front()) || (text.size() > 1 && text.front() == '0'))
    return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;  // no sign, no "inf", no "nan"
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> parse_signed_real(std::string_view text) {
  const bool negative = text.starts_with('-');
  const auto value = parse_real(text.substr(negative ? 1 : 0));
  if (!value) return std::nullopt;
  return negative ? -*value : *value;
}

std::optional<uint64_t> parse_hex(std::string_view text) {
  const auto is_hex = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); };
  if (text.empty() || text.size() > 16 || !std::all_of(text.begin(), text.end(), is_hex)) return std::nullopt;
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

std::string format_real(double value) {
  if (std::isnan(value)) value = 0;
  constexpr double kMost = std::numeric_limits<double>::max();
  return fmt::format("{}", std::clamp(value, -kMost, kMost));
}

std::string free_text(std::string_view text) {
  std::string out(text.empty() ? "unknown" : text);
  std::replace_if(out.begin(), out.end(), is_control, ' ');
  return out;
}

bool is_free_text(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), is_control);
}

Error Cursor::bad(std::string_view field) const {
  return make_error(ErrorCode::invalid, fmt::format("{}: bad or missing {}", name_, field));
}

Result<std::string_view> Cursor::word(std::string_view field) {
  if (ended_) return bad(field);
  const size_t space = rest_.find(' ');
  const std::string_view found = rest_.substr(0, space);
  if (!is_free_text(found)) return bad(field);
  ended_ = space == std::string_view::npos;
  rest_ = ended_ ? std::string_view() : rest_.substr(space + 1);
  return found;
}

Result<std::string_view> Cursor::text(std::string_view field) {
  if (ended_ || !is_free_text(rest_)) return bad(field);
  ended_ = true;
  return rest_;
}

Result<std::string_view> Cursor::value(std::string_view field) {
  STRATA_ASSIGN(const std::string_view found, word(field));
  const bool named = found.size() > field.size() && found.starts_with(field) && found[field.size()] == '=';
  if (!named) return bad(field);
  return found.substr(field.size() + 1);
}

Status Cursor::finish() const {
  if (ended_) return {};
  return make_error(ErrorCode::invalid, fmt::format("{}: more than its fields", name_));
}

Result<NamedLine> open_line(std::string_view line) {
  if (line.size() > limits::kMaxLineBytes)
    return make_error(ErrorCode::invalid, fmt::format("line of {} bytes", line.size()));
  const size_t space = line.find(' ');
  const bool alone = space == std::string_view::npos;
  const std::string_view name = line.substr(0, space);
  return NamedLine{name, Cursor(name, alone ? std::string_view() : line.substr(space + 1), alone)};
}

std::string percent_encoded(std::string_view value) {
  std::string out;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7F || c == '%')
      out += fmt::format("%{:02X}", byte);
    else
      out += c;
  }
  return out;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (text.size() - i < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

}  // namespace strata::lines
