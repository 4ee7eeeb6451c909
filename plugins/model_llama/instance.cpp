#include "plugins/model_llama/instance.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/library.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::llama {
namespace {

constexpr const char* kStateVersion = "llama-1";
constexpr uint64_t kMaxBlockBytes = uint64_t{16} << 20;
constexpr uint32_t kUnknownContext = 4096;  // of a model whose file does not say
constexpr uint32_t kLeastContext = 2048;    // a context nobody asked for is not made smaller than this

unsigned long long mib(uint64_t bytes) { return bytes >> 20; }

uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (uint64_t kib = 0; file >> name >> kib; file.ignore(64, '\n'))
    if (name == "MemAvailable:") return kib << 10;
  return UINT64_MAX;
}

}  // namespace

Instance::Instance(const strata_host* host, const Options& options)
    : host_(host), options_(options), model_((start_library(host), options)) {}

Instance::~Instance() { leave_library(host_); }

Slots& Instance::slots() {
  if (slots_ == nullptr) raise(STRATA_UNSUPPORTED, "no device is bound: only tokenizer and chat work");
  return *slots_;
}

Chat& Instance::chat() {
  if (chat_ == nullptr) chat_ = std::make_unique<Chat>(model_);
  return *chat_;
}

// Exports and imports are copies by this processor, done when the call returns, so every event recorded after
// them is true at once; memory that only the device can read is out of reach.
void Instance::bind(const strata_device* device, strata_instance* device_instance, int32_t index) {
  if (options_.vocab_only) raise(STRATA_UNSUPPORTED, "vocab_only: no device can be bound");
  if (slots_ != nullptr) raise(STRATA_INVALID, "a device is already bound");
  strata_device_info info = {};
  info.struct_size = sizeof info;
  strata_error error = {};
  if (device->info(device_instance, index, &info, &error) != STRATA_OK)
    raise(STRATA_UNAVAILABLE, "%s", error.message);
  abilities_ = test_state(model_, options_);
  choose_block();
  choose_context();
  say_how_state_is_kept();
  slots_ =
      std::make_unique<Slots>(model_, options_, abilities_, context_, tokens_per_block_, adds_up_alike());
}

void Instance::choose_block() {
  if (!abilities_.blocks) {
    tokens_per_block_ = 1;
    return;
  }
  const PartSize& block = abilities_.layout.block;
  if (options_.tokens_per_block != 0) {
    tokens_per_block_ = options_.tokens_per_block;
    if (block.of(tokens_per_block_) > kMaxBlockBytes)
      raise(STRATA_INVALID, "option tokens_per_block: %u makes blocks above 16 MiB", tokens_per_block_);
    return;
  }
  while (tokens_per_block_ > 1 && block.of(tokens_per_block_) > kMaxBlockBytes) tokens_per_block_ /= 2;
}

void Instance::choose_context() {
  const uint32_t trained = model_.trained_context() != 0 ? model_.trained_context() : kUnknownContext;
  context_ = options_.context != 0 ? options_.context : trained;
  // What the context is, the model's info says; a host that asked for more refuses there.
  if (model_.positions_are_learned()) context_ = std::min(context_, trained);
  const uint64_t available = available_memory();
  if (options_.context == 0) {
    while (context_ / 2 >= kLeastContext && cache_bytes(context_) > available / 2) context_ /= 2;
    if (context_ < trained)
      sdk::log(host_, STRATA_LOG_WARNING,
               "strata: model: context lowered from " + std::to_string(trained) + " to " +
                   std::to_string(context_) + " tokens, as memory allows; see --context");
  }
  if (cache_bytes(context_) > available)
    raise(STRATA_EXHAUSTED,
          "model %.60s: %u slots of %u tokens need %llu MiB, %llu MiB are available; see --context",
          model_.name().c_str(), options_.slots, context_, mib(cache_bytes(context_)), mib(available));
}

uint64_t Instance::cache_bytes(uint32_t context_tokens) const {
  const StateLayout& layout = abilities_.layout;
  const uint64_t by_token = layout.has_blocks() ? layout.block.per_token : layout.whole.per_token;
  const ContextShape shape = shape_of(options_, abilities_, context_tokens, tokens_per_block_);
  return by_token * shape.cells + layout.side.base * shape.sequences;
}

void Instance::say_how_state_is_kept() const {
  if (abilities_.blocks) {
    if (!abilities_.exact)
      sdk::log(host_, STRATA_LOG_WARNING,
               "strata: model: put back from blocks its next token differs in the last bits");
    return;
  }
  const std::string why = options_.granularity == Granularity::whole ? "as asked for" : abilities_.why_whole;
  sdk::log(host_, STRATA_LOG_WARNING,
           "strata: model: state=whole: " + why + "; conversations are kept whole");
}

uint64_t Instance::side_limit() const {
  const auto window = static_cast<uint32_t>(std::max(0, llama_model_n_swa(model_.get())));
  return window == 0 ? context_ : std::min(context_, window + 1);
}

