// The tiers in a test's hand: the reference model (tiny) on a device whose copies come late, files in memory,
// a writer that runs when told, a clock that moves when told. One thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/identity.hpp"
#include "core/worker.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/fake_memory_probe.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/faulty_device.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/faulty_model.hpp"
#include "tests/support/plugin_world.hpp"
#include "tests/support/recording_file_system.hpp"
#include "tests/support/recording_log.hpp"
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
  std::string gguf;     // a model of the llama plugin instead, with `context`, `slots`, `model`; one thread
  uint32_t tokens_at_once = 40;  // in one decode; 1 where logits depend on the batch's shape
  uint64_t seed = 7;             // of the device's and the disk's order
  TierOptions tiers;
  bool writes_run = true;  // every step also runs the writer; otherwise the test does
  uint64_t model_identity = 1;
  PageSource* pages = nullptr;  // of large buffers; must outlive the world
  Worker* worker = nullptr;  // of saved sessions' files; null: step() does their work; must outlive the world
  bool staged_import = true;    // false: the stack is told that the model cannot stage an import
  FileSystem* files = nullptr;  // the disk, instead of the world's own files; must outlive the world
};

// A tiny model: 4 layers, blocks of 16 tokens, context of 512. With a file: blocks of 16 tokens too.
[[nodiscard]] PluginOptions tiny_model(const StackWorldOptions& options);
[[nodiscard]] TierOptions ram_tier(uint64_t budget_bytes);
[[nodiscard]] TierOptions ram_and_disk(uint64_t ram_bytes, uint64_t disk_bytes);
// Tokens of a conversation that only `seed` and length decide.
[[nodiscard]] std::vector<Token> prompt_of(uint64_t seed, uint32_t tokens);
// `from` and prompt_of(seed, tokens) behind it.
[[nodiscard]] std::vector<Token> followed_by(std::vector<Token> from, uint64_t seed, uint32_t tokens);

struct Answer {
  Placement placement;
  std::vector<Token> tokens;               // greedy
  std::vector<std::vector<float>> logits;  // of each
  std::string failure;
  bool operator==(const Answer& other) const { return tokens == other.tokens && logits == other.logits; }
};

// A conversation's next prompt: what was asked, what was answered, and more.
[[nodiscard]] std::vector<Token> next_prompt(const std::vector<Token>& prompt, const Answer& answer,
                                             uint64_t seed, uint32_t tokens);

// A request that runs beside others.
struct InFlight {
  RequestId id = 0;
  std::vector<Token> prompt;
  uint32_t generate = 0;
  bool serving = false;
  bool done = false;  // and finished
  Answer answer;
  std::vector<Token> todo;
  size_t at = 0;
};

class StackWorld {
 public:
  explicit StackWorld(StackWorldOptions options);
  ~StackWorld();

  // A new model, device and stack on the same files. The old stack is dropped as it is, as by a crash, unless
  // the test drained it before.
  void restart();
  Status try_restart();  // the same for a start that may fail; then there is no stack until the next one
  void halt();           // the process ends, as by a crash; there is no stack until the next restart
  void shutdown();       // begin_shutdown and steps until finished

  // Whole requests.
  Answer ask(const std::vector<Token>& prompt, uint32_t generate, TierRequest extra = {});
  // In pieces: admit, step until the slot serves, read and answer, finish.
  RequestId begin(const std::vector<Token>& prompt, TierRequest extra = {});
  bool place(RequestId id);  // steps until serving or failed; false when it does not get there
  Answer answer(RequestId id, const std::vector<Token>& prompt, uint32_t generate);
  void end(RequestId id);
  // Several requests at once: launch, then step the world and move each on.
  InFlight launch(const std::vector<Token>& prompt, uint32_t generate, TierRequest extra = {});
  void move(InFlight& request);               // at most one batch; finishes the request after its last token
  void run(std::vector<InFlight>& requests);  // until all are done

  void step(int times = 1);
  void settle();  // steps until nothing moves and all writes are done

  // After each step: called with the stack, to check invariants.
  std::function<void(StackWorld&)> after_step;

  TierStack& stack() { return *stack_; }
  Model& model() { return *model_; }
  FaultyModel& faulty_model() { return *faulty_model_; }      // what the stack sees
  FaultyDevice& faulty_device() { return *faulty_device_; }   // what the stack sees
  FaultyFileSystem& faulty_files() { return faulty_files_; }  // what the stack and the writer see
  RecordingFileSystem& recorded_files() { return recorded_files_; }
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
  Result<std::unique_ptr<Model>> make_model();
  bool decode(InFlight& request);

  StackWorldOptions options_;
  PluginWorld plugins_;
  FakeClock clock_;
  FakeFileSystem files_;
  RecordingFileSystem recorded_files_{files_};
  FaultyFileSystem faulty_files_;
  FakeMemoryProbe memory_;
  FakeRandom random_;
  RecordingLog log_;
  Metrics metrics_;
  Identity identity_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<FaultyDevice> faulty_device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<FaultyModel> faulty_model_;
  std::unique_ptr<FakeIoQueue> reader_;
  std::unique_ptr<FakeIoQueue> writer_io_;
  std::unique_ptr<DiskWriter> disk_writer_;
  std::unique_ptr<SteppedWriteQueue> queue_;
  std::unique_ptr<TierStack> stack_;
  RequestId next_request_ = 1;
  bool llama_loaded_ = false;
};

}  // namespace strata::testing
