#include "engine/server/api_error.hpp"

#include <fmt/format.h>

#include "core/json_writer.hpp"

namespace strata {

ApiError invalid_request(std::string message) { return {400, std::move(message)}; }
ApiError not_supported(std::string message) { return {501, std::move(message)}; }
ApiError unavailable(std::string message) { return {503, std::move(message)}; }
ApiError server_error(std::string message) { return {500, std::move(message)}; }

// Agents and the libraries below them recognise it by "exceeds the available context size".
ApiError exceeds_context(uint32_t prompt_tokens, uint32_t context) {
  ApiError error = invalid_request(
      fmt::format("the prompt has {} tokens, which exceeds the available context size of {} tokens",
                  prompt_tokens, context));
  error.prompt_tokens = prompt_tokens;
  error.context = context;
  return error;
}

ApiError slot_error(const std::string& kind, bool published, std::string message) {
  const int status = kind == "invalid" ? 400 : kind == "memory" ? 503 : kind == "storage" ? 507 : 500;
  ApiError error{status, std::move(message)};
  error.kind = status == 500 ? "io" : kind;
  error.published = published;
  return error;
}

const char* error_type(const ApiError& error) {
  if (error.prompt_tokens) return "exceed_context_size_error";
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return error.status < 500 ? "invalid_request_error" : "server_error";
  }
}

namespace {

// The types that Anthropic's API documents.
const char* anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 413:
      return "request_too_large";
    case 503:
      return "overloaded_error";
    case 401:
    case 403:
    case 404:
      return error_type(error);
    default:
      return error.status < 500 || error.status == 501 ? "invalid_request_error" : "api_error";
  }
}

// Agents recognise a prompt that is too long by these words.
std::string anthropic_message(const ApiError& error) {
  if (!error.prompt_tokens || !error.context) return error.message;
  return fmt::format("prompt is too long: {} tokens > {} maximum", *error.prompt_tokens, *error.context);
}

std::string anthropic_json(const ApiError& error) {
  JsonWriter json;
  json.begin_object().member("type", "error").key("error").begin_object();
  json.member("type", anthropic_type(error)).member("message", anthropic_message(error));
  return json.end_object().end_object().take();
}

}  // namespace

ErrorShape error_shape(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorShape::anthropic : ErrorShape::openai;
}

std::string to_json(const ApiError& error, ErrorShape shape) {
  if (shape == ErrorShape::anthropic) return anthropic_json(error);
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.member("code", error.status).member("message", error.message).member("type", error_type(error));
  if (error.prompt_tokens) json.member("n_prompt_tokens", *error.prompt_tokens);
  if (error.context) json.member("n_ctx", *error.context);
  if (!error.kind.empty()) json.member("kind", error.kind);
  if (error.published) json.member("published", true);
  json.end_object().end_object();
  return json.take();
}

}  // namespace strata
