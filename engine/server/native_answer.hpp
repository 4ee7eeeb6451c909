// llama.cpp's own completions: /completion and /completions. No [DONE] ends a stream, "stop": true does.
#pragma once

#include <string>

#include "core/json_writer.hpp"
#include "engine/server/answer.hpp"

namespace strata {

class NativeAnswer final : public AnswerFormat {
 public:
  explicit NativeAnswer(std::string model) : model_(std::move(model)) {}

  std::string start(const Usage& usage) override;
  std::string progress(const Progress& progress) override;
  std::string step(const AnswerStep& step) override;
  std::string end(const AnswerEnd& end) override;
  std::string failure(const ApiError& error) override;
  std::string whole(const AnswerContent& content, const AnswerEnd& end) override;

 private:
  [[nodiscard]] std::string last_body(std::string_view text, const AnswerEnd& end) const;

  std::string model_;
  Usage usage_;
};

}  // namespace strata
