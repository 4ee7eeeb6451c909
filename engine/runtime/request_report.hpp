// What a finished request says about itself: its log line (shape in docs/operations.md), its DONE event and
// its share of the metrics (OBS-1; hits and misses are counted by the tiers). Pure but for the metrics. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/lines.hpp"
#include "core/metrics.hpp"
#include "tiers/tier_stack.hpp"

namespace strata {

struct RequestReport {
  uint64_t id = 0;
  lines::Finish finish = lines::Finish::stop;
  uint32_t prompt_tokens = 0;
  uint32_t read_tokens = 0;
  uint32_t generated_tokens = 0;
  uint64_t read_ns = 0;    // from serving to the last prompt token read
  uint64_t decode_ns = 0;  // from there to the end
  Placement placement;
};

[[nodiscard]] lines::Done done_event(const RequestReport& report);
[[nodiscard]] std::string log_line(const RequestReport& report);
void count(Metrics& metrics, const RequestReport& report);

}  // namespace strata
