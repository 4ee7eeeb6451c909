#include "engine/server/api.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/json_writer.hpp"
#include "engine/server/prompt_builder.hpp"
#include "engine/server/respond.hpp"

namespace strata {
namespace {

constexpr std::string_view kSlotPrefix = "/slots/";
constexpr std::string_view kStoredPrefix = "/v1/responses/";
constexpr std::string_view kModelPrefix = "/v1/models/";

bool is_json(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.pop_back();
  std::transform(type.begin(), type.end(), type.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return type == "application/json";
}

bool has_body(const HttpRequest& request) {
  const std::string_view length = request.header("content-length");
  return !request.header("transfer-encoding").empty() || (!length.empty() && length != "0");
}

}  // namespace

Api::Api(Ports ports, const ServerOptions& options, KeyRing keys)
    : ports_(ports),
      options_(options),
      hosts_(options.host, options.allowed_hosts),
      keys_(std::move(keys)),
      started_s_(ports.clock.wall_ns() / 1'000'000'000) {}

// ---- what is checked before a body is read

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> table = {
      {"/health", "GET", Access::open, Needs::nothing, &Api::health},
      {"/v1/health", "GET", Access::open, Needs::nothing, &Api::health},
      {"/v1/models", "GET", Access::open, Needs::loaded, &Api::models},
      {"/models", "GET", Access::open, Needs::loaded, &Api::models},
      {kModelPrefix, "GET", Access::open, Needs::loaded, &Api::one_model},
      {"/", "GET", Access::open, Needs::loaded, &Api::page},
      {"/v1/chat/completions", "POST", Access::keyed, Needs::loaded, &Api::chat_completions},
      {"/chat/completions", "POST", Access::keyed, Needs::loaded, &Api::chat_completions},
      {"/v1/completions", "POST", Access::keyed, Needs::loaded, &Api::text_completions},
      {"/completion", "POST", Access::keyed, Needs::loaded, &Api::native_completions},
      {"/completions", "POST", Access::keyed, Needs::loaded, &Api::native_completions},
      {"/v1/messages", "POST", Access::keyed, Needs::loaded, &Api::anthropic_messages},
      {"/v1/messages/count_tokens", "POST", Access::keyed, Needs::loaded, &Api::anthropic_count_tokens},
      {"/v1/responses", "POST", Access::keyed, Needs::loaded, &Api::responses},
      {"/responses", "POST", Access::keyed, Needs::loaded, &Api::responses},
      {kStoredPrefix, "GET", Access::keyed, Needs::loaded, &Api::stored_response},
      {"/props", "GET", Access::keyed, Needs::loaded, &Api::props},
      {"/slots", "GET", Access::keyed, Needs::loaded, &Api::slots},
      {kSlotPrefix, "POST", Access::keyed, Needs::loaded, &Api::slot_action},
      {"/status", "GET", Access::keyed, Needs::loaded, &Api::status},
      {"/metrics", "GET", Access::keyed, Needs::loaded, &Api::metrics},
      {"/tokenize", "POST", Access::keyed, Needs::loaded, &Api::tokenize},
      {"/detokenize", "POST", Access::keyed, Needs::loaded, &Api::detokenize},
      {"/apply-template", "POST", Access::keyed, Needs::loaded, &Api::apply_template},
  };
  return table;
}

const Api::Route* Api::find_route(std::string_view path) {
  for (const Route& route : routes()) {
    const bool is_folder = route.path.size() > 1 && route.path.ends_with('/');
    const bool is_below = is_folder && path.starts_with(route.path) && path.size() > route.path.size() &&
                          path.find('/', route.path.size()) == std::string_view::npos;
    if (is_folder ? is_below : route.path == path) return &route;
  }
  return nullptr;
}

std::optional<ApiError> Api::refuse_post(const HttpRequest& request, const Route& route) const {
  // A page of another origin must not be able to change slots, whatever key the browser may hold.
  const bool slot = route.path == kSlotPrefix;
  if (slot && !is_own_origin(request.header("origin"), request.header("host")))
    return ApiError{403, "slot actions are refused to pages of another origin"};
  const bool bare_erase = slot && request.header("content-type").empty() && !has_body(request) &&
                          request.query_value("action") == "erase";
  if (!bare_erase && !is_json(request.header("content-type")))
    return ApiError{415, "the body must be JSON (Content-Type: application/json)"};
  return std::nullopt;
}

std::optional<ApiError> Api::refuse(const HttpRequest& request, const Route* route) const {
  const bool open = route != nullptr && route->access == Access::open;
  if (!open && !keys_.accepts(request.header("authorization"), request.header("x-api-key")))
    return ApiError{401, "an API key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY"};
  if (route == nullptr || (route->handle == &Api::page && options_.no_page))
    return ApiError{404, "no such path: " + request.path};
  const bool fits = request.method == route->method || (request.method == "HEAD" && route->method == "GET");
  if (!fits) return ApiError{405, fmt::format("{} takes {} only", request.path, route->method)};
  if (route->method == "POST")
    if (auto refused = refuse_post(request, *route); refused) return refused;
  if (ports_.supervisor.shutting_down() && route->needs == Needs::loaded)
    return unavailable("the server is shutting down");
  if (route->needs == Needs::loaded && ports_.supervisor.loading()) return unavailable("Loading model");
  return std::nullopt;
}

HttpResponse Api::preflight(const HttpRequest& request, const Route* route) const {
  if (!is_own_origin(request.header("origin"), request.header("host")))
    return error_response({403, "pages of another origin are refused"}, error_shape(request.path));
  if (route == nullptr)
    return error_response({404, "no such path: " + request.path}, error_shape(request.path));
  HttpResponse response{204, "", ""};
  response.headers.emplace_back("Allow", route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
  return response;
}

std::optional<HttpResponse> Api::refuse_early(const HttpRequest& request) {
  // HTTP/1.0 requests without a Host come from no browser, so they cannot be a rebound name.
  if (!request.header("host").empty() && !hosts_.allows(request.header("host"), request.local_address))
    return error_response({403, "this Host is not served; --allowed-host adds one"},
                          error_shape(request.path));
  const Route* route = find_route(request.path);
  if (request.method == "OPTIONS") return preflight(request, route);
  const auto error = refuse(request, route);
  if (!error) return std::nullopt;
  HttpResponse response = error_response(*error, error_shape(request.path));
  if (error->status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error->status == 405)
    response.headers.emplace_back("Allow", route->method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
  return response;
}

void Api::handle(std::shared_ptr<Exchange> exchange) {
  const Route* route = find_route(exchange->request().path);
  (this->*route->handle)(exchange);
}

HttpResponse Api::protocol_error(int status, const std::string& message, const HttpRequest& request) {
  return error_response({status, message}, error_shape(request.path));
}

void Api::tick() {
  std::erase_if(running_, [](const Running& running) { return running.completion.expired(); });
  const uint64_t now = ports_.clock.monotonic_ns();
  for (const Running& running : running_)
    if (const auto completion = running.completion.lock()) completion->tick(now);
}

// ---- text tools: the server's own vocabulary answers, whatever the engine does

void Api::tokenize(const ExchangePtr& exchange) {
  const auto request = parse_tokenize(exchange->request().body);
  if (!request) return respond_error(*exchange, request.error());
  const auto tokens = ports_.model.tokenize(request->content, request->add_special, request->parse_special);
  if (!tokens.ok()) return respond_error(*exchange, server_error(tokens.error().message));
  JsonWriter json;
  json.begin_object().key("tokens").begin_array();
  for (const Token token : *tokens) {
    if (!request->with_pieces) {
      json.value(token);
      continue;
    }
    const auto piece = ports_.model.detokenize({&token, 1});
    json.begin_object().member("id", token).key("piece");
    write_piece(json, piece.ok() ? *piece : std::string());
    json.end_object();
  }
  json.end_array().end_object();
  respond_json(*exchange, json.take());
}

void Api::detokenize(const ExchangePtr& exchange) {
  const auto tokens = parse_detokenize(exchange->request().body);
  if (!tokens) return respond_error(*exchange, tokens.error());
  const auto text = ports_.model.detokenize(*tokens);
  if (!text.ok()) return respond_error(*exchange, invalid_request(text.error().message));
  JsonWriter json;
  json.begin_object().member("content", to_valid_utf8(*text)).end_object();
  respond_json(*exchange, json.take());
}

void Api::apply_template(const ExchangePtr& exchange) {
  const auto request = parse_chat_prompt(exchange->request().body, chat_support());
  if (!request) return respond_error(*exchange, request.error());
  const auto prompt = render_prompt(ports_.model, *request);
  if (!prompt) return respond_error(*exchange, prompt.error());
  JsonWriter json;
  json.begin_object().member("prompt", *prompt).end_object();
  respond_json(*exchange, json.take());
}

}  // namespace strata
