// OpenAI's Responses API: events from response.created to response.completed (no [DONE]), or one body.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_writer.hpp"
#include "engine/server/answer.hpp"
#include "engine/server/answer_blocks.hpp"

namespace strata {

struct ResponsesHead {
  std::string id;  // "resp_…"
  uint64_t created_s = 0;
  std::string model;
  std::vector<std::pair<std::string, std::string>> echo;  // ResponsesRequest::echo
};

class ResponsesAnswer final : public AnswerFormat, private BlockWriter {
 public:
  explicit ResponsesAnswer(ResponsesHead head) : head_(std::move(head)) {}

  std::string start(const Usage& usage) override;
  std::string step(const AnswerStep& step) override;
  std::string end(const AnswerEnd& end) override;
  std::string failure(const ApiError& error) override;
  std::string whole(const AnswerContent& content, const AnswerEnd& end) override;

 private:
  void open(size_t index, const AnswerBlock& block) override;
  void piece(size_t index, const AnswerBlock& block, std::string_view piece) override;
  void close(size_t index, const AnswerBlock& block) override;

  [[nodiscard]] JsonWriter event(const char* type);  // begun, with its sequence number
  void send(const char* type, JsonWriter& json);     // ends it
  JsonWriter part_event(const char* type, size_t index, const AnswerBlock& block);
  [[nodiscard]] std::string item_id(size_t index, const AnswerBlock& block) const;
  void write_item(JsonWriter& json, size_t index, const AnswerBlock& block, std::string_view status) const;
  void write_response(JsonWriter& json, std::string_view status, const std::vector<AnswerBlock>& blocks,
                      const AnswerEnd* end, const ApiError* error) const;
  std::string take_out();

  ResponsesHead head_;
  BlockSequence blocks_;
  uint64_t sequence_ = 0;
  std::string out_;  // of the event at hand
};

}  // namespace strata
