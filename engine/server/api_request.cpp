#include "engine/server/api_request.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <limits>
#include <utility>

#include "core/limits.hpp"
#include "engine/server/json_reader.hpp"
#include "engine/server/messages_request.hpp"
#include "engine/server/tools_request.hpp"

namespace strata {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxLogprobs = 20;
constexpr size_t kMaxStops = 32;
constexpr size_t kMaxStopBytes = 1024;
constexpr double kMaxTemperature = 100;
constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

// Parses the body, has it read, and answers with what was read or with the first thing that was wrong.
template <class Read>
auto parsed(std::string_view body, Read read) -> ApiResult<decltype(read(std::declval<JsonReader&>()))> {
  const auto document = parse_json(body);
  if (!document) return tl::unexpected(document.error());
  JsonReader reader(document->get_object(), "");
  auto value = read(reader);
  if (reader.error()) return tl::unexpected(*reader.error());
  return value;
}

// −1 is what clients send for "no limit" and "choose for me".
template <class T>
std::optional<T> natural(JsonReader& reader, std::string_view key, int64_t highest) {
  const std::optional<int64_t> value = reader.integer(key, -1, highest);
  if (!value || *value < 0) return std::nullopt;
  return static_cast<T>(*value);
}

void read_sampling(JsonReader& reader, lines::SamplingParams& sampling) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
  sampling.temperature = reader.number("temperature", 0, kMaxTemperature);
  sampling.top_p = reader.number("top_p", 0, 1);
  sampling.min_p = reader.number("min_p", 0, 1);
  sampling.top_k = natural<uint32_t>(reader, "top_k", kMaxInt);
  sampling.seed = natural<uint64_t>(reader, "seed", kUnbounded);
  sampling.repeat_penalty = reader.number("repeat_penalty", 0, 2);
  sampling.presence_penalty = reader.number("presence_penalty", -2, 2);
  sampling.frequency_penalty = reader.number("frequency_penalty", -2, 2);
  sampling.repeat_last_n = natural<uint32_t>(reader, "repeat_last_n", kMaxInt);
}

void read_stop(JsonReader& reader, std::vector<std::string>& stops) {
  const json::value* value = reader.find("stop");
  if (value == nullptr) return;
  const auto take = [&](const json::value& stop) {
    if (!stop.is_string() || stop.get_string().empty() || stop.get_string().size() > kMaxStopBytes)
      return reader.refuse("stop", fmt::format("must hold strings of 1 to {} bytes", kMaxStopBytes));
    stops.emplace_back(stop.get_string());
  };
  if (value->is_string()) return take(*value);
  if (!value->is_array()) return reader.refuse("stop", "must be a string or an array of strings");
  if (value->get_array().size() > kMaxStops)
    return reader.refuse("stop", fmt::format("has more than {} strings", kMaxStops));
  for (const json::value& stop : value->get_array()) take(stop);
}

bool is_filled(const json::value* value) {
  if (value == nullptr) return false;
  if (const json::array* array = value->if_array()) return !array->empty();
  if (const json::object* object = value->if_object()) return !object->empty();
  if (const json::string* text = value->if_string()) return !text->empty();
  return true;
}

void refuse_unsupported(JsonReader& reader, bool chat, ChatSupport support) {
  const bool formatted = chat && support == ChatSupport::tools;
  if (support == ChatSupport::text && is_filled(reader.find("grammar")))
    reader.fail(not_supported("\"grammar\": this model cannot hold its answers to one"));
  if (!formatted && is_filled(reader.find("json_schema")))
    reader.fail(
        not_supported("\"json_schema\" is supported in chats only, with a model that has a chat format"));
  for (const std::string_view key : {"logit_bias", "suffix"})
    if (is_filled(reader.find(key))) reader.fail(not_supported(fmt::format("\"{}\" is not supported", key)));
  for (const std::string_view key : {"n", "best_of"})
    if (const auto count = reader.integer(key, 0, kUnbounded); count && *count != 1)
      reader.refuse(key, "must be 1: one answer a request");
  if (reader.boolean("echo").value_or(false)) reader.refuse("echo", "must be false");
}

void read_stream(JsonReader& reader, CompletionRequest& request) {
  request.stream = reader.boolean("stream").value_or(false);
  if (const json::object* options = reader.object("stream_options"); options != nullptr) {
    JsonReader inner(*options, "stream_options.");
    request.include_usage = inner.boolean("include_usage").value_or(false);
    if (inner.error()) reader.fail(*inner.error());
  }
  request.return_progress = reader.boolean("return_progress").value_or(false);
  request.timings_per_token = reader.boolean("timings_per_token").value_or(false);
}

void read_common(JsonReader& reader, CompletionRequest& request, ChatSupport support) {
  request.model = reader.text("model").value_or(std::string());
  read_sampling(reader, request.sampling);
  read_stop(reader, request.stop);
  read_stream(reader, request);
  for (const std::string_view key : {"n_predict", "max_tokens", "max_completion_tokens"})
    if (const auto limit = natural<uint32_t>(reader, key, limits::kMaxTokens)) request.max_tokens = limit;
  request.slot =
      static_cast<SlotId>(reader.integer("id_slot", -1, std::numeric_limits<SlotId>::max()).value_or(-1));
  request.cache_prompt = reader.boolean("cache_prompt").value_or(true);
  request.ignore_eos = reader.boolean("ignore_eos").value_or(false);
  request.grammar = reader.text("grammar").value_or(std::string());
  refuse_unsupported(reader, request.chat, support);
}

