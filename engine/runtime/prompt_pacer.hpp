// PromptPacer: how many prompt tokens a step may read while other slots wait for their next token.
//
// Every prompt token makes the step longer, and so the gap between two tokens of an answer. How much differs
// a thousandfold between machines: a GPU reads 64 tokens beside an answer for nearly nothing, a CPU takes as
// long for one as for a token of the answer. So the pacer measures what a step takes without prompt tokens
// and what one of them adds, and allows as many as keep the step within kMostStretch of a step without. One
// token is always allowed: a prompt is never held up for as long as somebody answers.
//
// Ownership: a value. Thread-safety: none. Units: nanoseconds and tokens. Errors: none.
#pragma once

#include <cstdint>

namespace strata {

class PromptPacer {
 public:
  static constexpr double kMostStretch = 1.5;  // of a gap; the promise is 2, the rest is for noise
  static constexpr uint32_t kRemeasureSteps =
      32;  // then a step without prompt tokens: contexts grow, machines get busy

  explicit PromptPacer(uint32_t most) : most_(most) {}

  // Prompt tokens of the next step, over all readers, with so many answering slots (at least one) in it. 0:
  // this step measures what the answers take alone; never twice in a row.
  [[nodiscard]] uint32_t budget(uint32_t answers) const;
  // What a step with answers in it took.
  void observe(uint32_t answers, uint32_t prompt_tokens, uint64_t duration_ns);

 private:
  [[nodiscard]] bool must_measure(uint32_t answers) const;
  void observe_alone(double duration_ns);

  uint32_t most_;
  uint32_t answers_ = 0;  // that the measurements are about
  bool measured_ = false;
  double alone_ns_ = 0;       // a step without prompt tokens
  double per_token_ns_ = 0;   // added by a prompt token; 0: not known
  uint32_t last_tokens_ = 0;  // of the last step that had any
  bool last_was_alone_ = false;
  uint32_t steps_since_measured_ = 0;
};

}  // namespace strata
