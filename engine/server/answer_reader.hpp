// The text that a model writes → what it means: content, reasoning and tool calls, by the model's own reader
// (Model::chat_parse), with what is new at each step. Nothing that was given out is taken back: a piece that
// the reader later sees otherwise stays as it was. Without a parser all text is content. Ownership: the model
// must outlive it. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/model.hpp"
#include "engine/server/answer.hpp"

namespace strata {

class AnswerReader {
 public:
  struct Options {
    std::optional<std::string> parser;         // ChatPrompt::parser
    bool incremental = true;                   // false: nothing is said before finish()
    std::function<std::string()> new_call_id;  // for calls that the model gives no id
    bool one_call = false;                     // parallel_tool_calls: false. Grammars do not always see to it
  };
  AnswerReader(Model& model, Options options) : model_(model), options_(std::move(options)) {}

  [[nodiscard]] AnswerDelta feed(std::string_view text);
  [[nodiscard]] AnswerDelta finish();
  [[nodiscard]] const AnswerContent& content() const { return given_; }  // all that was given out

 private:
  [[nodiscard]] std::optional<AnswerContent> parse(bool final);
  [[nodiscard]] AnswerDelta give(const AnswerContent& now);
  void give_call(size_t index, const ToolCall& now, AnswerDelta& delta);

  Model& model_;
  Options options_;
  std::string text_;
  size_t parsed_ = 0;  // of it, bytes that the model's reader has seen
  AnswerContent given_;
};

}  // namespace strata
