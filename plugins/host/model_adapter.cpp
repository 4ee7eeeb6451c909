#include "plugins/host/model_adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/limits.hpp"
#include "plugins/host/abi_error.hpp"

namespace strata {
namespace {

strata_text to_abi(std::string_view text) { return {text.data(), text.size()}; }

std::string to_string(strata_text text) {
  return text.length == 0 ? std::string() : std::string(text.data, text.length);
}

// A fixed field of the info, zero-terminated or full.
template <size_t kSize>
std::string bounded(const char (&text)[kSize]) {
  return {text, strnlen(text, kSize)};
}

Error refused(const strata_model& table, const std::string& why) {
  return make_error(ErrorCode::invalid, fmt::format("model plugin {}: {}", table.plugin.name, why));
}

// Plugins of ABI 1.0 end here.
constexpr size_t kTableBytes1_0 = offsetof(strata_model, import_abort) + sizeof(strata_model::import_abort);

// Functions of later minor versions: there when the table is long enough.
template <class Function>
bool has(const strata_model& table, Function strata_model::*member) {
  const auto* const begin = reinterpret_cast<const char*>(&table);
  const auto* const end = reinterpret_cast<const char*>(&(table.*member)) + sizeof(Function);
  return table.plugin.struct_size >= static_cast<size_t>(end - begin) && table.*member != nullptr;
}

bool declares(const strata_model& table, uint64_t capability) {
  return ((table.plugin.caps_optional | table.plugin.caps_required) & capability) != 0;
}

Status check_functions(const strata_model& table) {
  if (table.plugin.struct_size < kTableBytes1_0) return refused(table, "table is too small");
  const bool complete = table.bind_device && table.info && table.identity_fields && table.files &&
                        table.chat_template && table.apply_chat_template && table.decode && table.length &&
                        table.truncate && table.clear && table.block_bytes && table.export_block &&
                        table.export_checkpoint && table.import_begin && table.import_block &&
                        table.import_checkpoint && table.import_commit && table.import_abort;
  if (!complete) return refused(table, "a function is missing");
  const bool tokenizer = table.tokenize && table.detokenize && table.is_end_of_generation;
  if ((table.plugin.caps_optional & STRATA_MODEL_CAP_TOKENIZER) != 0 && !tokenizer)
    return refused(table, "declares a tokenizer without its functions");
  if (declares(table, STRATA_MODEL_CAP_CHAT) &&
      !(has(table, &strata_model::chat_format) && has(table, &strata_model::chat_parse)))
    return refused(table, "declares chat without its functions");
  const bool sampling =
      has(table, &strata_model::sampler_create) && has(table, &strata_model::sampler_sample) &&
      has(table, &strata_model::sampler_accept) && has(table, &strata_model::sampler_destroy);
  if (declares(table, STRATA_MODEL_CAP_SAMPLING) && !sampling)
    return refused(table, "declares sampling without its functions");
  return {};
}

Status check_counts(const strata_model& table, const ModelInfo& info) {
  const auto within = [&](const char* what, uint64_t value, uint64_t least, uint64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return refused(table, fmt::format("{} is {}, not {} to {}", what, value, least, most));
  };
  STRATA_TRY(within("stages", info.stages, 1, limits::kMaxStages));
  STRATA_TRY(within("slots", info.slots, 1, limits::kMaxSlots));
  STRATA_TRY(within("context_tokens", info.context_tokens, 1, limits::kMaxTokens));
  STRATA_TRY(within("vocabulary", info.vocabulary, 1, INT32_MAX));
  STRATA_TRY(within("staged_imports", info.staged_imports, info.staged_import ? 1 : 0, limits::kMaxSlots));
  return {};
}

Status check_state(const strata_model& table, const ModelInfo& info) {
  for (uint32_t stage = 0; stage < info.stages; ++stage) {
    if (info.state_in_blocks &&
        (info.max_block_bytes[stage] == 0 || info.max_block_bytes[stage] > limits::kMaxPartBytes))
      return refused(table, fmt::format("a block of stage {} has {} bytes, the limit is {}", stage,
                                        info.max_block_bytes[stage], limits::kMaxPartBytes));
    if (info.checkpoint_bytes[stage] > limits::kMaxCheckpointBytes)
      return refused(table, fmt::format("a checkpoint of stage {} has {} bytes, the limit is {}", stage,
                                        info.checkpoint_bytes[stage], limits::kMaxCheckpointBytes));
  }
  if (info.state_in_blocks && info.tokens_per_block == 0) return refused(table, "blocks of no tokens");
  const bool checkpoints = std::any_of(info.checkpoint_bytes.begin(), info.checkpoint_bytes.end(),
                                       [](uint64_t bytes) { return bytes != 0; });
  if (info.needs_checkpoints && !checkpoints) return refused(table, "needs checkpoints and has none");
  if (!info.state_in_blocks && !info.needs_checkpoints)
    return refused(table, "has its state neither in blocks nor in checkpoints");
  return {};
}

ModelInfo to_info(const strata_model& table, const strata_model_info& raw) {
  ModelInfo info;
  info.name = bounded(raw.name);
  info.state_version = bounded(raw.state_version);
  info.stages = raw.stages;
  info.slots = raw.slots;
  info.context_tokens = raw.context_tokens;
  info.vocabulary = raw.vocabulary;
  info.tokens_per_block = raw.tokens_per_block;
  info.parameters = raw.parameters;
  info.weight_bytes = raw.weight_bytes;
  const size_t stages = std::min<size_t>(raw.stages, STRATA_MODEL_MAX_STAGES);
  info.max_block_bytes.assign(raw.max_block_bytes, raw.max_block_bytes + stages);
  info.checkpoint_bytes.assign(raw.checkpoint_bytes, raw.checkpoint_bytes + stages);
  info.staged_imports = raw.staged_imports;
  info.can_truncate = (raw.caps & STRATA_MODEL_CAN_TRUNCATE) != 0;
  info.needs_checkpoints = (raw.caps & STRATA_MODEL_NEEDS_CHECKPOINTS) != 0;
  info.state_in_blocks = (raw.caps & STRATA_MODEL_STATE_IN_BLOCKS) != 0;
  info.staged_import = (raw.caps & STRATA_MODEL_STAGED_IMPORT) != 0;
  info.exact_import = (raw.caps & STRATA_MODEL_EXACT_IMPORT) != 0;
  info.chat = declares(table, STRATA_MODEL_CAP_CHAT);
  info.sampling = declares(table, STRATA_MODEL_CAP_SAMPLING);
  info.tokenizer = (table.plugin.caps_optional & STRATA_MODEL_CAP_TOKENIZER) != 0;
  return info;
}

class AdaptedModel final : public Model {
 public:
  AdaptedModel(const strata_model* table, strata_instance* instance) : table_(table), instance_(instance) {}
  ~AdaptedModel() override { table_->plugin.destroy(instance_); }
  AdaptedModel(const AdaptedModel&) = delete;
  AdaptedModel& operator=(const AdaptedModel&) = delete;

