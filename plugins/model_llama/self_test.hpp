// What can be done with this model's state, found out by doing it when the model is loaded: a short random
// prompt is read, taken out, put into another sequence, and both go on; every bit of their logits is
// compared. Uses a small context of its own. Throws Failure when the model cannot decode at all. One thread.
#pragma once

#include <string>

#include "plugins/model_llama/loaded_model.hpp"
#include "plugins/model_llama/sequence_state.hpp"

namespace strata::llama {

struct StateAbilities {
  StateLayout layout;
  bool blocks = false;    // else the state is whole
  bool exact = false;     // logits were equal, bit for bit
  std::string why_whole;  // where blocks were wanted and are not possible
  [[nodiscard]] bool needs_checkpoints() const { return !blocks || layout.has_side(); }
};

[[nodiscard]] StateAbilities test_state(const LoadedModel& model, const Options& options);

}  // namespace strata::llama
