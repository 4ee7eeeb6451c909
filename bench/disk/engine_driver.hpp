// The program's engine below its loop, driven by a benchmark: EngineHost with the synthetic model, real
// files, the writer's thread, and requests one after the other at the pace of the engine loop. One thread.
// Ends the program when a step fails.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/disk/quiet_log.hpp"
#include "engine/runtime/engine_host.hpp"

namespace strata::bench {

struct Asked {
  Placement placement;
  uint64_t blocked_ns = 0;       // the engine loop was busy with placing it
  uint64_t longest_step_ns = 0;  // without a pause
};

class EngineDriver {
 public:
  explicit EngineDriver(const EngineSettings& settings);
  // A kill: nothing is drained. shutdown() before it keeps what is parked.
  ~EngineDriver();

  [[nodiscard]] Model& model() { return host_->model(); }
  [[nodiscard]] TierStack& tiers() { return host_->tiers(); }
  [[nodiscard]] Metrics& metrics() { return host_->metrics(); }

  enum class Keep : uint8_t { yes, no };  // no: a request whose state is not parked
  Asked ask(const std::vector<Token>& prompt, Keep keep = Keep::yes);
  void settle();    // until nothing moves and the pools are as large as they get
  void shutdown();  // until everything parked is on the disk

 private:
  bool step(Asked& asked);
  void read(const std::vector<Token>& prompt, const Placement& placement);

  QuietLog log_;
  std::unique_ptr<EngineHost> host_;
  RequestId next_ = 1;
};

// Settings of an engine with the synthetic model, so far as all benchmarks share them.
[[nodiscard]] EngineSettings synthetic_engine(const std::string& folder, uint64_t ram_bytes);
// Tokens that only the seed and the number decide.
[[nodiscard]] std::vector<Token> tokens_of(uint64_t seed, uint32_t count);
[[nodiscard]] std::vector<Token> joined(std::vector<Token> head, const std::vector<Token>& tail);

}  // namespace strata::bench