void read_chat_logprobs(JsonReader& reader, CompletionRequest& request) {
  const bool wanted = reader.boolean("logprobs").value_or(false);
  const auto top = reader.integer("top_logprobs", 0, kMaxLogprobs);
  if (top && !wanted) reader.refuse("top_logprobs", "needs \"logprobs\": true");
  if (wanted) request.sampling.logprobs = static_cast<uint32_t>(top.value_or(0));
}

std::vector<Token> read_tokens(JsonReader& reader, std::string_view key, const json::array& array) {
  std::vector<Token> tokens;
  tokens.reserve(array.size());
  for (const json::value& value : array) {
    json::error_code error;
    const auto token = value.is_int64() || value.is_uint64() ? value.to_number<Token>(error) : Token{-1};
    if (error || token < 0) {
      reader.refuse(key, "must hold token ids (integers from 0)");
      break;
    }
    tokens.push_back(token);
  }
  return tokens;
}

void read_prompt(JsonReader& reader, CompletionRequest& request) {
  const json::value* prompt = reader.find("prompt");
  if (prompt == nullptr) return reader.refuse("prompt", "is missing");
  if (prompt->is_string()) {
    request.prompt = std::string(prompt->get_string());
    return;
  }
  if (!prompt->is_array() || prompt->get_array().empty())
    return reader.refuse("prompt", "must be a string, an array of one string, or an array of token ids");
  const json::array& array = prompt->get_array();
  if (array[0].is_string()) {
    if (array.size() != 1) return reader.refuse("prompt", "must hold one string: one prompt a request");
    request.prompt = std::string(array[0].get_string());
    return;
  }
  request.prompt_tokens = read_tokens(reader, "prompt", array);
}

CompletionRequest read_chat(JsonReader& reader, std::string_view body, ChatSupport support) {
  CompletionRequest request;
  request.chat = true;
  request.messages = read_messages(reader);
  check_tools(reader, support);
  if (support == ChatSupport::tools && !reader.error()) request.chat_json = chat_json(reader, body);
  return request;
}

CompletionRequest read_text(JsonReader& reader, ChatSupport support) {
  CompletionRequest request;
  read_prompt(reader, request);
  read_common(reader, request, support);
  return request;
}

}  // namespace

ApiResult<CompletionRequest> parse_chat_completion(std::string_view body, ChatSupport support) {
  return parsed(body, [&](JsonReader& reader) {
    CompletionRequest request = read_chat(reader, body, support);
    read_common(reader, request, support);
    read_chat_logprobs(reader, request);
    request.parallel_calls = reader.boolean("parallel_tool_calls").value_or(true);
    return request;
  });
}

ApiResult<CompletionRequest> parse_chat_prompt(std::string_view body, ChatSupport support) {
  return parsed(body, [&](JsonReader& reader) { return read_chat(reader, body, support); });
}

ApiResult<CompletionRequest> parse_text_completion(std::string_view body, ChatSupport support) {
  return parsed(body, [&](JsonReader& reader) {
    CompletionRequest request = read_text(reader, support);
    if (const auto top = reader.integer("logprobs", 0, kMaxLogprobs))
      request.sampling.logprobs = static_cast<uint32_t>(*top);
    return request;
  });
}

ApiResult<CompletionRequest> parse_native_completion(std::string_view body, ChatSupport support) {
  return parsed(body, [&](JsonReader& reader) {
    CompletionRequest request = read_text(reader, support);
    if (const auto top = reader.integer("n_probs", 0, kMaxLogprobs); top && *top > 0)
      request.sampling.logprobs = static_cast<uint32_t>(*top);
    // Chunks always carry the ids of their text.
    request.return_tokens = reader.boolean("return_tokens").value_or(false) || request.stream;
    return request;
  });
}

ApiResult<TokenizeRequest> parse_tokenize(std::string_view body) {
  return parsed(body, [](JsonReader& reader) {
    TokenizeRequest request;
    request.content = reader.required_text("content");
    request.add_special = reader.boolean("add_special").value_or(false);
    request.parse_special = reader.boolean("parse_special").value_or(true);
    request.with_pieces = reader.boolean("with_pieces").value_or(false);
    return request;
  });
}

ApiResult<std::vector<Token>> parse_detokenize(std::string_view body) {
  return parsed(body, [](JsonReader& reader) {
    const json::array* array = reader.array("tokens");
    if (array == nullptr) reader.refuse("tokens", "is missing");
    return array == nullptr ? std::vector<Token>() : read_tokens(reader, "tokens", *array);
  });
}

std::optional<ApiError> refuse_body(std::string_view body) {
  const auto document = parse_json(body);
  return document ? std::nullopt : std::optional(document.error());
}

ApiResult<std::string> parse_slot_file(std::string_view body) {
  return parsed(body, [](JsonReader& reader) { return reader.required_text("filename"); });
}

}  // namespace strata
