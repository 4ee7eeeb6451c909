#include "plugins/sdk/error_text.hpp"

#include <algorithm>

namespace strata::sdk {
namespace {

constexpr std::string_view kCut = "...";
constexpr std::string_view kSpaces = " \t\r\n\v\f";

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

std::string_view front(std::string_view text, size_t room) {
  size_t length = std::min(room, text.size());
  while (length > 0 && length < text.size() && continues_character(text[length])) --length;
  return text.substr(0, length);
}

std::string_view back(std::string_view text, size_t room) {
  size_t from = text.size() - std::min(room, text.size());
  while (from > 0 && from < text.size() && continues_character(text[from])) ++from;
  return text.substr(from);
}

bool is_underline(std::string_view word) { return word.find_first_not_of("-=^") == std::string_view::npos; }

void add_words(std::string_view line, std::string& all) {
  for (size_t from = 0; (from = line.find_first_not_of(kSpaces, from)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpaces, from), line.size());
    if (!all.empty()) all += ' ';
    all += line.substr(from, end - from);
    from = end;
  }
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string all;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    std::string words;
    add_words(text.substr(from, end - from), words);
    if (!is_underline(words)) add_words(words, all);
    from = end + 1;
  }
  return all;
}

std::string cut_in_the_middle(std::string_view text, size_t room) {
  if (text.size() <= room) return std::string(text);
  if (room <= kCut.size()) return std::string(front(text, room));
  const size_t kept = room - kCut.size();
  return std::string(front(text, kept / 3)).append(kCut).append(back(text, kept - kept / 3));
}

std::string end_of_path(std::string_view path, size_t room) {
  if (path.size() <= room) return std::string(path);
  if (room <= kCut.size()) return std::string(back(path, room));
  return std::string(kCut).append(back(path, room - kCut.size()));
}

std::string about_file(std::string_view what, std::string_view path, std::string_view reason) {
  const std::string why = one_line(reason);
  const size_t room = kErrorRoom - std::min(kErrorRoom, what.size() + std::string_view(" : ").size());
  const size_t left = room - std::min(room, why.size());
  const std::string shown = end_of_path(path, std::min(room, std::max(left, kLeastPath)));
  return std::string(what) + ' ' + shown + ": " + cut_in_the_middle(why, room - shown.size());
}

}  // namespace strata::sdk
