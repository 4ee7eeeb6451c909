#include "engine/runtime/constrained_sampler.hpp"

#include <algorithm>
#include <span>

#include "core/json_writer.hpp"

namespace strata {
namespace {

constexpr uint32_t kDefaultLastTokens = 64;

template <class Value>
void member(JsonWriter& json, const char* name, const std::optional<Value>& value) {
  if (value) json.member(name, *value);
}

std::string params_of(const lines::Generate& ask, uint64_t seed) {
  const lines::SamplingParams& params = ask.sampling;
  JsonWriter json;
  json.begin_object();
  member(json, "temperature", params.temperature);
  member(json, "top_k", params.top_k);
  member(json, "top_p", params.top_p);
  member(json, "min_p", params.min_p);
  member(json, "repeat_penalty", params.repeat_penalty);
  member(json, "presence_penalty", params.presence_penalty);
  member(json, "frequency_penalty", params.frequency_penalty);
  member(json, "repeat_last_n", params.repeat_last_n);
  json.member("seed", static_cast<uint32_t>(seed));
  json.member("grammar", ask.grammar);
  json.end_object();
  return json.take();
}

}  // namespace

Result<std::unique_ptr<ModelSampler>> make_constrained_sampler(Model& model, const lines::Generate& ask,
                                                               uint64_t fallback_seed) {
  STRATA_ASSIGN(std::unique_ptr<ModelSampler> sampler,
                model.make_sampler(params_of(ask, ask.sampling.seed.value_or(fallback_seed))));
  const size_t counted =
      std::min<size_t>(ask.tokens.size(), ask.sampling.repeat_last_n.value_or(kDefaultLastTokens));
  for (const Token token : std::span(ask.tokens).last(counted)) STRATA_TRY(sampler->accept(token, false));
  return sampler;
}

}  // namespace strata
