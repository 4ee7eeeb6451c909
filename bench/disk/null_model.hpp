// A model that takes every import and keeps nothing: with it a restore is the fetch alone. One thread.
#pragma once

#include <string>
#include <vector>

#include "core/model.hpp"

namespace strata::bench {

class NullModel final : public Model {
 public:
  explicit NullModel(uint64_t block_bytes) {
    info_.max_block_bytes = {block_bytes};
    info_.checkpoint_bytes = {0};
    info_.tokens_per_block = 1;
  }
  [[nodiscard]] uint64_t imported_bytes() const { return imported_bytes_; }

  const ModelInfo& info() const override { return info_; }
  Result<std::vector<IdentityField>> identity_fields() override { return std::vector<IdentityField>{}; }
  Result<std::vector<ModelFile>> files() override { return std::vector<ModelFile>{}; }
  Result<std::vector<Token>> tokenize(std::string_view, bool, bool) override { return none(); }
  Result<std::string> detokenize(std::span<const Token>) override { return none(); }
  bool is_end_of_generation(Token) const override { return false; }
  std::string chat_template() const override { return ""; }
  Result<std::string> apply_chat_template(std::span<const ChatMessage>, bool) override { return none(); }
  Status decode(std::span<const BatchItem>, std::vector<std::span<const float>>&) override { return none(); }
  uint32_t length(SlotId) const override { return 0; }
  Status truncate(SlotId, uint32_t) override { return none(); }
  Status clear(SlotId) override { return {}; }
  uint64_t block_bytes(StageId, uint32_t) const override { return info_.max_block_bytes[0]; }
  Status export_block(SlotId, StageId, uint32_t, uint32_t, std::span<std::byte>, DeviceStream) override {
    return none();
  }
  Result<uint64_t> export_checkpoint(SlotId, StageId, std::span<std::byte>, DeviceStream) override {
    return none();
  }
  Result<ImportId> import_begin(SlotId, std::span<const Token>) override { return ImportId{1}; }
  Status import_block(ImportId, StageId, uint32_t, uint32_t, std::span<const std::byte> from,
                      DeviceStream) override {
    imported_bytes_ += from.size();
    return {};
  }
  Status import_checkpoint(ImportId, StageId, uint32_t, std::span<const std::byte>, DeviceStream) override {
    return none();
  }
  Status import_commit(ImportId) override { return {}; }
  void import_abort(ImportId) override {}

 private:
  static Error none() { return make_error(ErrorCode::unsupported, "the null model only takes imports"); }

  ModelInfo info_;
  uint64_t imported_bytes_ = 0;
};

}  // namespace strata::bench
