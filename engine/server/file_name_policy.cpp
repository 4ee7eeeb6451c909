#include "engine/server/file_name_policy.hpp"

#include <algorithm>
#include <array>

#include "engine/server/utf8.hpp"

namespace strata {
namespace {

// Looks like a dot or a slash, or hides at the beginning of the name: U+FEFF, U+FFFD, U+FF0E, U+2215, U+2216.
constexpr std::array<std::string_view, 5> kDeceiving = {"\xEF\xBB\xBF", "\xEF\xBF\xBD", "\xEF\xBC\x8E",
                                                        "\xE2\x88\x95", "\xE2\x88\x96"};

bool has_control_character(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (c < 0x20 || c == 0x7F) return true;
    // C1 is U+0080 to U+009F, in UTF-8 C2 80 to C2 9F.
    if (c == 0xC2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) <= 0x9F) return true;
  }
  return false;
}

bool is_device_name(std::string_view name) {
  std::string stem(name.substr(0, name.find('.')));
  while (!stem.empty() && stem.back() == ' ') stem.pop_back();
  std::transform(stem.begin(), stem.end(), stem.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  for (const std::string_view device : {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"})
    if (stem == device) return true;
  if (!stem.starts_with("COM") && !stem.starts_with("LPT")) return false;
  const std::string_view unit = std::string_view(stem).substr(3);
  // Windows reads the superscript digits ¹ ² ³ as 1 2 3 here.
  return (unit.size() == 1 && unit[0] >= '0' && unit[0] <= '9') || unit == "\xC2\xB9" || unit == "\xC2\xB2" ||
         unit == "\xC2\xB3";
}

}  // namespace

std::string refuse_session_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxSessionNameBytes) return "is longer than 200 bytes";
  if (!is_valid_utf8(name)) return "is not valid UTF-8";
  if (has_control_character(name)) return "has a control character";
  if (name.find_first_of("/\\:*?\"<>|") != std::string_view::npos) return "has one of / \\ : * ? \" < > |";
  if (name.front() == '.') return "begins with a dot";
  if (name.front() == ' ' || name.back() == ' ') return "begins or ends with a space";
  if (name.back() == '.') return "ends with a dot";
  if (name.find("..") != std::string_view::npos) return "has two dots in a row";
  for (const std::string_view character : kDeceiving)
    if (name.find(character) != std::string_view::npos)
      return "has a character that can be mistaken for another";
  if (is_device_name(name)) return "is a device name on Windows";
  return {};
}

}  // namespace strata
