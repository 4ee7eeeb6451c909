// The status routes of the API.
#include <fmt/format.h>

#include <utility>

#include "core/json_writer.hpp"
#include "engine/server/api.hpp"
#include "engine/server/respond.hpp"

namespace strata {

void Api::health(const ExchangePtr& exchange) {
  Supervisor& engine = ports_.supervisor;
  if (engine.loading() || engine.starting()) return respond_error(*exchange, unavailable("Loading model"));
  if (engine.shutting_down()) return respond_error(*exchange, unavailable("the server is shutting down"));
  JsonWriter json;
  json.begin_object().member("status", "ok");
  if (!engine.ready()) json.member("engine", "ended; the next request starts it again");
  // A tier that was asked for and cannot work is no reason to be taken out of service, but it is said
  // (OBS-2).
  if (const std::string why = engine.info("disk_off_reason"); !why.empty())
    json.key("warnings").begin_array().value("the disk tier is off: " + why).end_array();
  json.end_object();
  respond_json(*exchange, json.take());
}

ModelView Api::model_view() const {
  ModelView view;
  view.name = options_.alias.empty() ? ports_.model.info().name : options_.alias;
  view.path = options_.model_path;
  view.context = ports_.supervisor.context();
  view.slots = ports_.supervisor.slots();
  view.created_s = started_s_;
  return view;
}

ServerView Api::server_view() const {
  const Supervisor& engine = ports_.supervisor;
  return {engine.ready(), engine.restarts(), engine.requests_processing(), engine.requests_deferred()};
}

std::vector<TaskView> Api::tasks() const {
  std::vector<TaskView> views;
  for (const Running& running : running_)
    if (const auto completion = running.completion.lock())
      views.push_back({running.id, completion->max_tokens(), completion->decoded(), completion->sampling()});
  return views;
}

std::string Api::fingerprint() const {
  const std::string version = ports_.supervisor.info("engine");
  return "strata-" + (version.empty() ? std::string(STRATA_VERSION) : version);
}

void Api::models(const ExchangePtr& exchange) {
  respond_json(*exchange, models_body(model_view(), ports_.model.info()));
}

void Api::one_model(const ExchangePtr& exchange) {
  const std::string_view path = exchange->request().path;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const ModelView view = model_view();
  if (name != view.name && name != ports_.model.info().name)
    return respond_error(
        *exchange,
        {404, fmt::format("the model \"{}\" does not exist; this server has \"{}\"", name, view.name)});
  respond_json(*exchange, model_body(view, ports_.model.info()));
}

void Api::props(const ExchangePtr& exchange) {
  ModelView view = model_view();
  view.chat_template = ports_.model.chat_template();
  respond_json(*exchange, props_body(view, "strata " STRATA_VERSION));
}

void Api::page(const ExchangePtr& exchange) {
  HttpResponse response;
  response.body = page_html(model_view().name);
  response.content_type = "text/html; charset=utf-8";
  response.headers.emplace_back("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'");
  exchange->respond(std::move(response));
}

void Api::slots(const ExchangePtr& exchange) {
  const bool fail_when_busy = exchange->request().query_value("fail_on_no_slot").value_or("0") == "1";
  ports_.supervisor.status([this, exchange, fail_when_busy](const std::optional<std::string>& json) {
    if (!json) return respond_error(*exchange, unavailable("the engine does not run or does not answer"));
    const Result<EngineStatus> status = parse_engine_status(*json);
    if (!status.ok()) return respond_error(*exchange, server_error(status.error().message));
    bool all_busy = true;
    for (const EngineSlot& slot : status->slots) all_busy = all_busy && slot.is_processing;
    if (fail_when_busy && all_busy) return respond_error(*exchange, unavailable("no slot is free"));
    respond_json(*exchange, slots_body(*status, tasks()));
  });
}

void Api::status(const ExchangePtr& exchange) {
  ports_.supervisor.status([this, exchange](const std::optional<std::string>& json) {
    if (!json) return respond_json(*exchange, status_body(nullptr, tasks(), server_view()));
    const Result<EngineStatus> status = parse_engine_status(*json);
    if (!status.ok()) return respond_error(*exchange, server_error(status.error().message));
    respond_json(*exchange, status_body(&*status, tasks(), server_view()));
  });
}

void Api::metrics(const ExchangePtr& exchange) {
  ports_.supervisor.status([this, exchange](const std::optional<std::string>& json) {
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    std::optional<EngineStatus> status;
    if (json) {
      Result<EngineStatus> parsed = parse_engine_status(*json);
      if (!parsed.ok()) return respond_error(*exchange, server_error(parsed.error().message));
      status = std::move(*parsed);
    }
    response.body = metrics_text(status ? &*status : nullptr, server_view());
    exchange->respond(std::move(response));
  });
}

}  // namespace strata
