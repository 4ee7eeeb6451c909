#include "engine/server/native_answer.hpp"

#include <vector>

#include "engine/server/completion_body.hpp"

namespace strata {
namespace {

void write_tokens(JsonWriter& json, const std::vector<Token>& tokens) {
  json.key("tokens").begin_array();
  for (const Token token : tokens) json.value(token);
  json.end_array();
}

void write_probabilities(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  json.key("completion_probabilities").begin_array();
  for (const TokenLogprob& token : tokens) {
    json.begin_object().member("id", token.token.id);
    write_token(json, token.token);
    json.key("top_logprobs").begin_array();
    for (const TokenText& other : token.top) {
      json.begin_object().member("id", other.id);
      write_token(json, other);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

const char* stop_type(StopCause cause) {
  switch (cause) {
    case StopCause::limit:
      return "limit";
    case StopCause::stop_string:
      return "word";
    case StopCause::end:
      break;
  }
  return "eos";
}

}  // namespace

std::string NativeAnswer::start(const Usage& usage) {
  usage_ = usage;
  return {};
}

std::string NativeAnswer::progress(const Progress& progress) {
  JsonWriter json;
  json.begin_object().member("index", 0).member("content", "");
  write_tokens(json, {});
  json.member("stop", false).member("tokens_predicted", 0).member("tokens_evaluated", usage_.prompt_tokens);
  write_progress(json, progress);
  return sse_data(json.end_object().take());
}

std::string NativeAnswer::step(const AnswerStep& step) {
  JsonWriter json;
  json.begin_object().member("index", 0).member("content", step.delta.text);
  write_tokens(json, step.tokens);
  json.member("stop", false).member("id_slot", step.slot);
  json.member("tokens_predicted", step.usage.completion_tokens);
  json.member("tokens_evaluated", step.usage.prompt_tokens);
  if (step.has_logprobs) write_probabilities(json, step.logprobs);
  if (step.timings != nullptr) write_timings(json, *step.timings);
  return sse_data(json.end_object().take());
}

std::string NativeAnswer::last_body(std::string_view text, const AnswerEnd& end) const {
  JsonWriter json;
  json.begin_object().member("index", 0).member("content", text);
  write_tokens(json, end.tokens);
  json.member("id_slot", end.slot).member("stop", true).member("model", model_);
  json.member("tokens_predicted", end.usage.completion_tokens);
  json.member("tokens_evaluated", end.usage.prompt_tokens).member("tokens_cached", end.usage.cached_tokens);
  json.member("truncated", false).member("stop_type", stop_type(end.cause));
  json.member("stopping_word", end.stop_string);
  if (end.has_logprobs) write_probabilities(json, end.logprobs);
  write_timings(json, end.timings);
  return json.end_object().take();
}

std::string NativeAnswer::end(const AnswerEnd& end) { return sse_data(last_body("", end)); }

std::string NativeAnswer::failure(const ApiError& error) { return sse_data(to_json(error)); }

std::string NativeAnswer::whole(const AnswerContent& content, const AnswerEnd& end) {
  return last_body(content.text, end);
}

}  // namespace strata
