#include "plugins/model_llama/library.hpp"

#include <llama.h>
#include <log.h>

#include <mutex>

#include "plugins/sdk/options.hpp"

namespace strata::llama {
namespace {

struct Lines {
  std::mutex mutex;
  const strata_host* host = nullptr;
  std::string open;  // pieces of a line that has not ended
  bool open_is_error = false;
  std::string complaint;
};

Lines& lines() {
  static Lines instance;
  return instance;
}

void take_line(ggml_log_level level, const char* text, void* /*unused*/) {
  Lines& all = lines();
  const std::lock_guard lock(all.mutex);
  if (level != GGML_LOG_LEVEL_CONT) {
    all.open.clear();
    all.open_is_error = level == GGML_LOG_LEVEL_ERROR;
  }
  all.open += text;
  if (all.open.empty() || all.open.back() != '\n') return;
  all.open.pop_back();
  if (all.open_is_error && all.complaint.empty()) all.complaint = all.open;
  if (all.host != nullptr && !all.open.empty())
    sdk::log(all.host, STRATA_LOG_DEBUG, "llama.cpp: " + all.open);
  all.open.clear();
}

}  // namespace

void start_library(const strata_host* host) {
  static std::once_flag once;
  std::call_once(once, [] {
    common_log_set_verbosity_thold(-1);
    llama_log_set(take_line, nullptr);
    llama_backend_init();
  });
  const std::lock_guard lock(lines().mutex);
  lines().host = host;
}

void leave_library(const strata_host* host) {
  const std::lock_guard lock(lines().mutex);
  if (lines().host == host) lines().host = nullptr;
}

std::string complaint() {
  const std::lock_guard lock(lines().mutex);
  return lines().complaint;
}

void forget_complaint() {
  const std::lock_guard lock(lines().mutex);
  lines().complaint.clear();
}

}  // namespace strata::llama
