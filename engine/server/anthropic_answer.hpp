// Anthropic's messages: message_start … message_stop, or one body.
#pragma once

#include <string>

#include "engine/server/answer.hpp"
#include "engine/server/answer_blocks.hpp"

namespace strata {

class AnthropicAnswer final : public AnswerFormat, private BlockWriter {
 public:
  AnthropicAnswer(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  std::string start(const Usage& usage) override;
  std::string step(const AnswerStep& step) override;
  std::string end(const AnswerEnd& end) override;
  std::string ping() override;
  std::string failure(const ApiError& error) override;
  std::string whole(const AnswerContent& content, const AnswerEnd& end) override;

 private:
  void open(size_t index, const AnswerBlock& block) override;
  void piece(size_t index, const AnswerBlock& block, std::string_view piece) override;
  void close(size_t index, const AnswerBlock& block) override;
  std::string take_out();

  std::string id_;
  std::string model_;
  BlockSequence blocks_;
  std::string out_;  // of the event at hand
  bool started_ = false;
};

}  // namespace strata
