// What an instance of the synthetic model is, read once from the host's options. Plain values, immutable
// afterwards.
#pragma once

#include <cstdint>

#include "plugins/abi/strata_plugin.h"

namespace strata::synthetic {

struct Options {
  bool whole = false;  // one checkpoint per stage holds everything; no blocks
  bool vocab_only = false;
  uint32_t stages = 1;
  uint32_t layers = 32;
  uint32_t bytes_per_token = 16384;  // over all layers and stages
  uint32_t tokens_per_block = 1024;  // a block of one stage has 16 MiB by default
  uint64_t checkpoint_bytes = 0;     // of one stage; not 0: the state cannot be cut
  uint32_t context = 262144;         // tokens per slot
  uint32_t slots = 4;
  uint64_t tokens_per_second = 100000;  // how long reading takes; 0: no longer than it does
  uint64_t seed = 1;

  [[nodiscard]] uint32_t row_bytes() const { return bytes_per_token / layers; }  // of one token in one layer
  [[nodiscard]] uint32_t layers_per_stage() const { return layers / stages; }
  [[nodiscard]] bool needs_checkpoints() const { return whole || checkpoint_bytes != 0; }
};

inline constexpr uint32_t kStagedImports = 2;
inline constexpr const char* kStateVersion = "synthetic-1";

// Throws sdk::Failure (INVALID) that names the option that is wrong.
[[nodiscard]] Options read_options(const strata_host* host);

}  // namespace strata::synthetic
