#include "tests/support/scripted_model.hpp"

namespace strata::testing {

Status ScriptedModel::decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) {
  if (std::exchange(fail_next, false)) return make_error(ErrorCode::io, "scripted failure");
  for (const BatchItem& item : batch) {
    if (broken_slots.contains(item.slot))
      return make_error(ErrorCode::io, "slot " + std::to_string(item.slot) + " is broken");
    if (item.position != length(item.slot))
      return make_error(ErrorCode::invalid, "position is not the slot's length");
    if (item.position + item.tokens.size() > info_.context_tokens)
      return make_error(ErrorCode::exhausted, "context full");
  }
  Batch seen;
  logits_.assign(batch.size(), {});
  logits.assign(batch.size(), {});
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchItem& item = batch[i];
    seen.push_back({item.slot, item.position, {item.tokens.begin(), item.tokens.end()}, item.want_logits});
    lengths_[static_cast<size_t>(item.slot)] += static_cast<uint32_t>(item.tokens.size());
    if (!item.want_logits) continue;
    logits_[i].assign(info_.vocabulary, 0.0F);
    logits_[i][static_cast<size_t>(item.tokens.back() + 1) % info_.vocabulary] = 10.0F;
    logits[i] = logits_[i];
  }
  on_decode(seen);
  batches.push_back(std::move(seen));
  return {};
}

}  // namespace strata::testing
