// OpenAI's chat and text completions: chunks that end with [DONE], or one body.
#pragma once

#include <string>

#include "engine/server/answer.hpp"
#include "engine/server/completion_body.hpp"

namespace strata {

class OpenAiAnswer final : public AnswerFormat {
 public:
  OpenAiAnswer(CompletionHead head, bool include_usage)
      : head_(std::move(head)), include_usage_(include_usage) {}

  std::string start(const Usage& usage) override;
  std::string progress(const Progress& progress) override;
  std::string step(const AnswerStep& step) override;
  std::string end(const AnswerEnd& end) override;
  std::string failure(const ApiError& error) override;
  std::string whole(const AnswerContent& content, const AnswerEnd& end) override;

 private:
  [[nodiscard]] std::string chunk(const ChunkParts& parts) const;

  CompletionHead head_;
  bool include_usage_;
};

}  // namespace strata
