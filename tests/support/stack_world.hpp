// The tiers in a test's hand: the reference model (tiny) on a device whose copies come late, files in memory,
// a writer that runs when told, a clock that moves when told. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/identity.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/fake_memory_probe.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/plugin_world.hpp"
#include "tests/support/stepped_write_queue.hpp"
#include "tiers/tier_stack.hpp"

namespace strata::testing {

struct StackWorldOptions {
  std::string layout = "attention";
  int stages = 1;
  bool whole = false;  // state in one checkpoint instead of blocks
  int slots = 2;
  int context = 512;    // tokens per slot
  PluginOptions model;  // further options of the model, win over the rest
  uint64_t seed = 7;    // of the device's and the disk's order
  TierOptions tiers;
  bool writes_run = true;  // every step also runs the writer; otherwise the test does
};

// A tiny model: 4 layers, blocks of 16 tokens, context of 512.
[[nodiscard]] PluginOptions tiny_model(const StackWorldOptions& options);
[[nodiscard]] TierOptions ram_tier(uint64_t budget_bytes);
[[nodiscard]] TierOptions ram_and_disk(uint64_t ram_bytes, uint64_t disk_bytes);
// Tokens of a conversation that only `seed` and length decide.
[[nodiscard]] std::vector<Token> prompt_of(uint64_t seed, uint32_t tokens);

struct Answer {
  Placement placement;
  std::vector<Token> tokens;               // greedy
  std::vector<std::vector<float>> logits;  // of each
  std::string failure;
  bool operator==(const Answer& other) const { return tokens == other.tokens && logits == other.logits; }
};

class StackWorld {
 public:
  explicit StackWorld(StackWorldOptions options);
  ~StackWorld();

  // A new model, device and stack on the same files. The old stack is dropped as it is, as by a crash, unless
  // the test drained it before.
  void restart();
  void shutdown();  // begin_shutdown and steps until finished

  // Whole requests.
  Answer ask(const std::vector<Token>& prompt, uint32_t generate, TierRequest extra = {});
  // In pieces: admit, step until the slot serves, read and answer, finish.
  RequestId begin(const std::vector<Token>& prompt, TierRequest extra = {});
  bool place(RequestId id);  // steps until serving or failed; false when it does not get there
  Answer answer(RequestId id, const std::vector<Token>& prompt, uint32_t generate);
  void end(RequestId id);

  void step(int times = 1);
  void settle();  // steps until nothing moves and all writes are done

  // After each step: called with the stack, to check invariants.
  std::function<void(StackWorld&)> after_step;

  TierStack& stack() { return *stack_; }
  Model& model() { return *model_; }
  FakeFileSystem& files() { return files_; }
  FakeIoQueue& reader() { return *reader_; }
  FakeIoQueue& writer_io() { return *writer_io_; }
  SteppedWriteQueue& writer() { return *queue_; }
  FakeClock& clock() { return clock_; }
  FakeMemoryProbe& memory() { return memory_; }
  RecordingLog& log() { return log_; }
  Metrics& metrics() { return metrics_; }
  StackWorldOptions& options() { return options_; }
  Status opened;  // of the last open

  static constexpr const char* kFolder = "/cache";

 private:
  void open();

  StackWorldOptions options_;
  PluginWorld plugins_;
  FakeClock clock_;
  FakeFileSystem files_;
  FakeMemoryProbe memory_;
  FakeRandom random_;
  RecordingLog log_;
  Metrics metrics_;
  Identity identity_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<FakeIoQueue> reader_;
  std::unique_ptr<FakeIoQueue> writer_io_;
  std::unique_ptr<DiskWriter> disk_writer_;
  std::unique_ptr<SteppedWriteQueue> queue_;
  std::unique_ptr<TierStack> stack_;
  RequestId next_request_ = 1;
};

}  // namespace strata::testing
