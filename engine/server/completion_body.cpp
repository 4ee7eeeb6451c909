#include "engine/server/completion_body.hpp"

#include "engine/server/utf8.hpp"

namespace strata {
namespace {

void write_bytes(JsonWriter& json, std::string_view bytes) {
  json.key("bytes").begin_array();
  for (const char byte : bytes) json.value(static_cast<uint32_t>(static_cast<unsigned char>(byte)));
  json.end_array();
}

void write_rate(JsonWriter& json, const char* per_token, const char* per_second, uint32_t tokens, double ms) {
  json.member(per_token, tokens == 0 ? 0.0 : ms / tokens);
  json.member(per_second, ms <= 0 ? 0.0 : 1000.0 * tokens / ms);
}

}  // namespace

void write_token(JsonWriter& json, const TokenText& token) {
  json.member("token", to_valid_utf8(token.bytes)).member("logprob", token.logprob);
  write_bytes(json, token.bytes);
}

void write_timings(JsonWriter& json, const Timings& timings) {
  json.key("timings").begin_object();
  json.member("cache_n", timings.cache_n)
      .member("prompt_n", timings.prompt_n)
      .member("prompt_ms", timings.prompt_ms);
  write_rate(json, "prompt_per_token_ms", "prompt_per_second", timings.prompt_n, timings.prompt_ms);
  json.member("predicted_n", timings.predicted_n).member("predicted_ms", timings.predicted_ms);
  write_rate(json, "predicted_per_token_ms", "predicted_per_second", timings.predicted_n,
             timings.predicted_ms);
  json.member("cache_tier", timings.cache_tier).member("cache_ms", timings.cache_ms);
  if (!timings.cache_reason.empty()) json.member("cache_reason", timings.cache_reason);
  json.end_object();
}

void write_progress(JsonWriter& json, const Progress& progress) {
  json.key("prompt_progress").begin_object();
  json.member("total", progress.total).member("cache", progress.cache);
  json.member("processed", progress.processed).member("time_ms", progress.time_ms).end_object();
}

namespace {

void write_head(JsonWriter& json, const CompletionHead& head, bool chunk) {
  const char* object = !head.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  json.member("id", head.id).member("object", object).member("created", head.created_s);
  json.member("model", head.model).member("system_fingerprint", head.fingerprint);
}

void write_chat_logprobs(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  json.begin_object().key("content").begin_array();
  for (const TokenLogprob& token : tokens) {
    json.begin_object();
    write_token(json, token.token);
    json.key("top_logprobs").begin_array();
    for (const TokenText& other : token.top) {
      json.begin_object();
      write_token(json, other);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void write_text_logprobs(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  json.begin_object().key("tokens").begin_array();
  for (const TokenLogprob& token : tokens) json.value(to_valid_utf8(token.token.bytes));
  json.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprob& token : tokens) json.value(token.token.logprob);
  json.end_array().key("top_logprobs").begin_array();
  for (const TokenLogprob& token : tokens) {
    json.begin_object();
    for (const TokenText& other : token.top) json.member(to_valid_utf8(other.bytes), other.logprob);
    json.end_object();
  }
  json.end_array().key("text_offset").begin_array();
  for (const TokenLogprob& token : tokens) json.value(token.text_offset);
  json.end_array().end_object();
}

void write_logprobs(JsonWriter& json, bool chat, const std::vector<TokenLogprob>* tokens) {
  json.key("logprobs");
  if (tokens == nullptr)
    json.null();
  else if (chat)
    write_chat_logprobs(json, *tokens);
  else
    write_text_logprobs(json, *tokens);
}

void write_finish(JsonWriter& json, std::string_view reason) {
  json.key("finish_reason");
  if (reason.empty())
    json.null();
  else
    json.value(reason);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.member("prompt_tokens", usage.prompt_tokens).member("completion_tokens", usage.completion_tokens);
  json.member("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object().member("cached_tokens", usage.cached_tokens).end_object();
  json.end_object();
}

void write_call(JsonWriter& json, const ToolCall& call) {
  json.begin_object().member("id", call.id).member("type", "function").key("function").begin_object();
  json.member("name", call.name).member("arguments", call.arguments).end_object().end_object();
}

void write_call_delta(JsonWriter& json, const ToolCallDelta& call) {
  json.key("tool_calls").begin_array().begin_object().member("index", call.index);
  if (call.first) json.member("id", call.id).member("type", "function");
  json.key("function").begin_object();
  if (call.first) json.member("name", call.name);
  json.member("arguments", call.arguments).end_object().end_object().end_array();
}

void write_delta(JsonWriter& json, const ChunkParts& parts) {
  json.key("delta").begin_object();
  if (parts.role) json.member("role", "assistant").key("content").null();
  if (!parts.reasoning.empty()) json.member("reasoning_content", parts.reasoning);
  if (!parts.text.empty()) json.member("content", parts.text);
  if (parts.tool_call != nullptr) write_call_delta(json, *parts.tool_call);
  json.end_object();
}

void write_message(JsonWriter& json, const AnswerContent& content) {
  json.key("message").begin_object().member("role", "assistant").key("content");
  if (content.text.empty() && !content.tool_calls.empty())
    json.null();
  else
    json.value(content.text);
  if (!content.reasoning.empty()) json.member("reasoning_content", content.reasoning);
  if (!content.tool_calls.empty()) {
    json.key("tool_calls").begin_array();
    for (const ToolCall& call : content.tool_calls) write_call(json, call);
    json.end_array();
  }
  json.end_object();
}

}  // namespace

std::string whole_body(const CompletionHead& head, const AnswerContent& content,
                       std::string_view finish_reason, const std::vector<TokenLogprob>* logprobs,
                       const Usage& usage, const Timings& timings) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, false);
  json.key("choices").begin_array().begin_object().member("index", 0);
  if (head.chat)
    write_message(json, content);
  else
    json.member("text", content.text);
  write_logprobs(json, head.chat, logprobs);
  write_finish(json, finish_reason);
  json.end_object().end_array();
  write_usage(json, usage);
  write_timings(json, timings);
  json.end_object();
  return json.take();
}

std::string chunk_body(const CompletionHead& head, const ChunkParts& parts) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, true);
  json.key("choices").begin_array().begin_object().member("index", 0);
  if (head.chat)
    write_delta(json, parts);
  else
    json.member("text", parts.text);
  write_logprobs(json, head.chat, parts.logprobs);
  write_finish(json, parts.finish_reason);
  json.end_object().end_array();
  if (parts.progress != nullptr) write_progress(json, *parts.progress);
  if (parts.timings != nullptr) write_timings(json, *parts.timings);
  json.end_object();
  return json.take();
}

std::string usage_chunk(const CompletionHead& head, const Usage& usage, const Timings& timings) {
  JsonWriter json;
  json.begin_object();
  write_head(json, head, true);
  json.key("choices").begin_array().end_array();
  write_usage(json, usage);
  write_timings(json, timings);
  json.end_object();
  return json.take();
}

}  // namespace strata
