#include "engine/runtime/prompt_pacer.hpp"

#include <algorithm>

namespace strata {
namespace {

// Moving averages that believe bad news sooner than good: when something else takes the processor for a
// while, a prompt that waits is better than an answer that stutters.
constexpr double kBadNews = 0.5;
constexpr double kGoodNews = 0.1;

double mixed(double old_value, double new_value, bool bad) {
  return old_value + (new_value - old_value) * (bad ? kBadNews : kGoodNews);
}

}  // namespace

bool PromptPacer::must_measure(uint32_t answers) const {
  return !measured_ || answers != answers_ || steps_since_measured_ >= kRemeasureSteps;
}

uint32_t PromptPacer::budget(uint32_t answers) const {
  if (must_measure(answers)) return last_was_alone_ ? 1 : 0;
  if (alone_ns_ <= 0) return most_;  // too quick to be measured
  // What one token costs says little about fifty at once, so a step at most doubles what the one before it
  // read.
  const uint32_t most = std::min(most_, std::max(1U, 2 * last_tokens_));
  if (last_tokens_ == 0) return 1;
  if (per_token_ns_ <= 0) return most;
  const double affordable = alone_ns_ * (kMostStretch - 1) / per_token_ns_;
  return affordable >= most ? most : std::max(1U, static_cast<uint32_t>(affordable));
}

void PromptPacer::observe(uint32_t answers, uint32_t prompt_tokens, uint64_t duration_ns) {
  const auto duration = static_cast<double>(duration_ns);
  if (answers != answers_) {  // another number of answers takes another time
    answers_ = answers;
    measured_ = false;
  }
  last_was_alone_ = prompt_tokens == 0;
  if (prompt_tokens == 0) return observe_alone(duration);
  ++steps_since_measured_;
  last_tokens_ = prompt_tokens;
  if (!measured_) return;
  const double added = std::max(0.0, duration - alone_ns_) / prompt_tokens;
  per_token_ns_ = per_token_ns_ > 0 ? mixed(per_token_ns_, added, added > per_token_ns_) : added;
}

void PromptPacer::observe_alone(double duration_ns) {
  alone_ns_ = measured_ ? mixed(alone_ns_, duration_ns, duration_ns < alone_ns_) : duration_ns;
  measured_ = true;
  steps_since_measured_ = 0;
}

}  // namespace strata
