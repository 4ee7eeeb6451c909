// Options of one instance (--model-option KEY=VALUE), read once and checked. Plain values.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/abi/strata_plugin.h"

namespace strata::llama {

enum class Granularity : uint8_t { automatic, blocks, whole };
enum class FlashAttention : int8_t { automatic = -1, off = 0, on = 1 };

struct Options {
  std::string path;                   // the GGUF file
  std::vector<std::string> adapters;  // LoRA files
  float adapter_scale = 1.0F;
  bool vocab_only = false;
  uint32_t context = 0;  // tokens a slot; 0: what the model was trained with
  uint32_t slots = 4;
  uint32_t staged_imports = 2;
  uint32_t threads = 0;  // 0: the processors this process may use
  int32_t gpu_layers = -1;
  uint32_t pass_tokens = 512;  // computed at once
  ggml_type keys = GGML_TYPE_F16;
  ggml_type values = GGML_TYPE_F16;
  FlashAttention flash_attention = FlashAttention::on;
  Granularity granularity = Granularity::automatic;
  uint32_t tokens_per_block = 0;  // 0: chosen
};

// Throws Failure that names the option, its value and what is allowed.
[[nodiscard]] Options read_options(const strata_host* host);

}  // namespace strata::llama
