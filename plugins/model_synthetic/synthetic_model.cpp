#include "plugins/model_synthetic/synthetic_model.hpp"

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "plugins/model_synthetic/next_token.hpp"
#include "plugins/sdk/byte_vocabulary.hpp"
#include "plugins/sdk/failure.hpp"

namespace strata::synthetic {
namespace {

using sdk::raise;

unsigned long long wide(uint64_t value) { return value; }  // for %llu

void check_tokens(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= static_cast<int32_t>(sdk::kVocabulary))
      raise(STRATA_INVALID, "token %d at %zu is not in the vocabulary of %u", tokens[i], i, sdk::kVocabulary);
}

}  // namespace

// The device's memory is not used: there is no state but what follows from the tokens.
void SyntheticModel::bind(const strata_device* /*device*/, strata_instance* /*device_instance*/,
                          int32_t /*index*/) {
  if (options_.vocab_only) raise(STRATA_UNSUPPORTED, "vocab_only: no device can be bound");
  if (!slots_.empty()) raise(STRATA_INVALID, "a device is already bound");
  slots_.assign(options_.slots, Conversation(options_));
}

void SyntheticModel::describe(strata_model_info& info) const {
  const uint32_t size = std::min<uint32_t>(info.struct_size, sizeof info);
  info = strata_model_info{};
  info.struct_size = size;
  info.stages = options_.stages;
  info.slots = options_.slots;
  info.context_tokens = options_.context;
  info.vocabulary = sdk::kVocabulary;
  info.tokens_per_block = options_.tokens_per_block;
  info.staged_imports = kStagedImports;
  info.caps = STRATA_MODEL_STAGED_IMPORT | STRATA_MODEL_EXACT_IMPORT;
  info.caps |= options_.needs_checkpoints() ? STRATA_MODEL_NEEDS_CHECKPOINTS : STRATA_MODEL_CAN_TRUNCATE;
  if (!options_.whole) info.caps |= STRATA_MODEL_STATE_IN_BLOCKS;
  for (uint32_t stage = 0; stage < options_.stages; ++stage) {
    info.max_block_bytes[stage] = synthetic::block_bytes(options_, options_.tokens_per_block);
    info.checkpoint_bytes[stage] = checkpoint_bytes(options_, options_.context);
  }
  std::snprintf(info.name, sizeof info.name, "synthetic %.1f KiB a token", options_.bytes_per_token / 1024.0);
  std::snprintf(info.state_version, sizeof info.state_version, "%s", kStateVersion);
}

// Everything that changes the bytes of the state or what they mean. Not: slots, context, the speed of
// reading.
void SyntheticModel::identity(strata_pair_visitor visit, void* ctx) const {
  const auto field = [&](std::string_view name, std::string_view value) {
    visit(ctx, {name.data(), name.size()}, {value.data(), value.size()});
  };
  const auto number = [&](std::string_view name, uint64_t value) { field(name, std::to_string(value)); };
  field("model", "synthetic");
  field("state_version", kStateVersion);
  field("state", options_.whole ? "whole" : "blocks");
  number("stages", options_.stages);
  number("layers", options_.layers);
  number("bytes_per_token", options_.bytes_per_token);
  number("tokens_per_block", options_.tokens_per_block);
  number("checkpoint_bytes", options_.checkpoint_bytes);
  number("vocabulary", sdk::kVocabulary);
  number("seed", options_.seed);
}

std::vector<int32_t> SyntheticModel::tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const {
  return sdk::tokenize(text, add_special ? sdk::AddBegin::yes : sdk::AddBegin::no,
                       parse_special ? sdk::ParseSpecial::yes : sdk::ParseSpecial::no);
}

std::string SyntheticModel::detokenize(std::span<const int32_t> tokens) const {
  check_tokens(tokens);
  std::string text;
  if (!sdk::detokenize(tokens, text)) raise(STRATA_INTERNAL, "a checked token has no text");
  return text;
}

bool SyntheticModel::ends_generation(int32_t token) const { return sdk::is_end_of_generation(token); }

std::string SyntheticModel::chat_template() const { return std::string(sdk::chat_template()); }

std::string SyntheticModel::apply_chat_template(std::span<const sdk::ChatMessage> messages,
                                                bool add_prompt) const {
  std::vector<sdk::Message> all;
  for (const sdk::ChatMessage& message : messages) all.push_back({message.role, message.content});
  std::string text;
  if (!sdk::render_chat(all, add_prompt ? sdk::GenerationPrompt::yes : sdk::GenerationPrompt::no, text))
    raise(STRATA_INVALID, "message role \"%.40s\" is not known", text.c_str());
  return text;
}

// --- slots

bool SyntheticModel::is_slot(int32_t slot) const {
  return slot >= 0 && static_cast<size_t>(slot) < slots_.size();
}

