#include "tests/support/faulty_model.hpp"

namespace strata::testing {

void FaultyModel::set_fault(const ModelFault& fault) {
  fault_ = fault;
  calls_.fill(0);
}

bool FaultyModel::fails(ModelCall call) {
  const uint64_t number = ++calls_[static_cast<size_t>(call)];
  const bool injected = fault_.at != 0 && call == fault_.call &&
                        (number == fault_.at || (fault_.from_then_on && number > fault_.at));
  injected_ += injected ? 1 : 0;
  return injected;
}

Result<std::vector<Token>> FaultyModel::tokenize(std::string_view text, bool add_special,
                                                 bool parse_special) {
  if (fails(ModelCall::tokenize)) return fault_.error;
  return inner_.tokenize(text, add_special, parse_special);
}

Result<std::string> FaultyModel::detokenize(std::span<const Token> tokens) {
  if (fails(ModelCall::detokenize)) return fault_.error;
  return inner_.detokenize(tokens);
}

Result<std::string> FaultyModel::apply_chat_template(std::span<const ChatMessage> messages,
                                                     bool add_generation_prompt) {
  if (fails(ModelCall::apply_chat_template)) return fault_.error;
  return inner_.apply_chat_template(messages, add_generation_prompt);
}

Status FaultyModel::decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) {
  if (fails(ModelCall::decode)) return fault_.error;
  return inner_.decode(batch, logits);
}

Status FaultyModel::truncate(SlotId slot, uint32_t tokens) {
  if (fails(ModelCall::truncate)) return fault_.error;
  return inner_.truncate(slot, tokens);
}

Status FaultyModel::clear(SlotId slot) {
  if (fails(ModelCall::clear)) return fault_.error;
  return inner_.clear(slot);
}

Status FaultyModel::export_block(SlotId slot, StageId stage, uint32_t first, uint32_t count,
                                 std::span<std::byte> to, DeviceStream stream) {
  if (fails(ModelCall::export_block)) return fault_.error;
  return inner_.export_block(slot, stage, first, count, to, stream);
}

Result<uint64_t> FaultyModel::export_checkpoint(SlotId slot, StageId stage, std::span<std::byte> to,
                                                DeviceStream stream) {
  if (fails(ModelCall::export_checkpoint)) return fault_.error;
  return inner_.export_checkpoint(slot, stage, to, stream);
}

Result<ImportId> FaultyModel::import_begin(SlotId slot, std::span<const Token> tokens) {
  if (fails(ModelCall::import_begin)) return fault_.error;
  return inner_.import_begin(slot, tokens);
}

Status FaultyModel::import_block(ImportId import, StageId stage, uint32_t first, uint32_t count,
                                 std::span<const std::byte> from, DeviceStream stream) {
  if (fails(ModelCall::import_block)) return fault_.error;
  return inner_.import_block(import, stage, first, count, from, stream);
}

Status FaultyModel::import_checkpoint(ImportId import, StageId stage, uint32_t position,
                                      std::span<const std::byte> from, DeviceStream stream) {
  if (fails(ModelCall::import_checkpoint)) return fault_.error;
  return inner_.import_checkpoint(import, stage, position, from, stream);
}

Status FaultyModel::import_commit(ImportId import) {
  if (!fails(ModelCall::import_commit)) return inner_.import_commit(import);
  inner_.import_abort(import);
  return fault_.error;
}

}  // namespace strata::testing
