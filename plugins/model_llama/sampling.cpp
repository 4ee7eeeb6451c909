#include "plugins/model_llama/sampling.hpp"

#include <common.h>
#include <json.h>

#include <sampling.h>

#include "plugins/model_llama/failure.hpp"

namespace strata::llama {

struct RequestSampler::Parts {
  common_sampler_ptr sampler;
};

namespace {

template <class Number>
void take(const common_json& params, const char* key, Number& value) {
  if (!params.contains(key)) return;
  if (!params.at(key).is_number()) raise(STRATA_INVALID, "sampling: %s is not a number", key);
  value = static_cast<Number>(params.at(key).get<double>());
}

// Words that are one token, as the grammar's triggers are wanted.
void add_trigger(const LoadedModel& model, const common_json& entry, common_params_sampling& wanted) {
  common_grammar_trigger trigger;
  trigger.type = static_cast<common_grammar_trigger_type>(entry.at("type").get<int>());
  trigger.value = entry.at("value").get<std::string>();
  trigger.token = entry.at("token").get<int>();
  if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
    const auto tokens = model.tokenize(trigger.value, false, true);
    if (tokens.size() == 1 && wanted.preserved_tokens.contains(tokens.front())) {
      trigger.type = COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN;
      trigger.token = tokens.front();
    }
  }
  wanted.grammar_triggers.push_back(std::move(trigger));
}

void take_grammar(const LoadedModel& model, const std::string& text, common_params_sampling& wanted) {
  if (text.empty()) return;
  if (text.front() != '{') {
    wanted.grammar = common_grammar(COMMON_GRAMMAR_TYPE_USER, text);
    return;
  }
  const common_json grammar = common_json::parse(text);
  const auto type = grammar.at("own").get<bool>() ? COMMON_GRAMMAR_TYPE_USER : COMMON_GRAMMAR_TYPE_TOOL_CALLS;
  wanted.grammar = common_grammar(type, grammar.at("text").get<std::string>());
  wanted.grammar_lazy = grammar.at("lazy").get<bool>();
  wanted.generation_prompt = grammar.at("seen").get<std::string>();
  const common_json& preserved = grammar.at("preserved");
  for (size_t i = 0; i < preserved.size(); ++i) {
    const auto tokens = model.tokenize(preserved.at(i).get<std::string>(), false, true);
    if (tokens.size() == 1) wanted.preserved_tokens.insert(tokens.front());
  }
  const common_json& triggers = grammar.at("triggers");
  for (size_t i = 0; i < triggers.size(); ++i) add_trigger(model, triggers.at(i), wanted);
}

void take_bias(const LoadedModel& model, const common_json& params, common_params_sampling& wanted) {
  if (!params.contains("logit_bias")) return;
  const common_json& list = params.at("logit_bias");
  for (size_t i = 0; i < list.size(); ++i) {
    const int token = list.at(i).at(size_t{0}).get<int>();
    model.check_tokens(&token, 1);
    wanted.logit_bias.push_back({token, static_cast<float>(list.at(i).at(size_t{1}).get<double>())});
  }
}

common_params_sampling params_of(const LoadedModel& model, const std::string& text) {
  const common_json params = common_json::parse(text.empty() ? "{}" : text);
  common_params_sampling wanted;
  wanted.temp = 0;
  wanted.top_k = 0;
  wanted.top_p = 1;
  wanted.min_p = 0;
  wanted.no_perf = true;
  take(params, "temperature", wanted.temp);
  take(params, "top_k", wanted.top_k);
  take(params, "top_p", wanted.top_p);
  take(params, "min_p", wanted.min_p);
  take(params, "seed", wanted.seed);
  take(params, "repeat_penalty", wanted.penalty_repeat);
  take(params, "presence_penalty", wanted.penalty_present);
  take(params, "frequency_penalty", wanted.penalty_freq);
  take(params, "repeat_last_n", wanted.penalty_last_n);
  wanted.penalty_last_n = std::clamp(wanted.penalty_last_n, 0, 1 << 16);
  take_bias(model, params, wanted);
  if (params.contains("grammar")) take_grammar(model, params.at("grammar").get<std::string>(), wanted);
  return wanted;
}

}  // namespace

RequestSampler::RequestSampler(const LoadedModel& model, const std::string& params_json)
    : parts_(std::make_unique<Parts>()) {
  try {
    common_params_sampling wanted = params_of(model, params_json);
    parts_->sampler.reset(common_sampler_init(model.get(), wanted));
  } catch (const Failure&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    raise_said(STRATA_INVALID, "sampling", problem.what());
  }
  if (parts_->sampler == nullptr) raise(STRATA_INVALID, "sampling: the grammar cannot be used");
}

RequestSampler::~RequestSampler() = default;

int32_t RequestSampler::sample(const Slots& slots, int32_t slot) {
  const int32_t row = slots.logits_row(slot);
  if (row < 0) raise(STRATA_INVALID, "slot %d has no logits of the last decode", slot);
  return common_sampler_sample(parts_->sampler.get(), slots.context(), row);
}

void RequestSampler::accept(int32_t token, bool generated) {
  common_sampler_accept(parts_->sampler.get(), token, generated);
}

}  // namespace strata::llama