  Status start(const strata_device* device, strata_instance* device_instance, int32_t device_index);

  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  Result<std::vector<IdentityField>> identity_fields() override;
  Result<std::vector<ModelFile>> files() override;

  Result<std::vector<Token>> tokenize(std::string_view text, bool add_special, bool parse_special) override;
  Result<std::string> detokenize(std::span<const Token> tokens) override;
  [[nodiscard]] bool is_end_of_generation(Token token) const override;
  [[nodiscard]] std::string chat_template() const override;
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          bool add_generation_prompt) override;
  Result<ChatPrompt> chat_format(const std::string& request_json) override;
  Result<std::string> chat_parse(const std::string& parser, std::string_view text, bool final) override;
  Result<std::unique_ptr<ModelSampler>> make_sampler(const std::string& params_json) override;

  Status decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) override;
  [[nodiscard]] uint32_t length(SlotId slot) const override { return table_->length(instance_, slot); }
  Status truncate(SlotId slot, uint32_t tokens) override;
  Status clear(SlotId slot) override;

  [[nodiscard]] uint64_t block_bytes(StageId stage, uint32_t count) const override {
    return table_->block_bytes(instance_, stage, count);
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
  void import_abort(ImportId import) override { table_->import_abort(instance_, import); }

 private:
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  static void collect(void* pairs, strata_text first, strata_text second);

  const strata_model* table_;
  strata_instance* instance_;
  ModelInfo info_;
  std::vector<strata_batch_item> items_;
  std::vector<const float*> results_;
};

Status AdaptedModel::start(const strata_device* device, strata_instance* device_instance,
                           int32_t device_index) {
  STRATA_TRY(check_functions(*table_));
  strata_error error = empty_abi_error();
  if (device != nullptr) {
    const strata_status bound = table_->bind_device(instance_, device, device_instance, device_index, &error);
    STRATA_TRY(from_abi(bound, error, "model: bind device"));
  }
  strata_model_info raw = {};
  raw.struct_size = sizeof raw;
  STRATA_TRY(from_abi(table_->info(instance_, &raw, &error), error, "model: info"));
  info_ = to_info(*table_, raw);
  STRATA_TRY(check_counts(*table_, info_));
  return check_state(*table_, info_);
}

void AdaptedModel::collect(void* pairs, strata_text first, strata_text second) {
  static_cast<Pairs*>(pairs)->emplace_back(to_string(first), to_string(second));
}

Result<std::vector<IdentityField>> AdaptedModel::identity_fields() {
  Pairs pairs;
  strata_error error = empty_abi_error();
  STRATA_TRY(from_abi(table_->identity_fields(instance_, collect, &pairs, &error), error, "model: identity"));
  std::vector<IdentityField> fields;
  for (auto& [name, value] : pairs) fields.push_back({std::move(name), std::move(value)});
  return fields;
}

Result<std::vector<ModelFile>> AdaptedModel::files() {
  Pairs pairs;
  strata_error error = empty_abi_error();
  STRATA_TRY(from_abi(table_->files(instance_, collect, &pairs, &error), error, "model: files"));
  std::vector<ModelFile> all;
  for (auto& [role, path] : pairs) all.push_back({std::move(role), std::move(path)});
  return all;
}

// Calls f(data, capacity, &size) with room for `guess`, and once more when the answer is longer.
template <class Container, class Size, class Function>
Result<Container> sized(Size guess, const char* what, Function&& f) {
  Container out;
  out.resize(guess);
  for (int attempt = 0; attempt < 2; ++attempt) {
    Size size = 0;
    strata_error error = empty_abi_error();
    STRATA_TRY(from_abi(f(out.data(), static_cast<Size>(out.size()), &size, &error), error, what));
    const bool fits = size <= out.size();
    out.resize(size);
    if (fits) return out;
  }
  return make_error(ErrorCode::internal,
                    std::string(what) + ": the answer's length changed between two calls");
}

Error no_tokenizer() { return make_error(ErrorCode::unsupported, "model: this model has no tokenizer"); }

Result<std::vector<Token>> AdaptedModel::tokenize(std::string_view text, bool add_special,
                                                  bool parse_special) {
  if (!info_.tokenizer) return no_tokenizer();
  if (text.size() >= UINT32_MAX) return make_error(ErrorCode::invalid, "model: tokenize: text is too long");
  return sized<std::vector<Token>>(
      static_cast<uint32_t>(text.size()) + 1, "model: tokenize",
      [&](Token* tokens, uint32_t capacity, uint32_t* count, strata_error* error) {
        return table_->tokenize(instance_, to_abi(text), add_special ? 1 : 0, parse_special ? 1 : 0, tokens,
                                capacity, count, error);
      });
}

Result<std::string> AdaptedModel::detokenize(std::span<const Token> tokens) {
  if (!info_.tokenizer) return no_tokenizer();
  return sized<std::string>(uint64_t{tokens.size()} * 8, "model: detokenize",
                            [&](char* text, uint64_t capacity, uint64_t* length, strata_error* error) {
                              return table_->detokenize(instance_, tokens.data(),
                                                        static_cast<uint32_t>(tokens.size()), text, capacity,
                                                        length, error);
                            });
}

bool AdaptedModel::is_end_of_generation(Token token) const {
  return info_.tokenizer && table_->is_end_of_generation(instance_, token) != 0;
}

std::string AdaptedModel::chat_template() const {
  return sized<std::string>(uint64_t{4096}, "model: chat template",
                            [&](char* text, uint64_t capacity, uint64_t* length, strata_error* error) {
                              return table_->chat_template(instance_, text, capacity, length, error);
                            })
      .value_or(std::string());  // only shown to people
}

Result<std::string> AdaptedModel::apply_chat_template(std::span<const ChatMessage> messages,
                                                      bool add_generation_prompt) {
  std::vector<strata_chat_message> views;
  uint64_t guess = 64;
  for (const ChatMessage& message : messages) {
    views.push_back({to_abi(message.role), to_abi(message.content)});
    guess += message.content.size() + message.content.size() / 16 + 64;
  }
  return sized<std::string>(guess, "model: chat template",
                            [&](char* text, uint64_t capacity, uint64_t* length, strata_error* error) {
                              return table_->apply_chat_template(
                                  instance_, views.data(), static_cast<uint32_t>(views.size()),
                                  add_generation_prompt ? 1 : 0, text, capacity, length, error);
                            });
}

void take_chat_pair(void* ctx, strata_text key, strata_text value) {
  auto& chat = *static_cast<ChatPrompt*>(ctx);
  const std::string name = to_string(key);
  if (name == "prompt") chat.prompt = to_string(value);
  if (name == "stop") chat.stops.push_back(to_string(value));
  if (name == "grammar") chat.grammar = to_string(value);
  if (name == "grammar_lazy") chat.grammar_lazy = to_string(value) == "1";
  if (name == "parser") chat.parser = to_string(value);
}

Result<ChatPrompt> AdaptedModel::chat_format(const std::string& request_json) {
  if (!info_.chat) return Model::chat_format(request_json);
  ChatPrompt chat;
  strata_error error = empty_abi_error();
  STRATA_TRY(from_abi(table_->chat_format(instance_, to_abi(request_json), take_chat_pair, &chat, &error),
                      error, "model: chat format"));
  return chat;
}

Result<std::string> AdaptedModel::chat_parse(const std::string& parser, std::string_view text, bool final) {
  if (!info_.chat) return Model::chat_parse(parser, text, final);
  return sized<std::string>(uint64_t{text.size()} * 2 + 1024, "model: chat parse",
                            [&](char* json, uint64_t capacity, uint64_t* length, strata_error* error) {
                              return table_->chat_parse(instance_, to_abi(parser), to_abi(text),
                                                        final ? 1 : 0, json, capacity, length, error);
                            });
}

class AdaptedSampler final : public ModelSampler {
 public:
  AdaptedSampler(const strata_model* table, strata_instance* instance, strata_sampler* sampler)
      : table_(table), instance_(instance), sampler_(sampler) {}
  ~AdaptedSampler() override { table_->sampler_destroy(instance_, sampler_); }
  AdaptedSampler(const AdaptedSampler&) = delete;
  AdaptedSampler& operator=(const AdaptedSampler&) = delete;

