// A model without arithmetic: after token t it wants (t + 1) mod vocabulary, and it writes down every batch
// it decodes. Failures are scripted. Token vocabulary−1 ends the generation.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/model.hpp"

namespace strata::testing {

class ScriptedModel : public Model {
 public:
  struct Item {
    SlotId slot = 0;
    uint32_t position = 0;
    std::vector<Token> tokens;
    bool want_logits = false;
  };
  using Batch = std::vector<Item>;

  explicit ScriptedModel(uint32_t slots = 4, uint32_t context_tokens = 4096, uint32_t vocabulary = 1000) {
    info_.name = "scripted";
    info_.slots = slots;
    info_.context_tokens = context_tokens;
    info_.vocabulary = vocabulary;
    info_.tokens_per_block = 16;
    info_.max_block_bytes = {16};
    info_.checkpoint_bytes = {0};
    lengths_.resize(slots);
  }

  std::vector<Batch> batches;     // those that succeeded
  std::set<SlotId> broken_slots;  // a batch with one of them fails
  bool fail_next = false;         // the next batch fails, whatever is in it
  std::function<void(const Batch&)> on_decode = [](const Batch&) {};  // of a batch that succeeds

  [[nodiscard]] Token end_token() const { return static_cast<Token>(info_.vocabulary) - 1; }
  void set_length(SlotId slot, uint32_t tokens) { lengths_[static_cast<size_t>(slot)] = tokens; }

  const ModelInfo& info() const override { return info_; }
  Result<std::vector<IdentityField>> identity_fields() override {
    return std::vector<IdentityField>{{"model", "scripted"}};
  }
  Result<std::vector<ModelFile>> files() override { return std::vector<ModelFile>{}; }
  Result<std::vector<Token>> tokenize(std::string_view text, bool, bool) override {
    return std::vector<Token>(text.begin(), text.end());
  }
  Result<std::string> detokenize(std::span<const Token> tokens) override {
    return std::string(tokens.begin(), tokens.end());
  }
  bool is_end_of_generation(Token token) const override { return token == end_token(); }
  std::string chat_template() const override { return ""; }
  Result<std::string> apply_chat_template(std::span<const ChatMessage>, bool) override {
    return std::string();
  }

  Status decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) override;
  uint32_t length(SlotId slot) const override { return lengths_[static_cast<size_t>(slot)]; }
  Status truncate(SlotId slot, uint32_t tokens) override {
    set_length(slot, tokens);
    return {};
  }
  Status clear(SlotId slot) override { return truncate(slot, 0); }

  uint64_t block_bytes(StageId, uint32_t count) const override { return count; }
  Status export_block(SlotId, StageId, uint32_t, uint32_t, std::span<std::byte>, DeviceStream) override {
    return none();
  }
  Result<uint64_t> export_checkpoint(SlotId, StageId, std::span<std::byte>, DeviceStream) override {
    return none();
  }
  Result<ImportId> import_begin(SlotId, std::span<const Token>) override { return none(); }
  Status import_block(ImportId, StageId, uint32_t, uint32_t, std::span<const std::byte>,
                      DeviceStream) override {
    return none();
  }
  Status import_checkpoint(ImportId, StageId, uint32_t, std::span<const std::byte>, DeviceStream) override {
    return none();
  }
  Status import_commit(ImportId) override { return none(); }
  void import_abort(ImportId) override {}

 private:
  static Error none() {
    return make_error(ErrorCode::unsupported, "the scripted model has no state to move");
  }

  ModelInfo info_;
  std::vector<uint32_t> lengths_;
  std::vector<std::vector<float>> logits_;
};

}  // namespace strata::testing
