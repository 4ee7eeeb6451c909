// Byte tokenizer and chat template of the built-in models. Stateless, thread-safe.
//
// Tokens 0…255 are bytes; the special tokens have a text form (a marker such as <|end|>) that only
// ParseSpecial::yes turns back into the token. render_chat writes markers for the structure and breaks every
// marker that occurs inside a message ("<|end|>" becomes "< |end|>"), so content never becomes structure. A
// conversation that grows is a growing text: the rendering of some messages is a prefix of the rendering with
// more, and generation prompt + answer + <|end|> is the rendering with the answer appended.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::sdk {

inline constexpr int32_t kBegin = 256;
inline constexpr int32_t kEnd = 257;
inline constexpr int32_t kSystem = 258;
inline constexpr int32_t kUser = 259;
inline constexpr int32_t kAssistant = 260;
inline constexpr int32_t kTool = 261;
inline constexpr uint32_t kVocabulary = 272;  // the rest is reserved and never generated

enum class ParseSpecial : uint8_t { no, yes };
enum class AddBegin : uint8_t { no, yes };  // not a second time when the text starts with <|begin|>
enum class GenerationPrompt : uint8_t { no, yes };

struct Message {
  std::string_view role;  // system, developer, user, assistant, tool, function
  std::string_view content;
};

[[nodiscard]] std::vector<int32_t> tokenize(std::string_view text, AddBegin begin, ParseSpecial special);
// False when a token is outside the vocabulary.
[[nodiscard]] bool detokenize(std::span<const int32_t> tokens, std::string& text);
[[nodiscard]] bool is_end_of_generation(int32_t token);

// False when a role is unknown; `text` is then that role.
[[nodiscard]] bool render_chat(std::span<const Message> messages, GenerationPrompt prompt, std::string& text);
[[nodiscard]] std::string_view chat_template();  // the same in Jinja, for people

}  // namespace strata::sdk
