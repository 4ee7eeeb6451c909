// Logits → the next token. One sampler per request; it remembers the tokens that penalties count.
//
// Order: penalties, then (greedy: the largest) or top_k, top_p, min_p, temperature, draw. Equal logits are
// ordered by the lower token id, sums run in that order and the generator is our own, so equal inputs give
// equal tokens on every machine. Log probabilities are those of the model's distribution: before penalties,
// cuts and temperature. Errors: invalid, parameters out of range; internal, logits without a finite value.
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/lines.hpp"
#include "core/result.hpp"
#include "core/types.hpp"

namespace strata {

// Ranges: temperature ≥ 0, 0 ≤ top_p, min_p ≤ 1, repeat_penalty > 0, penalties finite, at most 64
// alternatives.
[[nodiscard]] Status check_sampling(const lines::SamplingParams& params);

struct SampledToken {
  Token token = 0;
  double logprob = 0;                         // 0 unless log probabilities were asked for
  std::vector<std::pair<Token, double>> top;  // most probable first; as many as asked for
};

class Sampler {
 public:
  // `fallback_seed` is used when the parameters have none.
  static Result<Sampler> make(const lines::SamplingParams& params, uint64_t fallback_seed);

  // Tokens already in the conversation, the prompt's included; only the last repeat_last_n matter.
  void accept(Token token);
  void accept(std::span<const Token> tokens);
  // Does not accept the token it returns.
  Result<SampledToken> sample(std::span<const float> logits);
  // A token that was chosen elsewhere, with the log probabilities that were asked for.
  [[nodiscard]] SampledToken describe(Token token, std::span<const float> logits) const;

 private:
  struct Candidate {
    Token token;
    double logit;
  };

  Sampler(const lines::SamplingParams& params, uint64_t seed);
  void apply_penalties(std::vector<Candidate>& candidates) const;
  void cut(std::vector<Candidate>& candidates) const;
  [[nodiscard]] Token draw(const std::vector<Candidate>& candidates);
  void add_log_probabilities(std::span<const float> logits, SampledToken& result) const;
  [[nodiscard]] double uniform();

  lines::SamplingParams params_;
  uint64_t state_;
  uint32_t last_n_;
  std::deque<Token> recent_;
  std::unordered_map<Token, uint32_t> counts_;  // of recent_
};

}  // namespace strata
