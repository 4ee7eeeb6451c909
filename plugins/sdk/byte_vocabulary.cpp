#include "plugins/sdk/byte_vocabulary.hpp"

#include <array>

namespace strata::sdk {
namespace {

struct Marker {
  std::string_view text;
  int32_t token;
};
constexpr std::array<Marker, 6> kMarkers = {{{"<|begin|>", kBegin},
                                             {"<|end|>", kEnd},
                                             {"<|system|>", kSystem},
                                             {"<|user|>", kUser},
                                             {"<|assistant|>", kAssistant},
                                             {"<|tool|>", kTool}}};

const Marker* marker_at(std::string_view text) {
  if (!text.starts_with("<|")) return nullptr;
  for (const Marker& marker : kMarkers)
    if (text.starts_with(marker.text)) return &marker;
  return nullptr;
}

std::string_view marker_of(int32_t token) {
  for (const Marker& marker : kMarkers)
    if (marker.token == token) return marker.text;
  return {};
}

// Only whole markers are broken: what is left of one across the border of a message can never be completed,
// because whatever follows a message starts with a marker of its own.
void append_content(std::string_view content, std::string& text) {
  while (!content.empty()) {
    const size_t next = content.find("<|");
    text += content.substr(0, next);
    if (next == std::string_view::npos) return;
    content.remove_prefix(next);
    text += marker_at(content) != nullptr ? "< |" : "<|";
    content.remove_prefix(2);
  }
}

int32_t role_token(std::string_view role) {
  if (role == "system" || role == "developer") return kSystem;
  if (role == "user") return kUser;
  if (role == "assistant") return kAssistant;
  if (role == "tool" || role == "function") return kTool;
  return -1;
}

}  // namespace

std::vector<int32_t> tokenize(std::string_view text, AddBegin begin, ParseSpecial special) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() + 1);
  if (begin == AddBegin::yes) tokens.push_back(kBegin);
  while (!text.empty()) {
    const Marker* marker = special == ParseSpecial::yes ? marker_at(text) : nullptr;
    tokens.push_back(marker != nullptr ? marker->token : static_cast<uint8_t>(text.front()));
    text.remove_prefix(marker != nullptr ? marker->text.size() : 1);
  }
  if (begin == AddBegin::yes && tokens.size() > 1 && tokens[1] == kBegin) tokens.erase(tokens.begin());
  return tokens;
}

bool detokenize(std::span<const int32_t> tokens, std::string& text) {
  text.clear();
  for (const int32_t token : tokens) {
    if (token < 0 || token >= static_cast<int32_t>(kVocabulary)) return false;
    if (token < 256)
      text += static_cast<char>(token);
    else
      text += marker_of(token);
  }
  return true;
}

bool is_end_of_generation(int32_t token) { return token == kEnd; }

bool render_chat(std::span<const Message> messages, GenerationPrompt prompt, std::string& text) {
  text = marker_of(kBegin);
  for (const Message& message : messages) {
    const int32_t role = role_token(message.role);
    if (role < 0) {
      text = message.role;
      return false;
    }
    text += marker_of(role);
    text += '\n';
    append_content(message.content, text);
    text += marker_of(kEnd);
  }
  if (prompt == GenerationPrompt::yes) {
    text += marker_of(kAssistant);
    text += '\n';
  }
  return true;
}

std::string_view chat_template() {
  return "<|begin|>{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>{% "
         "endfor %}"
         "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
}

}  // namespace strata::sdk
