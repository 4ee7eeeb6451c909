// How many prompt tokens each reading slot gets in one step. A pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

// Shares `budget` tokens evenly among readers that can take wanted[i] each; what one cannot take goes to the
// others. Leftovers of an uneven division start with reader `turn` mod n, so that no reader is always last.
[[nodiscard]] std::vector<uint32_t> share_prompt_tokens(uint32_t budget, std::span<const uint32_t> wanted,
                                                        uint64_t turn);

}  // namespace strata
