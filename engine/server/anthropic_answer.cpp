#include "engine/server/anthropic_answer.hpp"

#include <utility>

#include "core/json_writer.hpp"
#include "engine/server/completion_body.hpp"
#include "engine/server/json_check.hpp"

namespace strata {
namespace {

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.member("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.member("cache_creation_input_tokens", 0).member("cache_read_input_tokens", usage.cached_tokens);
  json.member("output_tokens", usage.completion_tokens).end_object();
}

void write_stop(JsonWriter& json, const AnswerEnd& end) {
  const char* reason = end.cause == StopCause::limit         ? "max_tokens"
                       : end.tool_calls                      ? "tool_use"
                       : end.cause == StopCause::stop_string ? "stop_sequence"
                                                             : "end_turn";
  json.member("stop_reason", reason).key("stop_sequence");
  if (end.cause == StopCause::stop_string && !end.tool_calls)
    json.value(end.stop_string);
  else
    json.null();
}

// With its content, or as a stream opens it: empty.
void write_block(JsonWriter& json, const AnswerBlock& block, bool with_content) {
  const std::string_view body = with_content ? std::string_view(block.body) : std::string_view();
  json.begin_object();
  switch (block.kind) {
    case BlockKind::reasoning:
      json.member("type", "thinking").member("thinking", body).member("signature", "");
      break;
    case BlockKind::text:
      json.member("type", "text").member("text", body);
      break;
    case BlockKind::tool_call:
      json.member("type", "tool_use").member("id", block.call_id).member("name", block.name);
      json.key("input").raw(json_object_or_empty(body));
      break;
  }
  json.end_object();
}

std::string event(const char* type, JsonWriter& json) { return sse_event(type, json.end_object().take()); }

JsonWriter opened(const char* type) {
  JsonWriter json;
  json.begin_object().member("type", type);
  return json;
}

}  // namespace

std::string AnthropicAnswer::take_out() { return std::exchange(out_, {}); }

std::string AnthropicAnswer::start(const Usage& usage) {
  started_ = true;
  JsonWriter json = opened("message_start");
  json.key("message").begin_object().member("id", id_).member("type", "message").member("role", "assistant");
  json.member("model", model_).key("content").begin_array().end_array();
  json.key("stop_reason").null().key("stop_sequence").null();
  write_usage(json, usage);
  json.end_object();
  return event("message_start", json);
}

std::string AnthropicAnswer::step(const AnswerStep& step) {
  blocks_.take(step.delta, *this);
  return take_out();
}

void AnthropicAnswer::open(size_t index, const AnswerBlock& block) {
  JsonWriter json = opened("content_block_start");
  json.member("index", index).key("content_block");
  write_block(json, block, false);
  out_ += event("content_block_start", json);
  if (index == 0) out_ += ping();
}

void AnthropicAnswer::piece(size_t index, const AnswerBlock& block, std::string_view piece) {
  JsonWriter json = opened("content_block_delta");
  json.member("index", index).key("delta").begin_object();
  switch (block.kind) {
    case BlockKind::reasoning:
      json.member("type", "thinking_delta").member("thinking", piece);
      break;
    case BlockKind::text:
      json.member("type", "text_delta").member("text", piece);
      break;
    case BlockKind::tool_call:
      json.member("type", "input_json_delta").member("partial_json", piece);
      break;
  }
  json.end_object();
  out_ += event("content_block_delta", json);
}

void AnthropicAnswer::close(size_t index, const AnswerBlock&) {
  JsonWriter json = opened("content_block_stop");
  json.member("index", index);
  out_ += event("content_block_stop", json);
}

std::string AnthropicAnswer::end(const AnswerEnd& end) {
  blocks_.finish(*this);
  JsonWriter json = opened("message_delta");
  json.key("delta").begin_object();
  write_stop(json, end);
  json.end_object();
  write_usage(json, end.usage);
  write_timings(json, end.timings);
  out_ += event("message_delta", json);
  JsonWriter stop = opened("message_stop");
  out_ += event("message_stop", stop);
  return take_out();
}

// Before message_start clients expect no event at all.
std::string AnthropicAnswer::ping() {
  return started_ ? sse_event("ping", R"({"type":"ping"})") : std::string(":\n\n");
}

std::string AnthropicAnswer::failure(const ApiError& error) {
  return sse_event("error", to_json(error, ErrorShape::anthropic));
}

std::string AnthropicAnswer::whole(const AnswerContent& content, const AnswerEnd& end) {
  JsonWriter json;
  json.begin_object().member("id", id_).member("type", "message").member("role", "assistant");
  json.member("model", model_).key("content").begin_array();
  for (const AnswerBlock& block : blocks_of(content)) write_block(json, block, true);
  json.end_array();
  write_stop(json, end);
  write_usage(json, end.usage);
  write_timings(json, end.timings);
  return json.end_object().take();
}

}  // namespace strata
