// A llama.cpp context of this plugin: unified cache, scratch sequence, sequences for slots and for staged
// imports. One thread at a time; throws Failure.
#pragma once

#include <span>
#include <vector>

#include "plugins/model_llama/handles.hpp"
#include "plugins/model_llama/loaded_model.hpp"
#include "plugins/model_llama/options.hpp"

namespace strata::llama {

struct ContextShape {
  uint32_t cells = 0;      // tokens over all sequences
  uint32_t sequences = 0;  // with the scratch sequence
  uint32_t outputs = 1;    // rows of logits of one decode
};

[[nodiscard]] ContextHandle make_context(const LoadedModel& model, const Options& options,
                                         const ContextShape& shape);

// Tokens for one decode, in the order they are added. Reused between decodes.
class Batch {
 public:
  void clear();
  void add(int32_t token, uint32_t position, llama_seq_id sequence, bool want_logits);
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  [[nodiscard]] llama_batch view();

 private:
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<int32_t> counts_;
  std::vector<llama_seq_id> sequences_;
  std::vector<llama_seq_id*> sequence_views_;
  std::vector<int8_t> logits_;
};

}  // namespace strata::llama
