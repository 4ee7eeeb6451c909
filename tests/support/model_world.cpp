#include "tests/support/model_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/check.hpp"
#include "plugins/host/model_adapter.hpp"

extern "C" const strata_plugin* strata_plugin_entry_v1_model_reference(uint32_t kind);

namespace strata::testing {
namespace {

template <class T>
void put(std::ofstream& out, const std::vector<T>& values) {
  const uint64_t count = values.size();
  out.write(reinterpret_cast<const char*>(&count), sizeof count);
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
}

template <class T>
bool get(std::ifstream& in, std::vector<T>& values) {
  uint64_t count = 0;
  if (!in.read(reinterpret_cast<char*>(&count), sizeof count) || count > (uint64_t{1} << 24)) return false;
  values.resize(count);
  return static_cast<bool>(
      in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(T))));
}

}  // namespace

PluginOptions tiny_reference(const std::string& layout, uint32_t stages, const std::string& state) {
  return {{"layout", layout}, {"stages", std::to_string(stages)},
          {"state", state},   {"layers", "4"},
          {"dim", "32"},      {"heads", "2"},
          {"kv_heads", "1"},  {"ffn", "32"},
          {"window", "24"},   {"slots", "3"},
          {"context", "256"}, {"tokens_per_block", "16"},
          {"threads", "2"}};
}

const char* to_string(SyntheticState state) {
  switch (state) {
    case SyntheticState::blocks:
      return "blocks";
    case SyntheticState::checkpoints:
      return "checkpoints";
    case SyntheticState::whole:
      return "whole";
  }
  return "blocks";
}

ModelWorldOptions tiny_synthetic(uint32_t stages, SyntheticState state) {
  ModelWorldOptions options;
  options.plugin = "synthetic";
  options.model = {{"stages", std::to_string(stages)},
                   {"state", state == SyntheticState::whole ? "whole" : "blocks"},
                   {"layers", "4"},
                   {"bytes_per_token", "256"},
                   {"checkpoint_bytes", state == SyntheticState::checkpoints ? "8208" : "0"},
                   {"slots", "3"},
                   {"context", "256"},
                   {"tokens_per_block", "16"},
                   {"tokens_per_second", "0"}};
  return options;
}

namespace {

LlamaModels find_llama_models() {
  LlamaModels found;
#ifdef STRATA_MODEL_LLAMA
  found.plugin_file = STRATA_MODEL_LLAMA;
#else
  found.why_not = "the build found no llama.cpp: tools/install_deps llama brings it";
  return found;
#endif
  const char* shared = std::getenv("STRATA_SHARED");
  const std::filesystem::path folder =
      std::filesystem::path(shared != nullptr ? shared : STRATA_SOURCE_DIR "/../shared") / "models";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".gguf") found.files.push_back(entry.path());
  std::ranges::sort(found.files);
  if (found.files.empty())
    found.why_not = "no model files in " + folder.string() + " (STRATA_SHARED names its parent)";
  return found;
}

}  // namespace

const LlamaModels& llama_models() {
  static const LlamaModels found = find_llama_models();
  return found;
}

std::string real_llama_model(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const bool named = cache != nullptr && *cache != '\0';
  const std::string root = named ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  const std::string file = root + "/strata/models/" + name;
  return std::filesystem::exists(file) ? file : std::string();
}

ModelWorldOptions tiny_llama(const std::string& file, const std::string& granularity) {
  ModelWorldOptions options;
  options.plugin = "llama";
  options.tokens_at_once = 1;
  options.plugin_file = llama_models().plugin_file;
  options.model = {{"path", file},     {"state_granularity", granularity}, {"slots", "3"},
                   {"context", "256"}, {"tokens_per_block", "16"},         {"threads", "1"}};
  return options;
}

Result<std::unique_ptr<Model>> make_reference_on(PlainDevice& device, const HostContext& context) {
  const auto* table =
      reinterpret_cast<const strata_model*>(strata_plugin_entry_v1_model_reference(STRATA_KIND_MODEL));
  strata_instance* instance = nullptr;
  strata_error error = {};
  if (table->plugin.create(context.abi(), &instance, &error) != STRATA_OK)
    return make_error(ErrorCode::invalid, error.message);
  return adapt_model(table, instance, device.table(), device.instance(), 0);
}

