#include "engine/server/responses_answer.hpp"

#include <fmt/format.h>

#include "engine/server/completion_body.hpp"

namespace strata {
namespace {

constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";

std::string_view end_status(const AnswerEnd& end) {
  return end.cause == StopCause::limit ? kIncomplete : kCompleted;
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object().member("input_tokens", usage.prompt_tokens);
  json.key("input_tokens_details").begin_object().member("cached_tokens", usage.cached_tokens).end_object();
  json.member("output_tokens", usage.completion_tokens);
  json.key("output_tokens_details").begin_object().member("reasoning_tokens", 0).end_object();
  json.member("total_tokens", usage.prompt_tokens + usage.completion_tokens).end_object();
}

void write_part(JsonWriter& json, const AnswerBlock& block, std::string_view body) {
  json.begin_object();
  if (block.kind == BlockKind::reasoning) {
    json.member("type", "reasoning_text").member("text", body);
  } else {
    json.member("type", "output_text").member("text", body);
    json.key("annotations").begin_array().end_array().key("logprobs").begin_array().end_array();
  }
  json.end_object();
}

// "output_text" or "reasoning_text" with what happens to it.
const char* text_event(const AnswerBlock& block, const char* of_text, const char* of_reasoning) {
  return block.kind == BlockKind::reasoning ? of_reasoning : of_text;
}

}  // namespace

std::string ResponsesAnswer::take_out() { return std::exchange(out_, {}); }

JsonWriter ResponsesAnswer::event(const char* type) {
  JsonWriter json;
  json.begin_object().member("type", type).member("sequence_number", sequence_++);
  return json;
}

void ResponsesAnswer::send(const char* type, JsonWriter& json) {
  out_ += sse_event(type, json.end_object().take());
}

std::string ResponsesAnswer::item_id(size_t index, const AnswerBlock& block) const {
  const char* prefix = block.kind == BlockKind::text        ? "msg"
                       : block.kind == BlockKind::tool_call ? "fc"
                                                            : "rs";
  return fmt::format("{}_{}_{}", prefix, head_.id, index);
}

void ResponsesAnswer::write_item(JsonWriter& json, size_t index, const AnswerBlock& block,
                                 std::string_view status) const {
  const bool begun = status == kInProgress;
  json.begin_object().member("id", item_id(index, block));
  if (block.kind == BlockKind::tool_call) {
    json.member("type", "function_call").member("status", status).member("call_id", block.call_id);
    json.member("name", block.name).member("arguments", begun ? std::string() : block.body);
    json.end_object();
    return;
  }
  if (block.kind == BlockKind::reasoning)
    json.member("type", "reasoning").member("status", status).key("summary").begin_array().end_array();
  else
    json.member("type", "message").member("status", status).member("role", "assistant");
  json.key("content").begin_array();
  if (!begun) write_part(json, block, block.body);
  json.end_array().end_object();
}

void ResponsesAnswer::write_response(JsonWriter& json, std::string_view status,
                                     const std::vector<AnswerBlock>& blocks, const AnswerEnd* end,
                                     const ApiError* error) const {
  json.begin_object().member("id", head_.id).member("object", "response");
  json.member("created_at", head_.created_s).member("status", status).member("background", false);
  json.key("error");
  if (error == nullptr)
    json.null();
  else
    json.begin_object().member("code", error_type(*error)).member("message", error->message).end_object();
  json.key("incomplete_details");
  if (status == kIncomplete)
    json.begin_object().member("reason", "max_output_tokens").end_object();
  else
    json.null();
  json.member("model", head_.model).key("output").begin_array();
  for (size_t i = 0; i < blocks.size(); ++i)
    write_item(json, i, blocks[i],
               i + 1 == blocks.size() && status == kIncomplete ? kIncomplete : kCompleted);
  json.end_array().key("previous_response_id").null().member("store", false);
  for (const auto& [key, value] : head_.echo) json.key(key).raw(value);
  if (end != nullptr) {
    write_usage(json, end->usage);
    write_timings(json, end->timings);
  } else {
    json.key("usage").null();
  }
  json.end_object();
}

std::string ResponsesAnswer::start(const Usage&) {
  for (const char* type : {"response.created", "response.in_progress"}) {
    JsonWriter json = event(type);
    json.key("response");
    write_response(json, kInProgress, {}, nullptr, nullptr);
    send(type, json);
  }
  return take_out();
}

std::string ResponsesAnswer::step(const AnswerStep& step) {
  blocks_.take(step.delta, *this);
  return take_out();
}

JsonWriter ResponsesAnswer::part_event(const char* type, size_t index, const AnswerBlock& block) {
  JsonWriter json = event(type);
  json.member("item_id", item_id(index, block)).member("output_index", index);
  if (block.kind != BlockKind::tool_call) json.member("content_index", 0);
  return json;
}

void ResponsesAnswer::open(size_t index, const AnswerBlock& block) {
  JsonWriter added = event("response.output_item.added");
  added.member("output_index", index).key("item");
  write_item(added, index, block, kInProgress);
  send("response.output_item.added", added);
  if (block.kind == BlockKind::tool_call) return;
  JsonWriter part = part_event("response.content_part.added", index, block);
  part.key("part");
  write_part(part, block, "");
  send("response.content_part.added", part);
}

void ResponsesAnswer::piece(size_t index, const AnswerBlock& block, std::string_view piece) {
  const char* type = block.kind == BlockKind::tool_call
                         ? "response.function_call_arguments.delta"
                         : text_event(block, "response.output_text.delta", "response.reasoning_text.delta");
  JsonWriter json = part_event(type, index, block);
  json.member("delta", piece);
  if (block.kind == BlockKind::text) json.key("logprobs").begin_array().end_array();
  send(type, json);
}

void ResponsesAnswer::close(size_t index, const AnswerBlock& block) {
  if (block.kind == BlockKind::tool_call) {
    JsonWriter done = part_event("response.function_call_arguments.done", index, block);
    done.member("name", block.name).member("arguments", block.body);
    send("response.function_call_arguments.done", done);
  } else {
    const char* type = text_event(block, "response.output_text.done", "response.reasoning_text.done");
    JsonWriter done = part_event(type, index, block);
    done.member("text", block.body);
    if (block.kind == BlockKind::text) done.key("logprobs").begin_array().end_array();
    send(type, done);
    JsonWriter part = part_event("response.content_part.done", index, block);
    part.key("part");
    write_part(part, block, block.body);
    send("response.content_part.done", part);
  }
  JsonWriter item = event("response.output_item.done");
  item.member("output_index", index).key("item");
  write_item(item, index, block, kCompleted);
  send("response.output_item.done", item);
}

std::string ResponsesAnswer::end(const AnswerEnd& end) {
  blocks_.finish(*this);
  const char* type = end.cause == StopCause::limit ? "response.incomplete" : "response.completed";
  JsonWriter json = event(type);
  json.key("response");
  write_response(json, end_status(end), blocks_.blocks(), &end, nullptr);
  send(type, json);
  return take_out();
}

std::string ResponsesAnswer::failure(const ApiError& error) {
  JsonWriter json = event("response.failed");
  json.key("response");
  write_response(json, "failed", blocks_.blocks(), nullptr, &error);
  send("response.failed", json);
  return take_out();
}

std::string ResponsesAnswer::whole(const AnswerContent& content, const AnswerEnd& end) {
  JsonWriter json;
  write_response(json, end_status(end), blocks_of(content), &end, nullptr);
  return json.take();
}

}  // namespace strata
