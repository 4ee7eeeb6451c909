#include "engine/server/status_body.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/json_writer.hpp"

namespace strata {
namespace {

void write_params(JsonWriter& json, const lines::SamplingParams& sampling, int64_t max_tokens) {
  json.key("params").begin_object();
  json.member("temperature", sampling.temperature.value_or(0.0))
      .member("top_p", sampling.top_p.value_or(1.0));
  json.member("top_k", sampling.top_k.value_or(0)).member("min_p", sampling.min_p.value_or(0.0));
  json.member("repeat_penalty", sampling.repeat_penalty.value_or(1.0));
  json.member("presence_penalty", sampling.presence_penalty.value_or(0.0));
  json.member("frequency_penalty", sampling.frequency_penalty.value_or(0.0));
  json.key("seed");
  if (sampling.seed)
    json.value(*sampling.seed);
  else
    json.value(-1);
  json.member("n_predict", max_tokens).member("max_tokens", max_tokens).end_object();
}

void write_task(JsonWriter& json, const EngineSlot& slot, const std::vector<TaskView>& tasks) {
  json.member("id_task", *slot.task).member("n_prompt_tokens", slot.prompt_tokens);
  json.member("n_prompt_tokens_processed", slot.prompt_processed)
      .member("n_prompt_tokens_cache", slot.prompt_cached);
  const auto task =
      std::find_if(tasks.begin(), tasks.end(), [&](const TaskView& t) { return t.id == *slot.task; });
  if (task == tasks.end()) return;
  write_params(json, task->sampling, task->max_tokens);
  const uint32_t remaining = task->max_tokens - std::min(task->decoded, task->max_tokens);
  json.key("next_token").begin_array().begin_object();
  json.member("has_next_token", remaining > 0)
      .member("n_remain", remaining)
      .member("n_decoded", task->decoded);
  json.end_object().end_array();
}

void write_slots(JsonWriter& json, const EngineStatus& status, const std::vector<TaskView>& tasks) {
  json.begin_array();
  for (const EngineSlot& slot : status.slots) {
    json.begin_object().member("id", slot.id).member("n_ctx", slot.context).member("speculative", false);
    json.member("is_processing", slot.is_processing);
    if (slot.task) write_task(json, slot, tasks);
    json.key("conversation");
    if (slot.conversation.empty())
      json.null();
    else
      json.value(slot.conversation);
    json.member("tokens", slot.tokens).end_object();
  }
  json.end_array();
}

void add_metric(std::string& text, const char* name, const char* type, const char* help, uint64_t value) {
  if (text.find(std::string("# TYPE ") + name + " ") != std::string::npos) return;
  text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
}

void write_model(JsonWriter& json, const ModelView& view, const ModelInfo& info) {
  json.begin_object()
      .member("id", view.name)
      .member("object", "model")
      .member("created", view.created_s)
      .member("owned_by", "strata");
  json.key("meta").begin_object().member("n_vocab", info.vocabulary).member("n_ctx", view.context);
  json.member("n_params", info.parameters).member("size", info.weight_bytes).end_object().end_object();
}

}  // namespace

std::string models_body(const ModelView& view, const ModelInfo& info) {
  JsonWriter json;
  json.begin_object().member("object", "list").key("data").begin_array();
  write_model(json, view, info);
  json.end_array().end_object();
  return json.take();
}

std::string model_body(const ModelView& view, const ModelInfo& info) {
  JsonWriter json;
  write_model(json, view, info);
  return json.take();
}

std::string props_body(const ModelView& view, const std::string& build_info) {
  JsonWriter json;
  json.begin_object().key("default_generation_settings").begin_object().member("n_ctx", view.context);
  write_params(json, {}, -1);
  json.end_object().member("total_slots", view.slots).member("model_alias", view.name);
  json.member("model_path", view.path).key("modalities").begin_object();
  json.member("vision", false).member("audio", false).end_object();
  json.member("chat_template", view.chat_template).member("build_info", build_info).end_object();
  return json.take();
}

std::string slots_body(const EngineStatus& status, const std::vector<TaskView>& tasks) {
  JsonWriter json;
  write_slots(json, status, tasks);
  return json.take();
}

std::string status_body(const EngineStatus* status, const std::vector<TaskView>& tasks,
                        const ServerView& server) {
  JsonWriter json;
  json.begin_object().key("engine").begin_object().member("up", server.engine_up);
  json.member("restarts", server.restarts).end_object();
  json.member("requests_processing", server.requests_processing);
  json.member("requests_deferred", server.requests_deferred);
  json.key("slots");
  write_slots(json, status == nullptr ? EngineStatus() : *status, tasks);
  json.key("tiers").raw(status == nullptr ? "{}" : status->tiers).end_object();
  return json.take();
}

std::string metrics_text(const EngineStatus* status, const ServerView& server) {
  std::string text = status == nullptr ? std::string() : status->metrics;
  if (!text.empty() && text.back() != '\n') text += '\n';
  add_metric(text, "llamacpp:requests_processing", "gauge", "Requests the engine works on.",
             server.requests_processing);
  add_metric(text, "llamacpp:requests_deferred", "gauge", "Requests that wait.", server.requests_deferred);
  add_metric(text, "strata_engine_up", "gauge", "1 while the engine process runs and is ready.",
             server.engine_up ? 1 : 0);
  add_metric(text, "strata_engine_restarts_total", "counter", "Engine processes started after the first one.",
             server.restarts);
  return text;
}

std::string page_html(const std::string& model_name) {
  std::string safe;
  for (const char c : model_name) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>strata</title></head><body>"
      "<h1>strata</h1><p>{}</p><ul><li><a href=\"/health\">/health</a></li><li><a "
      "href=\"/slots\">/slots</a></li>"
      "<li><a href=\"/status\">/status</a></li><li><a "
      "href=\"/metrics\">/metrics</a></li></ul></body></html>\n",
      safe);
}

}  // namespace strata
