#include "plugins/model_llama/context.hpp"

#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/library.hpp"

namespace strata::llama {

ContextHandle make_context(const LoadedModel& model, const Options& options, const ContextShape& shape) {
  llama_context_params wanted = llama_context_default_params();
  wanted.n_ctx = shape.cells;
  wanted.n_batch = shape.cells;  // one decode takes whatever the slots can hold
  wanted.n_ubatch = std::min(options.pass_tokens, shape.cells);
  wanted.n_seq_max = shape.sequences;
  wanted.n_outputs_max = shape.outputs;
  wanted.n_threads = static_cast<int32_t>(options.threads);
  wanted.n_threads_batch = static_cast<int32_t>(options.threads);
  wanted.flash_attn_type = static_cast<llama_flash_attn_type>(options.flash_attention);
  wanted.type_k = options.keys;
  wanted.type_v = options.values;
  wanted.no_perf = true;
  wanted.kv_unified = true;
  wanted.swa_full = false;
  forget_complaint();
  ContextHandle context(llama_init_from_model(model.get(), wanted));
  if (context == nullptr) {
    const std::string said = complaint();
    raise_said(STRATA_EXHAUSTED,
               "model " + sdk::end_of_path(model.name(), sdk::kLeastPath) + ": no context of " +
                   std::to_string(shape.cells) + " tokens",
               said.empty() ? "llama.cpp cannot make one" : said.c_str());
  }
  if (llama_get_memory(context.get()) == nullptr)
    raise(STRATA_UNSUPPORTED, "model %.100s: it keeps no state between tokens", model.name().c_str());
  model.adapt(context.get());
  return context;
}

void Batch::clear() {
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  logits_.clear();
}

void Batch::add(int32_t token, uint32_t position, llama_seq_id sequence, bool want_logits) {
  tokens_.push_back(token);
  positions_.push_back(static_cast<llama_pos>(position));
  sequences_.push_back(sequence);
  logits_.push_back(want_logits ? 1 : 0);
}

llama_batch Batch::view() {
  counts_.assign(tokens_.size(), 1);
  sequence_views_.resize(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) sequence_views_[i] = &sequences_[i];
  llama_batch batch = {};
  batch.n_tokens = size();
  batch.token = tokens_.data();
  batch.pos = positions_.data();
  batch.n_seq_id = counts_.data();
  batch.seq_id = sequence_views_.data();
  batch.logits = logits_.data();
  return batch;
}

}  // namespace strata::llama
