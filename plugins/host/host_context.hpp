// What one plugin instance sees of its host: log, clock and its own options.
// The registry keeps it for as long as it lives, because a plugin may use it from any of its threads.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "plugins/abi/strata_plugin.h"

namespace strata {

class HostContext {
 public:
  HostContext(Log& log, Clock& clock, std::map<std::string, std::string> options);
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;

  [[nodiscard]] const strata_host* abi() const { return &abi_; }
  // Keys of options that the plugin has not asked for so far; any thread.
  [[nodiscard]] std::vector<std::string> unasked() const;

 private:
  static void write_log(void* ctx, int32_t level, const char* text, uint32_t length);
  static uint64_t now_ns(void* ctx);
  static int32_t get_option(void* ctx, const char* key, char* out, uint32_t out_size);

  Log& log_;
  Clock& clock_;
  const std::map<std::string, std::string> options_;
  mutable std::mutex asking_;
  std::set<std::string, std::less<>> asked_;
  strata_host abi_{};
};

}  // namespace strata
