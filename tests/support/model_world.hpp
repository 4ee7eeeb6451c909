// A model plugin on a device, for tests of the Model port: made from options, with the steps that every test
// needs (read a prompt, take a slot's state out, put it back) written once. Failures inside a step are test
// failures. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "plugins/host/host_context.hpp"
#include "tests/support/faulty_model.hpp"
#include "tests/support/plain_device.hpp"
#include "tests/support/plugin_world.hpp"

namespace strata::testing {

enum class TestDevice : uint8_t { host, plain };  // late and out of order; at once

struct ModelWorldOptions {
  std::string plugin = "reference";
  std::string plugin_file;  // loaded first; empty: the plugin is built in
  PluginOptions model;
  TestDevice device = TestDevice::host;
  bool through_faulty = false;
  uint32_t tokens_at_once = UINT32_MAX;  // at most, in one decode: 1 where logits depend on the batch's shape
  uint64_t device_seed = 1;
};

// Options of a reference model so small that a suite of tests takes seconds: blocks of 16 tokens, a window
// of 24.
[[nodiscard]] PluginOptions tiny_reference(const std::string& layout, uint32_t stages,
                                           const std::string& state);

// A synthetic model as small: blocks of 16 tokens, three slots of 256, reading takes no time.
enum class SyntheticState : uint8_t { blocks, checkpoints, whole };
[[nodiscard]] const char* to_string(SyntheticState state);
[[nodiscard]] ModelWorldOptions tiny_synthetic(uint32_t stages, SyntheticState state);

// The tiny models of every kind of state, and what runs them: STRATA_SHARED names their folder's parent, else
// ../shared beside the source tree. `why_not` says what is missing; everything else is empty then.
struct LlamaModels {
  std::string plugin_file;
  std::vector<std::string> files;  // sorted
  std::string why_not;
};
[[nodiscard]] const LlamaModels& llama_models();
// A model that tools/install_deps models brings, by its file's name; empty: it is not there.
[[nodiscard]] std::string real_llama_model(const std::string& name);
// Options with blocks of 16 tokens and three slots of 256.
[[nodiscard]] ModelWorldOptions tiny_llama(const std::string& file, const std::string& granularity);

// The reference model on a plain device, which no registry knows. `context` must outlive the model.
Result<std::unique_ptr<Model>> make_reference_on(PlainDevice& device, const HostContext& context);

// A slot's state outside the model: what a tier keeps of a conversation.
struct StoredState {
  std::vector<Token> tokens;
  std::vector<std::vector<std::vector<std::byte>>> blocks;  // [stage][block]
  std::vector<std::vector<std::byte>> checkpoints;          // [stage]; empty: the model has none
};
[[nodiscard]] bool write_state(const std::string& path, const StoredState& state);
[[nodiscard]] bool read_state(const std::string& path, StoredState& state);

// Logits of one token after the other, to be compared bit by bit.
using Trace = std::vector<std::vector<float>>;
[[nodiscard]] bool write_trace(const std::string& path, const Trace& trace);
[[nodiscard]] bool read_trace(const std::string& path, Trace& trace);
[[nodiscard]] bool equal_bits(const Trace& a, const Trace& b);
[[nodiscard]] bool all_finite(const Trace& trace);

[[nodiscard]] std::vector<Token> some_tokens(uint64_t seed, uint32_t count);

class ModelWorld {
 public:
  explicit ModelWorld(const ModelWorldOptions& options);
  ~ModelWorld();
  ModelWorld(const ModelWorld&) = delete;
  ModelWorld& operator=(const ModelWorld&) = delete;

  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] Device& device() { return *device_; }
  [[nodiscard]] FaultyModel& faulty() { return *faulty_; }
  [[nodiscard]] DeviceStream stream() const { return stream_; }

  // Appends the tokens in chunks; the logits after each chunk.
  Trace read(SlotId slot, std::span<const Token> tokens, uint32_t chunk = UINT32_MAX);
  // Appends the tokens one by one, each with its logits.
  Trace step(SlotId slot, std::span<const Token> tokens) { return read(slot, tokens, 1); }

  StoredState store(SlotId slot, std::span<const Token> tokens);  // tokens: what the slot holds
  std::vector<std::byte> store_block(SlotId slot, StageId stage, uint32_t first, uint32_t count);
  std::vector<std::byte> store_checkpoint(SlotId slot, StageId stage);

  // All parts of the state, in order; not committed.
  Result<ImportId> begin(SlotId slot, const StoredState& state);
  Status add_parts(ImportId import, const StoredState& state);
  Status add_block(ImportId import, StageId stage, uint32_t index, const StoredState& state);
  Status add_checkpoint(ImportId import, StageId stage, const StoredState& state);
  void finish();                                          // waits for everything queued on the stream
  Status restore(SlotId slot, const StoredState& state);  // begin, all parts, finish, commit

  [[nodiscard]] uint32_t block_count(uint32_t tokens) const;
  [[nodiscard]] uint32_t block_tokens(uint32_t index, uint32_t tokens) const;  // of that block

 private:
  uint32_t tokens_at_once_;
  PluginWorld plugins_;
  std::unique_ptr<PlainDevice> plain_;
  std::unique_ptr<Device> owned_device_;
  Device* device_ = nullptr;
  std::unique_ptr<HostContext> context_;
  std::unique_ptr<Model> owned_model_;
  std::unique_ptr<FaultyModel> faulty_;
  Model* model_ = nullptr;
  DeviceStream stream_;
  DeviceEvent event_;
};

}  // namespace strata::testing
