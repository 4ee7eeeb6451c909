#include "plugins/model_reference/instance.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "plugins/model_reference/failure.hpp"
#include "plugins/model_reference/vocabulary.hpp"

namespace strata::reference {

strata_status Instance::check_bound(strata_error* error) const {
  if (store != nullptr) return STRATA_OK;
  return fail(error, STRATA_UNSUPPORTED, "no device is bound: only tokenizer and chat template work");
}

strata_status Instance::bind(const strata_device* device, strata_instance* device_instance, int32_t index,
                             strata_error* error) {
  if (options.vocab_only) return fail(error, STRATA_UNSUPPORTED, "vocab_only: no device can be bound");
  if (store != nullptr) return fail(error, STRATA_INVALID, "a device is already bound");
  BoundDevice bound(device, device_instance, index);
  if (const strata_status status = bound.check(error); status != STRATA_OK) return status;
  auto made = std::make_unique<SlotStore>(options, layout, std::move(bound));
  if (const strata_status status = made->allocate(error); status != STRATA_OK) return status;
  network = std::make_unique<Transformer>(options, layout, best_kernels());
  store = std::move(made);
  return STRATA_OK;
}

strata_status check_tokens(std::span<const int32_t> tokens, strata_error* error) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= static_cast<int32_t>(kVocabulary))
      return fail(error, STRATA_INVALID, "token %d at %zu is not in the vocabulary of %u", tokens[i], i,
                  kVocabulary);
  return STRATA_OK;
}

strata_status Instance::check_item(std::span<const strata_batch_item> items, size_t index,
                                   strata_error* error) const {
  const strata_batch_item& item = items[index];
  if (!store->is_slot(item.slot)) return fail(error, STRATA_INVALID, "slot %d does not exist", item.slot);
  for (size_t i = 0; i < index; ++i)
    if (items[i].slot == item.slot)
      return fail(error, STRATA_INVALID, "slot %d is twice in the batch", item.slot);
  if (item.token_count == 0) return fail(error, STRATA_INVALID, "slot %d: no tokens", item.slot);
  const uint32_t length = store->length(item.slot);
  if (item.position != length)
    return fail(error, STRATA_INVALID, "slot %d: position %u, but it holds %u tokens", item.slot,
                item.position, length);
  if (item.token_count > options.context - length)
    return fail(error, STRATA_INVALID, "slot %d: %u tokens after %u exceed the context of %u", item.slot,
                item.token_count, length, options.context);
  return check_tokens({item.tokens, item.token_count}, error);
}

strata_status Instance::decode(std::span<const strata_batch_item> items, const float** results,
                               strata_error* error) {
  if (const strata_status status = check_bound(error); status != STRATA_OK) return status;
  size_t rows = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (const strata_status status = check_item(items, i, error); status != STRATA_OK) return status;
    rows += items[i].token_count;
  }
  logits_.resize(items.size() * kVocabulary);
  rows_.clear();
  rows_.reserve(rows);
  for (size_t i = 0; i < items.size(); ++i) {
    const strata_batch_item& item = items[i];
    for (uint32_t t = 0; t < item.token_count; ++t)
      rows_.push_back({store->region(item.slot), item.position + t, item.tokens[t], nullptr});
    results[i] = item.want_logits != 0 ? &logits_[i * kVocabulary] : nullptr;
    if (item.want_logits != 0) rows_.back().logits = &logits_[i * kVocabulary];
  }
  network->run(rows_);
  for (const strata_batch_item& item : items) store->set_length(item.slot, item.position + item.token_count);
  return STRATA_OK;
}

// Keys of the tokens that remain are all an attention layer needs. A window has lost what was before it and a
// recurrent state cannot be run backwards, so there only the trivial cuts work. With whole state stored
// images cannot be cut either, and saying so for live slots too keeps one rule for both.
strata_status Instance::truncate(int32_t slot, uint32_t tokens, strata_error* error) {
  if (const strata_status status = check_bound(error); status != STRATA_OK) return status;
  if (!store->is_slot(slot)) return fail(error, STRATA_INVALID, "slot %d does not exist", slot);
  const uint32_t length = store->length(slot);
  if (tokens > length)
    return fail(error, STRATA_INVALID, "slot %d holds %u tokens and cannot be cut to %u", slot, length,
                tokens);
  if (options.needs_checkpoints() && tokens != length && tokens != 0)
    return fail(error, STRATA_UNSUPPORTED,
                "slot %d: this state exists only at %u tokens and cannot be cut to %u", slot, length, tokens);
  store->set_length(slot, tokens);
  return STRATA_OK;
}

strata_status Instance::clear(int32_t slot, strata_error* error) {
  if (const strata_status status = check_bound(error); status != STRATA_OK) return status;
  if (!store->is_slot(slot)) return fail(error, STRATA_INVALID, "slot %d does not exist", slot);
  store->set_length(slot, 0);
  return STRATA_OK;
}

void Instance::describe(strata_model_info& info) const {
  const uint32_t size = std::min<uint32_t>(info.struct_size, sizeof info);
  info = strata_model_info{};
  info.struct_size = size;
  info.stages = options.stages;
  info.slots = options.slots;
  info.context_tokens = options.context;
  info.vocabulary = kVocabulary;
  info.tokens_per_block = options.tokens_per_block;
  info.staged_imports = kStagedImports;
  info.caps = STRATA_MODEL_STAGED_IMPORT | STRATA_MODEL_EXACT_IMPORT;
  info.caps |= options.needs_checkpoints() ? STRATA_MODEL_NEEDS_CHECKPOINTS : STRATA_MODEL_CAN_TRUNCATE;
  if (!options.whole) info.caps |= STRATA_MODEL_STATE_IN_BLOCKS;
  info.parameters = Weights::parameters(options);
  info.weight_bytes = info.parameters * sizeof(float);
  for (uint32_t stage = 0; stage < options.stages; ++stage) {
    info.max_block_bytes[stage] = layout.block_bytes(options.tokens_per_block);
    info.checkpoint_bytes[stage] = options.needs_checkpoints() ? layout.checkpoint_bytes(options.context) : 0;
  }
  std::snprintf(info.name, sizeof info.name, "reference %s %.1fM", to_string(options.layout),
                static_cast<double>(info.parameters) / 1e6);
  std::snprintf(info.state_version, sizeof info.state_version, "%s", kStateVersion);
}

// Everything that changes the bytes of the state or what they mean. Not: slots, context, threads.
void Instance::identity(strata_pair_visitor visit, void* ctx) const {
  const auto field = [&](const char* name, const std::string& value) {
    visit(ctx, {name, std::char_traits<char>::length(name)}, {value.data(), value.size()});
  };
  const auto number = [&](const char* name, uint64_t value) { field(name, std::to_string(value)); };
  field("model", "reference");
  field("state_version", kStateVersion);
  field("layout", to_string(options.layout));
  field("state", options.whole ? "whole" : "blocks");
  field("state_type", "f32");
  number("stages", options.stages);
  number("layers", options.layers);
  number("dim", options.dim);
  number("heads", options.heads);
  number("kv_heads", options.kv_heads);
  number("ffn", options.ffn);
  number("window", options.layout == Layout::sliding ? options.window : 0);
  number("tokens_per_block", options.tokens_per_block);
  number("rope_base", static_cast<uint64_t>(kRopeBase));
  number("vocabulary", kVocabulary);
  number("seed", options.seed);
}

}  // namespace strata::reference
