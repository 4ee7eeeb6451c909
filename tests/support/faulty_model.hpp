// A Model that fails on demand: the n-th call of one kind, before it reaches the model inside. With no fault
// set it must be indistinguishable from the model inside. A commit that fails aborts its import, as the
// contract says. Does not own the model inside. One thread at a time.
#pragma once

#include <array>
#include <optional>

#include "core/model.hpp"

namespace strata::testing {

enum class ModelCall : uint8_t {
  tokenize,
  detokenize,
  apply_chat_template,
  decode,
  truncate,
  clear,
  export_block,
  export_checkpoint,
  import_begin,
  import_block,
  import_checkpoint,
  import_commit,
  count  // how many kinds there are
};

struct ModelFault {
  ModelCall call = ModelCall::decode;
  uint64_t at = 0;  // n-th call of that kind from now on; 0: none
  bool from_then_on = false;
  Error error{ErrorCode::io, 0, "injected fault"};
};

class FaultyModel final : public Model {
 public:
  explicit FaultyModel(Model& inner) : inner_(inner) {}

  void set_fault(const ModelFault& fault);  // counting starts again
  [[nodiscard]] uint64_t injected() const { return injected_; }
  [[nodiscard]] uint64_t calls(ModelCall call) const { return calls_[static_cast<size_t>(call)]; }

  // From now on info() says that imports are not staged; they are all the same.
  void say_not_staged() {
    info_ = inner_.info();
    info_->staged_import = false;
  }

  [[nodiscard]] const ModelInfo& info() const override { return info_ ? *info_ : inner_.info(); }
  Result<std::vector<IdentityField>> identity_fields() override { return inner_.identity_fields(); }
  Result<std::vector<ModelFile>> files() override { return inner_.files(); }
  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special, bool parse_special) override;
  Result<std::string> detokenize(std::span<const Token> tokens) override;
  [[nodiscard]] bool is_end_of_generation(Token token) const override {
    return inner_.is_end_of_generation(token);
  }
  [[nodiscard]] std::string chat_template() const override { return inner_.chat_template(); }
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          bool add_generation_prompt) override;
  Status decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) override;
  [[nodiscard]] uint32_t length(SlotId slot) const override { return inner_.length(slot); }
  Status truncate(SlotId slot, uint32_t tokens) override;
  Status clear(SlotId slot) override;
  [[nodiscard]] uint64_t block_bytes(StageId stage, uint32_t count) const override {
    return inner_.block_bytes(stage, count);
  }
  Status export_block(SlotId slot, StageId stage, uint32_t first, uint32_t count, std::span<std::byte> to,
                      DeviceStream stream) override;
  Result<uint64_t> export_checkpoint(SlotId slot, StageId stage, std::span<std::byte> to,
                                     DeviceStream stream) override;
  Result<ImportId> import_begin(SlotId slot, std::span<const Token> tokens) override;
  Status import_block(ImportId import, StageId stage, uint32_t first, uint32_t count,
                      std::span<const std::byte> from, DeviceStream stream) override;
  Status import_checkpoint(ImportId import, StageId stage, uint32_t position, std::span<const std::byte> from,
                           DeviceStream stream) override;
  Status import_commit(ImportId import) override;
  void import_abort(ImportId import) override { inner_.import_abort(import); }

 private:
  [[nodiscard]] bool fails(ModelCall call);

  Model& inner_;
  std::optional<ModelInfo> info_;
  ModelFault fault_;
  std::array<uint64_t, static_cast<size_t>(ModelCall::count)> calls_{};
  uint64_t injected_ = 0;
};

}  // namespace strata::testing