  Result<Token> sample(SlotId slot) override {
    Token token = 0;
    strata_error error = empty_abi_error();
    STRATA_TRY(
        from_abi(table_->sampler_sample(instance_, sampler_, slot, &token, &error), error, "model: sample"));
    return token;
  }
  Status accept(Token token, bool generated) override {
    strata_error error = empty_abi_error();
    return from_abi(table_->sampler_accept(instance_, sampler_, token, generated ? 1 : 0, &error), error,
                    "model: sampler");
  }

 private:
  const strata_model* table_;
  strata_instance* instance_;
  strata_sampler* sampler_;
};

Result<std::unique_ptr<ModelSampler>> AdaptedModel::make_sampler(const std::string& params_json) {
  if (!info_.sampling) return Model::make_sampler(params_json);
  strata_error error = empty_abi_error();
  strata_sampler* sampler = nullptr;
  STRATA_TRY(from_abi(table_->sampler_create(instance_, to_abi(params_json), &sampler, &error), error,
                      "model: sampler"));
  return std::unique_ptr<ModelSampler>(std::make_unique<AdaptedSampler>(table_, instance_, sampler));
}

Status AdaptedModel::decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) {
  items_.clear();
  for (const BatchItem& item : batch)
    items_.push_back({item.slot, item.position, static_cast<uint32_t>(item.tokens.size()),
                      item.want_logits ? 1U : 0U, item.tokens.data()});
  results_.assign(batch.size(), nullptr);
  strata_error error = empty_abi_error();
  const strata_status status =
      table_->decode(instance_, items_.data(), static_cast<uint32_t>(items_.size()), results_.data(), &error);
  STRATA_TRY(from_abi(status, error, "model: decode"));
  logits.assign(batch.size(), {});
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].want_logits) continue;
    if (results_[i] == nullptr) return make_error(ErrorCode::internal, "model: decode: logits are missing");
    logits[i] = {results_[i], info_.vocabulary};
  }
  return {};
}

