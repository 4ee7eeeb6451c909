// One instance of the reference model: what the functions of the table work on.
// With vocab_only, and before a device is bound, there is no state: `store` and `network` are null.
#pragma once

#include <memory>
#include <vector>

#include "plugins/abi/strata_model.h"
#include "plugins/model_reference/options.hpp"
#include "plugins/model_reference/slot_store.hpp"
#include "plugins/model_reference/state_layout.hpp"
#include "plugins/model_reference/transformer.hpp"

namespace strata::reference {

struct Instance {
  explicit Instance(const Options& chosen) : options(chosen), layout(chosen) {}

  strata_status bind(const strata_device* device, strata_instance* device_instance, int32_t index,
                     strata_error* error);
  // All items are checked before the first is computed: on an error no slot has changed.
  strata_status decode(std::span<const strata_batch_item> items, const float** results, strata_error* error);
  strata_status truncate(int32_t slot, uint32_t tokens, strata_error* error);
  strata_status clear(int32_t slot, strata_error* error);
  void describe(strata_model_info& info) const;
  void identity(strata_pair_visitor visit, void* ctx) const;

  // UNSUPPORTED without a device.
  strata_status check_bound(strata_error* error) const;

  const Options options;
  const StateLayout layout;
  std::unique_ptr<SlotStore> store;
  std::unique_ptr<Transformer> network;

 private:
  strata_status check_item(std::span<const strata_batch_item> items, size_t index, strata_error* error) const;

  std::vector<float> logits_;
  std::vector<Row> rows_;
};

// The first token outside the vocabulary is INVALID.
strata_status check_tokens(std::span<const int32_t> tokens, strata_error* error);

}  // namespace strata::reference
