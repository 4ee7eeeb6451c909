// What the model says after a prefix: letters and spaces, now and then the end. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace strata::synthetic {

// logits: the vocabulary of plugins/sdk/byte_vocabulary.hpp. All finite; one token stands out, and the rest
// of the row depends on the prefix too.
void fill_logits(std::span<float> logits, uint64_t prefix);

}  // namespace strata::synthetic
