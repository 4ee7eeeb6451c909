// What an instance of the reference model is, read once from the host's options. Plain values, immutable
// afterwards.
#pragma once

#include <cstdint>

#include "plugins/abi/strata_plugin.h"

namespace strata::reference {

enum class Layout : uint8_t { attention, sliding, hybrid };
enum class LayerKind : uint8_t { full, window, recurrent };

[[nodiscard]] const char* to_string(Layout layout);

struct Options {
  Layout layout = Layout::attention;
  bool whole = false;  // one checkpoint per stage holds everything; no blocks
  bool vocab_only = false;
  uint32_t stages = 1;
  uint32_t layers = 8;
  uint32_t dim = 512;
  uint32_t heads = 16;
  uint32_t kv_heads = 1;
  uint32_t ffn = 1536;
  uint32_t window = 256;  // tokens a window layer sees, the current one included
  uint32_t tokens_per_block = 64;
  uint32_t context = 8192;  // tokens per slot
  uint32_t slots = 4;
  uint32_t threads = 0;  // 0: one per processor
  uint64_t seed = 1;

  [[nodiscard]] uint32_t head_dim() const { return dim / heads; }
  [[nodiscard]] uint32_t kv_dim() const { return kv_heads * head_dim(); }
  [[nodiscard]] uint32_t layers_per_stage() const { return layers / stages; }
  [[nodiscard]] LayerKind kind(uint32_t layer) const;
  [[nodiscard]] bool needs_checkpoints() const { return whole || layout != Layout::attention; }
};

inline constexpr uint32_t kStagedImports = 2;  // spare regions beside the slots
inline constexpr float kRopeBase = 10000.0F;
inline constexpr const char* kStateVersion = "reference-1";

// INVALID names the option that is wrong.
strata_status read_options(const strata_host* host, Options& options, strata_error* error);

}  // namespace strata::reference
