// What a model's state costs and whether it comes back exactly: reads a prompt, takes the state out, puts it
// into another slot, and compares the logits of both while they go on, bit for bit. The control puts in one
// part of another conversation and must differ. The model needs two slots, empty; they are empty again
// afterwards. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/clock.hpp"
#include "core/device.hpp"
#include "core/model.hpp"
#include "core/result.hpp"

namespace strata {

struct StateTestReport {
  uint32_t tokens = 0;            // of the prompt
  uint64_t block_bytes = 0;       // of all its blocks
  uint64_t checkpoint_bytes = 0;  // at its end, all stages
  double bytes_per_token = 0;     // of the blocks; of the whole state where there are none
  bool equal = false;             // restored, the logits were equal
  bool control_differs = false;   // with a part of another prompt the answer was another one
  bool control_refused = false;   // or the model looked at the part, and did not take it
  [[nodiscard]] bool control_holds() const { return control_differs || control_refused; }
  uint64_t read_ns = 0, export_ns = 0, digest_ns = 0, import_ns = 0;
};

Result<StateTestReport> test_state(Model& model, Device& device, Clock& clock, uint32_t prompt_tokens);

}  // namespace strata
