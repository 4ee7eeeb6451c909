// A vocabulary without a model: one token a byte, token 256 ends an answer, a template whose output for fewer
// messages is a beginning of its output for more of them. For tests of the server process.
#pragma once

#include <string>
#include <vector>

#include "core/model.hpp"

namespace strata::test {

class ByteVocabulary : public Model {
 public:
  static constexpr Token kEnd = 256;

  ByteVocabulary() {
    info_.name = "bytes";
    info_.vocabulary = 257;
    info_.parameters = 1000;
    info_.weight_bytes = 4000;
  }

  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  Result<std::vector<IdentityField>> identity_fields() override { return std::vector<IdentityField>(); }
  Result<std::vector<ModelFile>> files() override { return std::vector<ModelFile>(); }

  Result<std::vector<Token>> tokenize(std::string_view text, bool, bool) override {
    std::vector<Token> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  Result<std::string> detokenize(std::span<const Token> tokens) override {
    std::string bytes;
    for (const Token token : tokens) {
      if (token < 0 || token > kEnd)
        return make_error(ErrorCode::invalid, "a token is not in the vocabulary");
      if (token < kEnd) bytes += static_cast<char>(token);
    }
    return bytes;
  }
  [[nodiscard]] bool is_end_of_generation(Token token) const override { return token == kEnd; }
  [[nodiscard]] std::string chat_template() const override { return "<role>\\ncontent\\n"; }
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          bool add_generation_prompt) override {
    std::string text;
    for (const ChatMessage& message : messages) text += "<" + message.role + ">\n" + message.content + "\n";
    return add_generation_prompt ? text + "<assistant>\n" : text;
  }

  Status decode(std::span<const BatchItem>, std::vector<std::span<const float>>&) override { return none(); }
  [[nodiscard]] uint32_t length(SlotId) const override { return 0; }
  Status truncate(SlotId, uint32_t) override { return none(); }
  Status clear(SlotId) override { return none(); }
  [[nodiscard]] uint64_t block_bytes(StageId, uint32_t) const override { return 0; }
  Status export_block(SlotId, StageId, uint32_t, uint32_t, std::span<std::byte>, DeviceStream) override {
    return none();
  }
  Result<uint64_t> export_checkpoint(SlotId, StageId, std::span<std::byte>, DeviceStream) override {
    return none().error();
  }
  Result<ImportId> import_begin(SlotId, std::span<const Token>) override { return none().error(); }
  Status import_block(ImportId, StageId, uint32_t, uint32_t, std::span<const std::byte>,
                      DeviceStream) override {
    return none();
  }
  Status import_checkpoint(ImportId, StageId, uint32_t, std::span<const std::byte>, DeviceStream) override {
    return none();
  }
  Status import_commit(ImportId) override { return none(); }
  void import_abort(ImportId) override {}

 protected:
  ModelInfo info_;

 private:
  static Status none() { return make_error(ErrorCode::unsupported, "a vocabulary has no state"); }
};

}  // namespace strata::test
