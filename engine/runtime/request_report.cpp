#include "engine/runtime/request_report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace {

double milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

double per_second(uint32_t tokens, uint64_t ns) { return ns == 0 ? 0.0 : tokens / seconds(ns); }

const char* finish_label(lines::Finish finish) {
  switch (finish) {
    case lines::Finish::stop:
      return "stop";
    case lines::Finish::length:
      return "length";
    case lines::Finish::cancel:
      return "cancel";
  }
  return "stop";
}

}  // namespace

lines::Done done_event(const RequestReport& report) {
  lines::Done done;
  done.id = report.id;
  done.finish = report.finish;
  done.prompt = report.prompt_tokens;
  done.reused = report.placement.reused_tokens;
  done.read = report.read_tokens;
  done.generated = report.generated_tokens;
  done.slot = static_cast<uint32_t>(std::max(report.placement.slot, SlotId{0}));
  done.prompt_ms = milliseconds(report.read_ns);
  done.decode_ms = milliseconds(report.decode_ns);
  done.cache_ms = milliseconds(report.placement.placing_ns);
  done.tier = report.placement.tier;
  done.reason = to_string(report.placement.cause);
  return done;
}

std::string log_line(const RequestReport& report) {
  std::string line = fmt::format(
      "strata: prompt {} tokens = {} reused + {} read in {:.1f} ms ({:.1f} tok/s), {} generated in {:.1f} ms "
      "({:.1f} "
      "tok/s)",
      report.prompt_tokens, report.placement.reused_tokens, report.read_tokens, milliseconds(report.read_ns),
      per_second(report.read_tokens, report.read_ns), report.generated_tokens, milliseconds(report.decode_ns),
      per_second(report.generated_tokens, report.decode_ns));
  if (report.finish == lines::Finish::cancel) line += " until cancelled";
  line += ", because " + to_string(report.placement.cause);
  if (report.placement.tier == Tier::disk && report.placement.reused_tokens > 0)
    line += fmt::format(", reused from the disk in {:.1f} s", seconds(report.placement.placing_ns));
  return line;
}

void count(Metrics& metrics, const RequestReport& report) {
  metrics.add("strata_requests_total", fmt::format("finish=\"{}\"", finish_label(report.finish)));
  if (report.read_tokens > 0)
    metrics.add("strata_read_tokens_total", fmt::format("reason=\"{}\"", label(report.placement.cause.reason)),
                report.read_tokens);
  metrics.add("llamacpp:prompt_tokens_total", {}, report.read_tokens);
  metrics.add("llamacpp:prompt_seconds_total", {}, seconds(report.read_ns));
  metrics.add("llamacpp:tokens_predicted_total", {}, report.generated_tokens);
  metrics.add("llamacpp:tokens_predicted_seconds_total", {}, seconds(report.decode_ns));
  const auto rate = [&](const char* name, const char* tokens, const char* time) {
    const double total_seconds = metrics.value(time);
    if (total_seconds > 0) metrics.set(name, {}, metrics.value(tokens) / total_seconds);
  };
  rate("llamacpp:prompt_tokens_seconds", "llamacpp:prompt_tokens_total", "llamacpp:prompt_seconds_total");
  rate("llamacpp:predicted_tokens_seconds", "llamacpp:tokens_predicted_total",
       "llamacpp:tokens_predicted_seconds_total");
}

}  // namespace strata
