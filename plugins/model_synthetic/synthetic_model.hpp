// The synthetic model: slots, staged imports and next tokens as sdk::ModelTable wants them. Failures are
// thrown (plugins/sdk/failure.hpp) and leave everything as it was. Copies are made at once: nothing is ever
// queued on a stream. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/abi/strata_model.h"
#include "plugins/model_synthetic/conversation.hpp"
#include "plugins/model_synthetic/options.hpp"
#include "plugins/sdk/model_table.hpp"

namespace strata::synthetic {

class SyntheticModel {
 public:
  explicit SyntheticModel(const strata_host* host) : options_(read_options(host)) {}
  SyntheticModel(const SyntheticModel&) = delete;
  SyntheticModel& operator=(const SyntheticModel&) = delete;

  void bind(const strata_device* device, strata_instance* device_instance, int32_t index);
  void describe(strata_model_info& info) const;
  void identity(strata_pair_visitor visit, void* ctx) const;
  void files(strata_pair_visitor /*visit*/, void* /*ctx*/) const {}

  std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string detokenize(std::span<const int32_t> tokens) const;
  bool ends_generation(int32_t token) const;
  std::string chat_template() const;
  std::string apply_chat_template(std::span<const sdk::ChatMessage> messages, bool add_prompt) const;

  // All items are checked before the first is read: on a failure no slot has changed.
  void decode(std::span<const strata_batch_item> items, const float** logits);
  uint32_t length(int32_t slot) const;
  void truncate(int32_t slot, uint32_t tokens);
  void clear(int32_t slot);

  uint64_t block_bytes(uint32_t stage, uint32_t count) const;
  void export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count, std::span<std::byte> to,
                    void* stream) const;
  uint64_t export_checkpoint(int32_t slot, uint32_t stage, std::span<std::byte> to, void* stream) const;
  uint64_t import_begin(int32_t slot, std::span<const int32_t> tokens);
  void import_block(uint64_t import, uint32_t stage, uint32_t first, uint32_t count,
                    std::span<const std::byte> from, void* stream);
  void import_checkpoint(uint64_t import, uint32_t stage, uint32_t position, std::span<const std::byte> from,
                         void* stream);
  void import_commit(uint64_t import);
  void import_abort(uint64_t import);

 private:
  struct Import {
    uint64_t id = 0;
    int32_t slot = 0;
    Conversation conversation;         // of the tokens, which the parts must agree with
    std::vector<uint32_t> blocks;      // [stage][block]: tokens that came
    std::vector<uint8_t> checkpoints;  // per stage
  };

  [[nodiscard]] bool is_slot(int32_t slot) const;
  [[nodiscard]] const Conversation& held(int32_t slot) const;
  [[nodiscard]] Conversation& held(int32_t slot);
  [[nodiscard]] Import& open_import(uint64_t import);
  [[nodiscard]] uint32_t blocks_of(uint32_t tokens) const;
  void check_item(std::span<const strata_batch_item> items, size_t index) const;
  void check_range(uint32_t stage, uint32_t first, uint32_t count) const;
  void check_stage(uint32_t stage) const;
  void check_complete(const Import& import) const;
  void take_time(uint64_t tokens) const;

  const Options options_;
  std::vector<Conversation> slots_;  // empty until a device is bound
  std::vector<Import> imports_;
  uint64_t next_import_ = 1;
  std::vector<float> logits_;
};

}  // namespace strata::synthetic