Status AdaptedModel::truncate(SlotId slot, uint32_t tokens) {
  strata_error error = empty_abi_error();
  return from_abi(table_->truncate(instance_, slot, tokens, &error), error, "model: truncate");
}

Status AdaptedModel::clear(SlotId slot) {
  strata_error error = empty_abi_error();
  return from_abi(table_->clear(instance_, slot, &error), error, "model: clear");
}

Status AdaptedModel::export_block(SlotId slot, StageId stage, uint32_t first, uint32_t count,
                                  std::span<std::byte> to, DeviceStream stream) {
  strata_error error = empty_abi_error();
  return from_abi(
      table_->export_block(instance_, slot, stage, first, count, to.data(), to.size(), stream.handle, &error),
      error, "model: export block");
}

Result<uint64_t> AdaptedModel::export_checkpoint(SlotId slot, StageId stage, std::span<std::byte> to,
                                                 DeviceStream stream) {
  strata_error error = empty_abi_error();
  uint64_t bytes = 0;
  const strata_status status =
      table_->export_checkpoint(instance_, slot, stage, to.data(), to.size(), stream.handle, &bytes, &error);
  STRATA_TRY(from_abi(status, error, "model: export checkpoint"));
  if (bytes > to.size())
    return make_error(ErrorCode::internal, "model: export checkpoint: wrote beyond its room");
  return bytes;
}