bool write_state(const std::string& path, const StoredState& state) {
  std::ofstream out(path, std::ios::binary);
  put(out, state.tokens);
  put(out, std::vector<uint64_t>{state.blocks.size(), state.checkpoints.size()});
  for (const auto& stage : state.blocks) {
    put(out, std::vector<uint64_t>{stage.size()});
    for (const auto& block : stage) put(out, block);
  }
  for (const auto& checkpoint : state.checkpoints) put(out, checkpoint);
  return static_cast<bool>(out.flush());
}

bool read_state(const std::string& path, StoredState& state) {
  std::ifstream in(path, std::ios::binary);
  std::vector<uint64_t> counts;
  if (!get(in, state.tokens) || !get(in, counts) || counts.size() != 2) return false;
  state.blocks.resize(counts[0]);
  state.checkpoints.resize(counts[1]);
  for (auto& stage : state.blocks) {
    if (!get(in, counts) || counts.size() != 1) return false;
    stage.resize(counts[0]);
    for (auto& block : stage)
      if (!get(in, block)) return false;
  }
  for (auto& checkpoint : state.checkpoints)
    if (!get(in, checkpoint)) return false;
  return true;
}

bool write_trace(const std::string& path, const Trace& trace) {
  std::ofstream out(path, std::ios::binary);
  put(out, std::vector<uint64_t>{trace.size()});
  for (const auto& logits : trace) put(out, logits);
  return static_cast<bool>(out.flush());
}

bool read_trace(const std::string& path, Trace& trace) {
  std::ifstream in(path, std::ios::binary);
  std::vector<uint64_t> count;
  if (!get(in, count) || count.size() != 1) return false;
  trace.resize(count[0]);
  for (auto& logits : trace)
    if (!get(in, logits)) return false;
  return true;
}

bool equal_bits(const Trace& a, const Trace& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

bool all_finite(const Trace& trace) {
  for (const auto& logits : trace)
    for (const float value : logits)
      if (!std::isfinite(value)) return false;
  return true;
}

std::vector<Token> some_tokens(uint64_t seed, uint32_t count) {
  std::vector<Token> tokens(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (Token& token : tokens) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<Token>(32 + (state >> 33) % 90);
  }
  return tokens;
}

ModelWorld::ModelWorld(const ModelWorldOptions& options) : tokens_at_once_(options.tokens_at_once) {
  if (!options.plugin_file.empty()) {
    const Status loaded = plugins_.registry.load(installed_plugin(options.plugin_file));
    STRATA_CHECK(loaded.ok());
  }
  if (options.device == TestDevice::host) {
    auto device = plugins_.registry.make_device(
        "host", {{"device_host.poison", "1"}, {"device_host.seed", std::to_string(options.device_seed)}});
    STRATA_CHECK(device.ok());
    owned_device_ = std::move(*device);
    device_ = owned_device_.get();
  } else {
    plain_ = std::make_unique<PlainDevice>();
    device_ = plain_.get();
  }
  context_ = std::make_unique<HostContext>(plugins_.log, plugins_.clock, options.model);
  auto model = plain_ != nullptr ? make_reference_on(*plain_, *context_)
                                 : plugins_.registry.make_model(options.plugin, options.model, *device_);
  EXPECT_TRUE(model.ok()) << model.error().message;
  STRATA_CHECK(model.ok());
  owned_model_ = std::move(*model);
  faulty_ = std::make_unique<FaultyModel>(*owned_model_);
  model_ = options.through_faulty ? faulty_.get() : owned_model_.get();
  stream_ = *device_->create_stream();
  event_ = *device_->create_event();
}

ModelWorld::~ModelWorld() {
  finish();
  device_->destroy_event(event_);
  device_->destroy_stream(stream_);
}

Trace ModelWorld::read(SlotId slot, std::span<const Token> tokens, uint32_t chunk) {
  Trace trace;
  while (!tokens.empty()) {
    const size_t count = std::min<size_t>(tokens.size(), std::min(chunk, tokens_at_once_));
    const BatchItem item{slot, model_->length(slot), tokens.first(count), true};
    std::vector<std::span<const float>> logits;
    const Status status = model_->decode({&item, 1}, logits);
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!status.ok()) return trace;
    trace.emplace_back(logits[0].begin(), logits[0].end());
    tokens = tokens.subspan(count);
  }
  EXPECT_TRUE(all_finite(trace)) << "memory that was never written took part";
  return trace;
}

