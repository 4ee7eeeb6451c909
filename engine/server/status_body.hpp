// The JSON and text of the status routes: /health, /props, /v1/models, /slots, /status, /metrics and the
// page. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/lines.hpp"
#include "core/model.hpp"
#include "engine/server/engine_status.hpp"

namespace strata {

// What the server itself knows of a request that a slot works for.
struct TaskView {
  uint64_t id = 0;
  uint32_t max_tokens = 0;
  uint32_t decoded = 0;
  lines::SamplingParams sampling;
};

struct ServerView {
  bool engine_up = false;
  uint64_t restarts = 0;
  size_t requests_processing = 0;
  size_t requests_deferred = 0;
};

struct ModelView {
  std::string name;
  std::string path;
  std::string chat_template;
  uint32_t context = 0;
  uint32_t slots = 0;
  uint64_t created_s = 0;
};

[[nodiscard]] std::string models_body(const ModelView& view, const ModelInfo& info);
[[nodiscard]] std::string model_body(const ModelView& view, const ModelInfo& info);
[[nodiscard]] std::string props_body(const ModelView& view, const std::string& build_info);
[[nodiscard]] std::string slots_body(const EngineStatus& status, const std::vector<TaskView>& tasks);
[[nodiscard]] std::string status_body(const EngineStatus* status, const std::vector<TaskView>& tasks,
                                      const ServerView& server);
// The engine's metrics, and those that only the server can know. Without an engine the server's alone.
[[nodiscard]] std::string metrics_text(const EngineStatus* status, const ServerView& server);
[[nodiscard]] std::string page_html(const std::string& model_name);

}  // namespace strata
