// Chat requests as prompts, and answers as messages: the model's template, tool-call formats and grammars,
// all by llama-common. Borrows the model. Throws Failure INVALID with words for the client. One thread at a
// time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/model_llama/loaded_model.hpp"

struct common_chat_parser_params;

namespace strata::llama {

struct FormattedChat {
  std::string prompt;
  std::vector<std::string> stops;
  std::string grammar;
  bool grammar_lazy = false;
  std::string parser;
};

class Chat {
 public:
  explicit Chat(const LoadedModel& model);
  ~Chat();
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  [[nodiscard]] std::string template_text() const;
  [[nodiscard]] std::string apply(const std::vector<std::pair<std::string, std::string>>& messages,
                                  bool add_generation_prompt) const;

  // OpenAI's chat.completions body → prompt. The grammar is what RequestSampler takes: JSON with its text,
  // its triggers and what it has already seen.
  [[nodiscard]] FormattedChat format(const std::string& request_json) const;
  // The message as JSON text. final: the answer has ended.
  [[nodiscard]] std::string parse(const std::string& parser, const std::string& text, bool final);

 private:
  struct Templates;
  struct Parsers;
  const common_chat_parser_params& parser_of(const std::string& text);

  std::unique_ptr<Templates> templates_;
  std::unique_ptr<Parsers> parsers_;
};

}  // namespace strata::llama