std::vector<std::byte> ModelWorld::store_block(SlotId slot, StageId stage, uint32_t first, uint32_t count) {
  std::vector<std::byte> bytes(model_->block_bytes(stage, count));
  const Status status = model_->export_block(slot, stage, first, count, bytes, stream_);
  EXPECT_TRUE(status.ok()) << status.error().message;
  finish();
  return bytes;
}

std::vector<std::byte> ModelWorld::store_checkpoint(SlotId slot, StageId stage) {
  std::vector<std::byte> bytes(model_->info().checkpoint_bytes[stage]);
  const Result<uint64_t> used = model_->export_checkpoint(slot, stage, bytes, stream_);
  EXPECT_TRUE(used.ok()) << used.error().message;
  finish();
  bytes.resize(used.value_or(0));
  return bytes;
}

StoredState ModelWorld::store(SlotId slot, std::span<const Token> tokens) {
  const ModelInfo& info = model_->info();
  EXPECT_EQ(model_->length(slot), tokens.size());
  StoredState state;
  state.tokens.assign(tokens.begin(), tokens.end());
  const auto length = static_cast<uint32_t>(tokens.size());
  for (StageId stage = 0; stage < info.stages; ++stage) {
    auto& blocks = state.blocks.emplace_back();
    for (uint32_t i = 0; i < block_count(length); ++i)
      blocks.push_back(store_block(slot, stage, i * info.tokens_per_block, block_tokens(i, length)));
    if (info.needs_checkpoints) state.checkpoints.push_back(store_checkpoint(slot, stage));
  }
  return state;
}

Result<ImportId> ModelWorld::begin(SlotId slot, const StoredState& state) {
  return model_->import_begin(slot, state.tokens);
}

Status ModelWorld::add_block(ImportId import, StageId stage, uint32_t index, const StoredState& state) {
  return model_->import_block(import, stage, index * model_->info().tokens_per_block,
                              block_tokens(index, static_cast<uint32_t>(state.tokens.size())),
                              state.blocks[stage][index], stream_);
}

Status ModelWorld::add_checkpoint(ImportId import, StageId stage, const StoredState& state) {
  return model_->import_checkpoint(import, stage, static_cast<uint32_t>(state.tokens.size()),
                                   state.checkpoints[stage], stream_);
}

Status ModelWorld::add_parts(ImportId import, const StoredState& state) {
  for (StageId stage = 0; stage < state.blocks.size(); ++stage)
    for (uint32_t i = 0; i < state.blocks[stage].size(); ++i) STRATA_TRY(add_block(import, stage, i, state));
  for (StageId stage = 0; stage < state.checkpoints.size(); ++stage)
    STRATA_TRY(add_checkpoint(import, stage, state));
  return {};
}

void ModelWorld::finish() {
  const Status recorded = device_->record(event_, stream_);
  EXPECT_TRUE(recorded.ok());
  const Status waited = device_->wait(event_);
  EXPECT_TRUE(waited.ok());
}

Status ModelWorld::restore(SlotId slot, const StoredState& state) {
  STRATA_ASSIGN(const ImportId import, begin(slot, state));
  STRATA_TRY(add_parts(import, state));
  finish();
  return model_->import_commit(import);
}

uint32_t ModelWorld::block_count(uint32_t tokens) const {
  const ModelInfo& info = model_->info();
  return info.state_in_blocks ? (tokens + info.tokens_per_block - 1) / info.tokens_per_block : 0;
}

uint32_t ModelWorld::block_tokens(uint32_t index, uint32_t tokens) const {
  const uint32_t size = model_->info().tokens_per_block;
  return std::min(size, tokens - index * size);
}

}  // namespace strata::testing
