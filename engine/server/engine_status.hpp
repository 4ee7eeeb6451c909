// The engine's STATUS answer, taken apart: {"slots":[…],"tiers":{…},"metrics":"…"}. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"

namespace strata {

struct EngineSlot {
  int64_t id = 0;
  uint64_t context = 0;
  bool is_processing = false;
  std::string conversation;  // empty: none
  uint64_t tokens = 0;
  std::optional<uint64_t> task;  // the request it works for, and how far that is
  uint64_t prompt_tokens = 0;
  uint64_t prompt_processed = 0;
  uint64_t prompt_cached = 0;
};

struct EngineStatus {
  std::vector<EngineSlot> slots;
  std::string tiers = "{}";  // JSON
  std::string metrics;       // Prometheus text
};

Result<EngineStatus> parse_engine_status(std::string_view json);

}  // namespace strata
