#include "core/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strata {
namespace {

constexpr uint32_t kDefaultRepeatLastN = 64;
constexpr uint32_t kMaxLogProbs = 64;

// Largest first; of equal ones the lower token.
template <class Candidate>
bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

Status check(const char* name, const std::optional<double>& value, double least, double most) {
  if (!value.has_value() || (*value >= least && *value <= most)) return {};  // NaN is refused
  return make_error(ErrorCode::invalid, fmt::format("{} is {}, not {} to {}", name, *value, least, most));
}

}  // namespace

Status check_sampling(const lines::SamplingParams& params) {
  STRATA_TRY(check("temperature", params.temperature, 0, 1000));
  STRATA_TRY(check("top_p", params.top_p, 0, 1));
  STRATA_TRY(check("min_p", params.min_p, 0, 1));
  STRATA_TRY(check("repeat_penalty", params.repeat_penalty, 1e-3, 1000));
  STRATA_TRY(check("presence_penalty", params.presence_penalty, -1000, 1000));
  STRATA_TRY(check("frequency_penalty", params.frequency_penalty, -1000, 1000));
  if (params.logprobs.value_or(0) > kMaxLogProbs)
    return make_error(ErrorCode::invalid,
                      fmt::format("logprobs is {}, at most {}", *params.logprobs, kMaxLogProbs));
  return {};
}

Result<Sampler> Sampler::make(const lines::SamplingParams& params, uint64_t fallback_seed) {
  STRATA_TRY(check_sampling(params));
  return Sampler(params, params.seed.value_or(fallback_seed));
}

Sampler::Sampler(const lines::SamplingParams& params, uint64_t seed)
    : params_(params), state_(seed), last_n_(params.repeat_last_n.value_or(kDefaultRepeatLastN)) {}

void Sampler::accept(Token token) {
  if (last_n_ == 0) return;
  recent_.push_back(token);
  ++counts_[token];
  if (recent_.size() <= last_n_) return;
  const auto oldest = counts_.find(recent_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  recent_.pop_front();
}

void Sampler::accept(std::span<const Token> tokens) {
  if (tokens.size() > last_n_) tokens = tokens.last(last_n_);
  for (const Token token : tokens) accept(token);
}

Result<SampledToken> Sampler::sample(std::span<const float> logits) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) candidates.push_back({static_cast<Token>(i), logits[i]});
  if (candidates.empty()) return make_error(ErrorCode::internal, "sampling: no logit is finite");
  SampledToken result;
  if (params_.logprobs.has_value()) add_log_probabilities(logits, result);
  apply_penalties(candidates);
  if (params_.temperature.value_or(0) == 0) {
    result.token = std::min_element(candidates.begin(), candidates.end(), before<Candidate>)->token;
  } else {
    cut(candidates);
    result.token = draw(candidates);
  }
  if (params_.logprobs.has_value())
    result.logprob += logits[static_cast<size_t>(result.token)];  // it held the negated normaliser
  return result;
}

SampledToken Sampler::describe(Token token, std::span<const float> logits) const {
  SampledToken result;
  if (params_.logprobs.has_value()) {
    add_log_probabilities(logits, result);
    result.logprob += logits[static_cast<size_t>(token)];
  }
  result.token = token;
  return result;
}

void Sampler::apply_penalties(std::vector<Candidate>& candidates) const {
  const double repeat = params_.repeat_penalty.value_or(1);
  const double presence = params_.presence_penalty.value_or(0);
  const double frequency = params_.frequency_penalty.value_or(0);
  if (repeat == 1 && presence == 0 && frequency == 0) return;
  for (Candidate& candidate : candidates) {
    const auto found = counts_.find(candidate.token);
    if (found == counts_.end()) continue;
    candidate.logit = candidate.logit > 0 ? candidate.logit / repeat : candidate.logit * repeat;
    candidate.logit -= presence + frequency * found->second;
  }
}

// Leaves the candidates that may be drawn, most probable first; at least one.
void Sampler::cut(std::vector<Candidate>& candidates) const {
  std::sort(candidates.begin(), candidates.end(), before<Candidate>);
  const uint32_t top_k = params_.top_k.value_or(0);
  if (top_k != 0 && candidates.size() > top_k) candidates.resize(top_k);
  const double largest = candidates.front().logit;
  const double top_p = params_.top_p.value_or(1);
  if (top_p < 1) {
    double total = 0;
    for (const Candidate& c : candidates) total += std::exp(c.logit - largest);
    double sum = 0;
    size_t keep = 0;
    while (keep < candidates.size() && (keep == 0 || sum < top_p * total))
      sum += std::exp(candidates[keep++].logit - largest);
    candidates.resize(keep);
  }
  const double min_p = params_.min_p.value_or(0);
  if (min_p > 0) {
    const auto unlikely = [&](const Candidate& c) { return std::exp(c.logit - largest) < min_p; };
    candidates.erase(std::find_if(candidates.begin() + 1, candidates.end(), unlikely), candidates.end());
  }
}

Token Sampler::draw(const std::vector<Candidate>& candidates) {
  const double temperature = *params_.temperature;
  const double largest = candidates.front().logit;
  std::vector<double> weights;
  double total = 0;
  for (const Candidate& c : candidates) {
    weights.push_back(std::exp((c.logit - largest) / temperature));
    total += weights.back();
  }
  double target = uniform() * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (target < weights[i]) return candidates[i].token;
    target -= weights[i];
  }
  return candidates.front().token;  // rounding left a rest: the most probable one
}

// Fills the alternatives, and −(logarithm of the sum) as log probability: the drawn token's logit is added
// later.
void Sampler::add_log_probabilities(std::span<const float> logits, SampledToken& result) const {
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) all.push_back({static_cast<Token>(i), logits[i]});
  const double largest = std::min_element(all.begin(), all.end(), before<Candidate>)->logit;
  double total = 0;
  for (const Candidate& c : all) total += std::exp(c.logit - largest);
  const double normaliser = largest + std::log(total);
  const size_t count = std::min<size_t>(*params_.logprobs, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(count), all.end(), before<Candidate>);
  for (size_t i = 0; i < count; ++i) result.top.emplace_back(all[i].token, all[i].logit - normaliser);
  result.logprob = -normaliser;
}

// SplitMix64; 53 bits make a double in [0, 1).
double Sampler::uniform() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

}  // namespace strata