const Conversation& SyntheticModel::held(int32_t slot) const {
  if (slots_.empty()) raise(STRATA_UNSUPPORTED, "no device is bound: only tokenizer and chat template work");
  if (!is_slot(slot)) raise(STRATA_INVALID, "slot %d does not exist", slot);
  return slots_[static_cast<size_t>(slot)];
}

Conversation& SyntheticModel::held(int32_t slot) {
  return const_cast<Conversation&>(static_cast<const SyntheticModel&>(*this).held(slot));
}

void SyntheticModel::check_item(std::span<const strata_batch_item> items, size_t index) const {
  const strata_batch_item& item = items[index];
  const uint32_t length = held(item.slot).length();
  for (size_t i = 0; i < index; ++i)
    if (items[i].slot == item.slot) raise(STRATA_INVALID, "slot %d is twice in the batch", item.slot);
  if (item.token_count == 0) raise(STRATA_INVALID, "slot %d: no tokens", item.slot);
  if (item.position != length)
    raise(STRATA_INVALID, "slot %d: position %u, but it holds %u tokens", item.slot, item.position, length);
  if (item.token_count > options_.context - length)
    raise(STRATA_INVALID, "slot %d: %u tokens after %u exceed the context of %u", item.slot, item.token_count,
          length, options_.context);
  check_tokens({item.tokens, item.token_count});
}

void SyntheticModel::decode(std::span<const strata_batch_item> items, const float** logits) {
  uint64_t tokens = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    check_item(items, i);
    tokens += items[i].token_count;
  }
  logits_.resize(items.size() * sdk::kVocabulary);
  for (size_t i = 0; i < items.size(); ++i) {
    Conversation& conversation = held(items[i].slot);
    conversation.append({items[i].tokens, items[i].token_count});
    logits[i] = nullptr;
    if (items[i].want_logits == 0) continue;
    const auto row = std::span(logits_).subspan(i * sdk::kVocabulary, sdk::kVocabulary);
    fill_logits(row, conversation.prefix());
    logits[i] = row.data();
  }
  take_time(tokens);
}

// Reading a prompt takes as long as the model is said to need, so that a cache is worth its while.
void SyntheticModel::take_time(uint64_t tokens) const {
  if (options_.tokens_per_second == 0) return;
  constexpr uint64_t kSecondNs = 1'000'000'000;
  const uint64_t ns = tokens * kSecondNs / options_.tokens_per_second;
  timespec left{static_cast<time_t>(ns / kSecondNs), static_cast<long>(ns % kSecondNs)};
  while (nanosleep(&left, &left) != 0) {
  }
}

uint32_t SyntheticModel::length(int32_t slot) const {
  return is_slot(slot) ? slots_[static_cast<size_t>(slot)].length() : 0;
}

void SyntheticModel::truncate(int32_t slot, uint32_t tokens) {
  Conversation& conversation = held(slot);
  const uint32_t length = conversation.length();
  if (tokens > length)
    raise(STRATA_INVALID, "slot %d holds %u tokens and cannot be cut to %u", slot, length, tokens);
  if (options_.needs_checkpoints() && tokens != length && tokens != 0)
    raise(STRATA_UNSUPPORTED, "slot %d: this state exists only at %u tokens and cannot be cut to %u", slot,
          length, tokens);
  conversation.cut(tokens);
}

void SyntheticModel::clear(int32_t slot) { held(slot).cut(0); }

// --- exports

uint64_t SyntheticModel::block_bytes(uint32_t stage, uint32_t count) const {
  return stage < options_.stages ? synthetic::block_bytes(options_, count) : 0;
}

void SyntheticModel::check_stage(uint32_t stage) const {
  if (stage >= options_.stages)
    raise(STRATA_INVALID, "stage %u of %u does not exist", stage, options_.stages);
}

void SyntheticModel::check_range(uint32_t stage, uint32_t first, uint32_t count) const {
  if (options_.whole) raise(STRATA_UNSUPPORTED, "the state has no blocks");
  check_stage(stage);
  if (first % options_.tokens_per_block != 0 || count == 0 || count > options_.tokens_per_block)
    raise(STRATA_INVALID, "tokens [%u, +%u) are not a block of at most %u", first, count,
          options_.tokens_per_block);
}

void SyntheticModel::export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count,
                                  std::span<std::byte> to, void* /*stream*/) const {
  const Conversation& conversation = held(slot);
  check_range(stage, first, count);
  if (uint64_t{first} + count > conversation.length())
    raise(STRATA_INVALID, "block [%u, +%u) ends beyond the slot's %u tokens", first, count,
          conversation.length());
  if (to.size() != block_bytes(stage, count))
    raise(STRATA_INVALID, "block of %u tokens has %llu bytes, not %llu", count,
          wide(block_bytes(stage, count)), wide(to.size()));
  conversation.fill_block(stage, first, count, to);
}

