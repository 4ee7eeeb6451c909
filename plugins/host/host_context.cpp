#include "plugins/host/host_context.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace strata {
namespace {

LogLevel level_of(int32_t level) {
  const int32_t known = std::clamp<int32_t>(level, STRATA_LOG_DEBUG, STRATA_LOG_ERROR);
  return static_cast<LogLevel>(known);
}

}  // namespace

HostContext::HostContext(Log& log, Clock& clock, std::map<std::string, std::string> options)
    : log_(log), clock_(clock), options_(std::move(options)) {
  abi_.struct_size = sizeof abi_;
  abi_.abi_major = STRATA_ABI_MAJOR;
  abi_.abi_minor = STRATA_ABI_MINOR;
  abi_.ctx = this;
  abi_.log = write_log;
  abi_.now_ns = now_ns;
  abi_.get_option = get_option;
}

void HostContext::write_log(void* ctx, int32_t level, const char* text, uint32_t length) {
  static_cast<HostContext*>(ctx)->log_.write(level_of(level), std::string_view(text, length));
}

uint64_t HostContext::now_ns(void* ctx) { return static_cast<HostContext*>(ctx)->clock_.monotonic_ns(); }

int32_t HostContext::get_option(void* ctx, const char* key, char* out, uint32_t out_size) {
  auto& self = *static_cast<HostContext*>(ctx);
  const auto& options = self.options_;
  const auto found = options.find(key);
  if (found == options.end()) return -1;
  {
    const std::lock_guard lock(self.asking_);
    self.asked_.insert(found->first);
  }
  const std::string& value = found->second;
  if (value.size() < out_size) std::memcpy(out, value.c_str(), value.size() + 1);
  return static_cast<int32_t>(value.size());
}

std::vector<std::string> HostContext::unasked() const {
  const std::lock_guard lock(asking_);
  std::vector<std::string> keys;
  for (const auto& [key, value] : options_)
    if (!asked_.contains(key)) keys.push_back(key);
  return keys;
}

}  // namespace strata
