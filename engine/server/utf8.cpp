#include "engine/server/utf8.hpp"

#include <cstdint>

namespace strata {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Sequence : uint8_t { complete, unfinished, broken };
struct Decoded {
  Sequence kind;
  size_t bytes;  // broken: the bytes that one replacement character stands for
};

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

size_t sequence_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// The second byte excludes overlong forms, surrogates and everything above U+10FFFF.
bool second_fits(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return second >= 0x80 && second <= 0xBF;
  }
}

Decoded decode_first(std::string_view text) {
  const uint8_t lead = byte_at(text, 0);
  const size_t length = sequence_length(lead);
  if (length == 0) return {Sequence::broken, 1};
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Sequence::unfinished, i};
    const uint8_t next = byte_at(text, i);
    const bool fits = i == 1 ? second_fits(lead, next) : (next & 0xC0) == 0x80;
    if (!fits) return {Sequence::broken, i};
  }
  return {Sequence::complete, length};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Decoded first = decode_first(text);
    if (first.kind != Sequence::complete) return false;
    text.remove_prefix(first.bytes);
  }
  return true;
}

std::string Utf8Stream::feed(std::string_view bytes) {
  pending_ += bytes;
  std::string_view rest = pending_;
  std::string text;
  while (!rest.empty()) {
    const Decoded first = decode_first(rest);
    if (first.kind == Sequence::unfinished) break;
    text += first.kind == Sequence::complete ? rest.substr(0, first.bytes) : kReplacement;
    rest.remove_prefix(first.bytes);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Utf8Stream::finish() {
  std::string text = pending_.empty() ? std::string() : std::string(kReplacement);
  pending_.clear();
  return text;
}

std::string to_valid_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.feed(bytes);
  return text + stream.finish();
}

}  // namespace strata