uint64_t SyntheticModel::export_checkpoint(int32_t slot, uint32_t stage, std::span<std::byte> to,
                                           void* /*stream*/) const {
  const Conversation& conversation = held(slot);
  if (!options_.needs_checkpoints()) raise(STRATA_UNSUPPORTED, "the state has no checkpoints");
  check_stage(stage);
  if (conversation.length() == 0) raise(STRATA_INVALID, "slot %d is empty", slot);
  const uint64_t need = checkpoint_bytes(options_, conversation.length());
  if (to.size() < need)
    raise(STRATA_INVALID, "checkpoint has %llu bytes, more than the %llu there is room for", wide(need),
          wide(to.size()));
  conversation.fill_checkpoint(stage, to.first(need));
  return need;
}

// --- imports

uint32_t SyntheticModel::blocks_of(uint32_t tokens) const {
  return (tokens + options_.tokens_per_block - 1) / options_.tokens_per_block;
}

SyntheticModel::Import& SyntheticModel::open_import(uint64_t id) {
  const auto found =
      std::find_if(imports_.begin(), imports_.end(), [id](const Import& open) { return open.id == id; });
  if (found == imports_.end()) raise(STRATA_INVALID, "import %llu is not open", wide(id));
  return *found;
}

uint64_t SyntheticModel::import_begin(int32_t slot, std::span<const int32_t> tokens) {
  (void)held(slot);
  if (tokens.empty() || tokens.size() > options_.context)
    raise(STRATA_INVALID, "import of %zu tokens into a context of %u", tokens.size(), options_.context);
  check_tokens(tokens);
  for (const Import& open : imports_)
    if (open.slot == slot) raise(STRATA_INVALID, "slot %d already has an open import", slot);
  if (imports_.size() == kStagedImports)
    raise(STRATA_UNAVAILABLE, "%u imports are already open", kStagedImports);
  Import import{next_import_, slot, Conversation(options_), {}, {}};
  import.conversation.append(tokens);
  import.blocks.resize(options_.whole ? 0
                                      : size_t{options_.stages} * blocks_of(import.conversation.length()));
  import.checkpoints.resize(options_.stages);
  imports_.push_back(std::move(import));
  return next_import_++;
}

void SyntheticModel::import_block(uint64_t id, uint32_t stage, uint32_t first, uint32_t count,
                                  std::span<const std::byte> from, void* /*stream*/) {
  Import& import = open_import(id);
  check_range(stage, first, count);
  const uint32_t tokens = import.conversation.length();
  if (first >= tokens) raise(STRATA_INVALID, "block at %u lies beyond the import's %u tokens", first, tokens);
  if (from.size() != block_bytes(stage, count))
    raise(STRATA_INVALID, "block of %u tokens has %llu bytes, not %llu", count,
          wide(block_bytes(stage, count)), wide(from.size()));
  uint32_t& came = import.blocks[size_t{stage} * blocks_of(tokens) + first / options_.tokens_per_block];
  came = 0;
  import.conversation.check_block(stage, first, count, from);
  came = std::min(count, tokens - first);
}

void SyntheticModel::import_checkpoint(uint64_t id, uint32_t stage, uint32_t position,
                                       std::span<const std::byte> from, void* /*stream*/) {
  Import& import = open_import(id);
  if (!options_.needs_checkpoints()) raise(STRATA_UNSUPPORTED, "the state has no checkpoints");
  check_stage(stage);
  const uint32_t tokens = import.conversation.length();
  if (position != tokens)
    raise(STRATA_INVALID, "checkpoint at %u, but the import ends at %u", position, tokens);
  const uint64_t need = checkpoint_bytes(options_, position);
  if (from.size() != need)
    raise(STRATA_INVALID, "checkpoint at %u has %llu bytes, not %llu", position, wide(need),
          wide(from.size()));
  import.checkpoints[stage] = 0;
  import.conversation.check_checkpoint(stage, from);
  import.checkpoints[stage] = 1;
}

void SyntheticModel::check_complete(const Import& import) const {
  const uint32_t tokens = import.conversation.length();
  const uint32_t per_stage = blocks_of(tokens);
  for (size_t i = 0; i < import.blocks.size(); ++i) {
    const uint32_t first = static_cast<uint32_t>(i % per_stage) * options_.tokens_per_block;
    const uint32_t need = std::min(options_.tokens_per_block, tokens - first);
    if (import.blocks[i] < need)
      raise(STRATA_INVALID, "stage %zu: %u of the %u tokens from %u are missing", i / per_stage,
            need - import.blocks[i], need, first);
  }
  for (size_t stage = 0; stage < import.checkpoints.size(); ++stage)
    if (options_.needs_checkpoints() && import.checkpoints[stage] == 0)
      raise(STRATA_INVALID, "stage %zu: the checkpoint at %u is missing", stage, tokens);
}

// An import that is not complete is over too.
void SyntheticModel::import_commit(uint64_t id) {
  Import import = std::move(open_import(id));
  import_abort(id);
  check_complete(import);
  held(import.slot) = std::move(import.conversation);
}

void SyntheticModel::import_abort(uint64_t id) {
  std::erase_if(imports_, [id](const Import& open) { return open.id == id; });
}

}  // namespace strata::synthetic