uint64_t Instance::checkpoint_limit() const {
  if (!abilities_.needs_checkpoints()) return 0;
  const StateLayout& layout = abilities_.layout;
  if (abilities_.blocks) return layout.side.of(side_limit());
  return layout.whole.of(context_) - layout.side.per_token * (context_ - side_limit());
}

// Sums round alike wherever in the cache a conversation lies, as long as its cells keep their order. Not
// where several threads share the cache of a token between them, which they do from 512 cells on, at borders
// that depend on how full it is.
bool Instance::adds_up_alike() const {
  constexpr uint32_t kSharedCells = 512;
  const bool shared = options_.threads > 1 &&
                      shape_of(options_, abilities_, context_, tokens_per_block_).cells >= kSharedCells;
  return abilities_.exact && !shared;
}

// A window's cache that is smaller than the whole goes round, and has another order then.
bool Instance::keeps_order() const {
  const ContextShape shape = shape_of(options_, abilities_, context_, tokens_per_block_);
  const auto window = static_cast<uint32_t>(std::max(0, llama_model_n_swa(model_.get())));
  return window == 0 || window * shape.sequences + options_.pass_tokens >= shape.cells;
}

void Instance::describe(strata_model_info& info) const {
  const uint32_t size = std::min<uint32_t>(info.struct_size, sizeof info);
  info = strata_model_info{};
  info.struct_size = size;
  info.stages = 1;
  info.slots = options_.slots;
  info.context_tokens = slots_ != nullptr ? context_ : std::max(1U, model_.trained_context());
  info.vocabulary = model_.vocabulary_size();
  info.tokens_per_block = tokens_per_block_;
  info.staged_imports = options_.staged_imports;
  info.caps = STRATA_MODEL_STAGED_IMPORT;
  info.parameters = llama_model_n_params(model_.get());
  info.weight_bytes = llama_model_size(model_.get());
  if (slots_ == nullptr) {  // vocab_only: no state is ever moved
    info.caps |= STRATA_MODEL_NEEDS_CHECKPOINTS;
    info.checkpoint_bytes[0] = 1;
  } else {
    if (adds_up_alike() && keeps_order()) info.caps |= STRATA_MODEL_EXACT_IMPORT;
    info.caps |= abilities_.needs_checkpoints() ? STRATA_MODEL_NEEDS_CHECKPOINTS : STRATA_MODEL_CAN_TRUNCATE;
    if (abilities_.blocks) info.caps |= STRATA_MODEL_STATE_IN_BLOCKS;
    info.max_block_bytes[0] = abilities_.blocks ? abilities_.layout.block.of(tokens_per_block_) : 0;
    info.checkpoint_bytes[0] = checkpoint_limit();
  }
  std::snprintf(info.name, sizeof info.name, "%s", model_.name().c_str());
  std::snprintf(info.state_version, sizeof info.state_version, "%s", kStateVersion);
}

// Everything that changes the bytes of the state or what they mean. Not: slots, context, threads.
void Instance::identity(strata_pair_visitor visit, void* ctx) const {
  const auto field = [&](const char* name, const std::string& value) {
    visit(ctx, {name, std::char_traits<char>::length(name)}, {value.data(), value.size()});
  };
  const auto number = [&](const char* name, uint64_t value) { field(name, std::to_string(value)); };
  const StateLayout& layout = abilities_.layout;
  field("model", "llama.cpp");
  field("library", std::string(llama_version()) + " ggml " + ggml_version() + " " + ggml_commit());
  field("state_version", kStateVersion);
  field("architecture", model_.architecture());
  field("state", abilities_.blocks ? "blocks" : "whole");
  field("cache_type_k", ggml_type_name(options_.keys));
  field("cache_type_v", ggml_type_name(options_.values));
  field("flash_attn", std::to_string(static_cast<int>(options_.flash_attention)));
  number("layers", static_cast<uint64_t>(std::max(0, llama_model_n_layer(model_.get()))));
  number("heads", static_cast<uint64_t>(std::max(0, llama_model_n_head(model_.get()))));
  number("kv_heads", static_cast<uint64_t>(std::max(0, llama_model_n_head_kv(model_.get()))));
  number("window", static_cast<uint64_t>(std::max(0, llama_model_n_swa(model_.get()))));
  number("block_base", layout.block.base);
  number("block_per_token", layout.block.per_token);
  number("side_base", layout.side.base);
  number("whole_per_token", layout.whole.per_token);
  if (llama_supports_gpu_offload()) field("n_gpu_layers", std::to_string(options_.gpu_layers));
  if (!options_.adapters.empty()) field("lora_scale", std::to_string(options_.adapter_scale));
}

void Instance::files(strata_pair_visitor visit, void* ctx) const {
  const auto file = [&](const std::string& role, const std::string& path) {
    visit(ctx, {role.data(), role.size()}, {path.data(), path.size()});
  };
  file("model", options_.path);
  for (size_t i = 0; i < options_.adapters.size(); ++i)
    file("adapter " + std::to_string(i), options_.adapters[i]);
}

}  // namespace strata::llama
