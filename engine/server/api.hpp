// The routes: checks each request in the order of docs/http-api.md (host, key, path, method, origin, media
// type, model loaded), then answers it or hands it to the supervisor. One thread; what the ports refer to
// must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/model.hpp"
#include "core/random.hpp"
#include "engine/server/completion.hpp"
#include "engine/server/completion_body.hpp"
#include "engine/server/http_message.hpp"
#include "engine/server/security.hpp"
#include "engine/server/server.hpp"
#include "engine/server/status_body.hpp"
#include "engine/server/supervisor.hpp"

namespace strata {

class Api final : public HttpHandler {
 public:
  struct Ports {
    Supervisor& supervisor;
    Model& model;  // tokenizer and template only
    Clock& clock;
    Random& random;
  };
  Api(Ports ports, const ServerOptions& options, KeyRing keys);

  std::optional<HttpResponse> refuse_early(const HttpRequest& request) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  HttpResponse protocol_error(int status, const std::string& message, const HttpRequest& request) override;
  void tick();  // pings of silent streams

 private:
  using ExchangePtr = std::shared_ptr<Exchange>;
  enum class Access : uint8_t { open, keyed };
  enum class Needs : uint8_t { nothing, loaded };
  struct Route {
    std::string_view path;
    std::string_view method;  // GET includes HEAD
    Access access;
    Needs needs;
    void (Api::*handle)(const ExchangePtr&);
  };
  struct Running {
    uint64_t id;
    std::weak_ptr<Completion> completion;
  };

  static const std::vector<Route>& routes();
  static const Route* find_route(std::string_view path);
  std::optional<ApiError> refuse(const HttpRequest& request, const Route* route) const;
  std::optional<ApiError> refuse_post(const HttpRequest& request, const Route& route) const;
  HttpResponse preflight(const HttpRequest& request, const Route* route) const;

  void chat_completions(const ExchangePtr& exchange);
  void text_completions(const ExchangePtr& exchange);
  void native_completions(const ExchangePtr& exchange);
  void anthropic_messages(const ExchangePtr& exchange);
  void anthropic_count_tokens(const ExchangePtr& exchange);
  void responses(const ExchangePtr& exchange);
  void stored_response(const ExchangePtr& exchange);
  void complete(const ExchangePtr& exchange, CompletionRequest request, std::unique_ptr<AnswerFormat> format);
  void health(const ExchangePtr& exchange);
  void models(const ExchangePtr& exchange);
  void one_model(const ExchangePtr& exchange);
  void props(const ExchangePtr& exchange);
  void slots(const ExchangePtr& exchange);
  void slot_action(const ExchangePtr& exchange);
  void status(const ExchangePtr& exchange);
  void metrics(const ExchangePtr& exchange);
  void tokenize(const ExchangePtr& exchange);
  void detokenize(const ExchangePtr& exchange);
  void apply_template(const ExchangePtr& exchange);
  void page(const ExchangePtr& exchange);

  [[nodiscard]] std::string new_id(std::string_view prefix);  // "prefix" and 32 hex digits
  [[nodiscard]] CompletionHead new_head(bool chat);
  [[nodiscard]] ChatSupport chat_support() const;
  // Nothing when the name means the model that is here.
  [[nodiscard]] std::optional<ApiError> refuse_model(std::string_view name) const;
  [[nodiscard]] ModelView model_view() const;
  [[nodiscard]] ServerView server_view() const;
  [[nodiscard]] std::vector<TaskView> tasks() const;
  [[nodiscard]] std::string fingerprint() const;

  Ports ports_;
  ServerOptions options_;
  HostPolicy hosts_;
  KeyRing keys_;
  uint64_t started_s_;
  std::vector<Running> running_;
};

}  // namespace strata
