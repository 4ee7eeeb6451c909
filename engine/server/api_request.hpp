// Request bodies of the HTTP API, parsed and checked. Every wrong type, missing key and value out of range is
// a 400 that names the key; keys this server does not know are ignored, keys it knows and cannot honour are a
// 501. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/lines.hpp"
#include "core/model.hpp"
#include "engine/server/api_error.hpp"

namespace strata {

struct CompletionRequest {
  std::string model;  // as the client names it; may be empty
  bool chat = false;
  std::vector<ChatMessage> messages;  // chat: roles system, user, assistant, tool
  std::string chat_json;              // chat: the request for Model::chat_format; empty without a chat model
  std::string prompt;                 // text completion, unless prompt_tokens is set
  std::optional<std::vector<Token>> prompt_tokens;
  std::optional<uint32_t> max_tokens;  // absent: what the context leaves
  lines::SamplingParams sampling;      // logprobs included
  std::vector<std::string> stop;
  std::string grammar;  // the client's own; a chat format may have another one, which goes first
  SlotId slot = kNoSlot;
  bool cache_prompt = true;
  bool ignore_eos = false;
  bool parallel_calls = true;
  bool stream = false;
  bool include_usage = false;
  bool return_progress = false;
  bool timings_per_token = false;
  bool return_tokens = false;  // native: ids beside the text
};

// What the model does beyond plain text.
enum class ChatSupport : uint8_t {
  text,   // nothing: tools, response formats and grammars answer 501
  tools,  // Model::chat_format, and grammars
};

struct TokenizeRequest {
  std::string content;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
};

ApiResult<CompletionRequest> parse_chat_completion(std::string_view body,
                                                   ChatSupport support = ChatSupport::text);
// OpenAI's form, and llama.cpp's.
ApiResult<CompletionRequest> parse_text_completion(std::string_view body,
                                                   ChatSupport support = ChatSupport::text);
ApiResult<CompletionRequest> parse_native_completion(std::string_view body,
                                                     ChatSupport support = ChatSupport::text);
// What a prompt is made of, and nothing else: /apply-template, token counts.
ApiResult<CompletionRequest> parse_chat_prompt(std::string_view body, ChatSupport support);
ApiResult<TokenizeRequest> parse_tokenize(std::string_view body);
ApiResult<std::vector<Token>> parse_detokenize(std::string_view body);
// Nothing when it is one JSON object.
std::optional<ApiError> refuse_body(std::string_view body);
// "filename", not yet checked against the name policy.
ApiResult<std::string> parse_slot_file(std::string_view body);

}  // namespace strata
