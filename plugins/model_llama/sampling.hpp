// One request's sampler: llama-common's chain with an optional grammar. Borrows the model. Throws Failure.
// One thread.
#pragma once

#include <memory>
#include <string>

#include "plugins/model_llama/slots.hpp"

namespace strata::llama {

class RequestSampler {
 public:
  // Keys: temperature top_k top_p min_p seed repeat_penalty presence_penalty frequency_penalty repeat_last_n
  // logit_bias ([[token, bias], …]) grammar (GBNF, or what Chat::format gave). No temperature: greedy.
  RequestSampler(const LoadedModel& model, const std::string& params_json);
  ~RequestSampler();
  RequestSampler(const RequestSampler&) = delete;
  RequestSampler& operator=(const RequestSampler&) = delete;

  // From the logits that the last decode gave this slot.
  [[nodiscard]] int32_t sample(const Slots& slots, int32_t slot);
  // A token that stands in the conversation now. generated: it was sampled here, so the grammar moves with
  // it.
  void accept(int32_t token, bool generated);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata::llama