Result<ImportId> AdaptedModel::import_begin(SlotId slot, std::span<const Token> tokens) {
  strata_error error = empty_abi_error();
  uint64_t import = 0;
  const strata_status status = table_->import_begin(instance_, slot, tokens.data(),
                                                    static_cast<uint32_t>(tokens.size()), &import, &error);
  STRATA_TRY(from_abi(status, error, "model: begin import"));
  return import;
}

Status AdaptedModel::import_block(ImportId import, StageId stage, uint32_t first, uint32_t count,
                                  std::span<const std::byte> from, DeviceStream stream) {
  strata_error error = empty_abi_error();
  return from_abi(table_->import_block(instance_, import, stage, first, count, from.data(), from.size(),
                                       stream.handle, &error),
                  error, "model: import block");
}

Status AdaptedModel::import_checkpoint(ImportId import, StageId stage, uint32_t position,
                                       std::span<const std::byte> from, DeviceStream stream) {
  strata_error error = empty_abi_error();
  return from_abi(table_->import_checkpoint(instance_, import, stage, position, from.data(), from.size(),
                                            stream.handle, &error),
                  error, "model: import checkpoint");
}

Status AdaptedModel::import_commit(ImportId import) {
  strata_error error = empty_abi_error();
  return from_abi(table_->import_commit(instance_, import, &error), error, "model: commit import");
}

}  // namespace

Result<std::unique_ptr<Model>> adapt_model(const strata_model* table, strata_instance* instance,
                                           const strata_device* device, strata_instance* device_instance,
                                           int32_t device_index) {
  auto model = std::make_unique<AdaptedModel>(table, instance);
  STRATA_TRY(model->start(device, device_instance, device_index));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace strata
