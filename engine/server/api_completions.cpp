// The routes that have the model write: one handler for each API family, and the way that all of them take.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/json_writer.hpp"
#include "engine/server/anthropic_answer.hpp"
#include "engine/server/anthropic_request.hpp"
#include "engine/server/api.hpp"
#include "engine/server/native_answer.hpp"
#include "engine/server/openai_answer.hpp"
#include "engine/server/prompt_builder.hpp"
#include "engine/server/respond.hpp"
#include "engine/server/responses_answer.hpp"
#include "engine/server/responses_request.hpp"

namespace strata {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kNsPerS = 1'000'000'000;

lines::Generate command_of(const CompletionRequest& request, Prompt& prompt, uint32_t context) {
  const auto prompt_tokens = static_cast<uint32_t>(prompt.tokens.size());
  lines::Generate command;
  command.max_tokens = std::min(request.max_tokens.value_or(context), context - prompt_tokens);
  if (request.slot != kNoSlot) command.slot = request.slot;
  command.sampling = request.sampling;
  command.use_cache = request.cache_prompt;
  command.ignore_end = request.ignore_eos;
  command.borders = std::move(prompt.borders);
  command.grammar = prompt.grammar.empty() ? request.grammar : std::move(prompt.grammar);
  command.tokens = std::move(prompt.tokens);
  return command;
}

}  // namespace

// ---- families

void Api::chat_completions(const ExchangePtr& exchange) {
  ApiResult<CompletionRequest> request = parse_chat_completion(exchange->request().body, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  auto format = std::make_unique<OpenAiAnswer>(new_head(true), request->include_usage);
  complete(exchange, *std::move(request), std::move(format));
}

void Api::text_completions(const ExchangePtr& exchange) {
  ApiResult<CompletionRequest> request = parse_text_completion(exchange->request().body, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  auto format = std::make_unique<OpenAiAnswer>(new_head(false), request->include_usage);
  complete(exchange, *std::move(request), std::move(format));
}

void Api::native_completions(const ExchangePtr& exchange) {
  ApiResult<CompletionRequest> request = parse_native_completion(exchange->request().body, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  complete(exchange, *std::move(request), std::make_unique<NativeAnswer>(model_view().name));
}

void Api::anthropic_messages(const ExchangePtr& exchange) {
  const ApiResult<std::string> chat = chat_from_anthropic(exchange->request().body);
  if (!chat) return respond_error(*exchange, chat.error());
  ApiResult<CompletionRequest> request = parse_chat_completion(*chat, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  complete(exchange, *std::move(request),
           std::make_unique<AnthropicAnswer>(new_id("msg_"), model_view().name));
}

void Api::anthropic_count_tokens(const ExchangePtr& exchange) {
  const ApiResult<std::string> chat = chat_from_anthropic(exchange->request().body);
  if (!chat) return respond_error(*exchange, chat.error());
  const ApiResult<CompletionRequest> request = parse_chat_prompt(*chat, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  const ApiResult<Prompt> prompt = build_prompt(ports_.model, *request);
  if (!prompt) return respond_error(*exchange, prompt.error());
  JsonWriter json;
  json.begin_object().member("input_tokens", prompt->tokens.size()).end_object();
  respond_json(*exchange, json.take());
}

void Api::responses(const ExchangePtr& exchange) {
  ApiResult<ResponsesRequest> asked = chat_from_responses(exchange->request().body);
  if (!asked) return respond_error(*exchange, asked.error());
  ApiResult<CompletionRequest> request = parse_chat_completion(asked->chat_json, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  ResponsesHead head{new_id("resp_"), ports_.clock.wall_ns() / kNsPerS, model_view().name,
                     std::move(asked->echo)};
  complete(exchange, *std::move(request), std::make_unique<ResponsesAnswer>(std::move(head)));
}

void Api::stored_response(const ExchangePtr& exchange) {
  respond_error(*exchange, invalid_request("answers are not stored, so none can be had again"));
}

// ---- the way of all of them

void Api::complete(const ExchangePtr& exchange, CompletionRequest request,
                   std::unique_ptr<AnswerFormat> format) {
  if (auto refused = refuse_model(request.model); refused) return respond_error(*exchange, *refused);
  if (request.slot >= static_cast<int64_t>(ports_.supervisor.slots()))
    return respond_error(*exchange,
                         invalid_request(fmt::format("\"id_slot\": there is no slot {}", request.slot)));
  ApiResult<Prompt> prompt = build_prompt(ports_.model, request);
  if (!prompt) return respond_error(*exchange, prompt.error());
  const uint32_t context = ports_.supervisor.context();
  const auto prompt_tokens = static_cast<uint32_t>(prompt->tokens.size());
  if (prompt_tokens >= context) return respond_error(*exchange, exceeds_context(prompt_tokens, context));
  lines::Generate command = command_of(request, *prompt, context);

  const auto id = std::make_shared<uint64_t>(0);  // known only after the completion exists
  Completion::Ports ports{ports_.model, ports_.clock, exchange,
                          [id, &supervisor = ports_.supervisor] { supervisor.stop(*id); },
                          [this] { return new_id("call_"); }};
  Completion::Plan plan{std::move(format), std::move(prompt->stops), std::move(prompt->parser),
                        prompt_tokens,     command.max_tokens,       options_.ping_ms * kNsPerMs};
  const auto completion = std::make_shared<Completion>(std::move(ports), std::move(request), std::move(plan));
  const ApiResult<uint64_t> accepted = ports_.supervisor.generate(std::move(command), completion);
  if (!accepted) return respond_error(*exchange, accepted.error());
  *id = *accepted;
  exchange->on_gone([weak = std::weak_ptr(completion)] {
    if (const auto running = weak.lock()) running->client_gone();
  });
  running_.push_back({*accepted, completion});
}

std::string Api::new_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, ports_.random.next(), ports_.random.next());
}

CompletionHead Api::new_head(bool chat) {
  CompletionHead head;
  head.chat = chat;
  head.id = new_id(chat ? "chatcmpl-" : "cmpl-");
  head.created_s = ports_.clock.wall_ns() / kNsPerS;
  head.model = model_view().name;
  head.fingerprint = fingerprint();
  return head;
}

// Most clients of local servers send a name that means nothing here, so any name is served by the one model
// there is. Whoever names the model (--alias) wants names to mean something.
std::optional<ApiError> Api::refuse_model(std::string_view name) const {
  const bool known = name.empty() || name == options_.alias || name == ports_.model.info().name;
  if (known || options_.alias.empty()) return std::nullopt;
  return ApiError{
      404, fmt::format("the model \"{}\" does not exist; this server has \"{}\"", name, options_.alias)};
}

ChatSupport Api::chat_support() const {
  return ports_.model.info().chat ? ChatSupport::tools : ChatSupport::text;
}

}  // namespace strata
