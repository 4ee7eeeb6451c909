#include "engine/runtime/prompt_share.hpp"

#include <algorithm>

namespace strata {

std::vector<uint32_t> share_prompt_tokens(uint32_t budget, std::span<const uint32_t> wanted, uint64_t turn) {
  const size_t readers = wanted.size();
  std::vector<uint32_t> given(readers, 0);
  while (budget > 0) {
    const auto hungry = static_cast<uint32_t>(std::ranges::count_if(
        wanted, [&, i = size_t{0}](uint32_t want) mutable { return given[i++] < want; }));
    if (hungry == 0) break;
    const uint32_t share = std::max(1U, budget / hungry);
    for (size_t step = 0; step < readers && budget > 0; ++step) {
      const size_t reader = (turn + step) % readers;
      const uint32_t part = std::min({share, wanted[reader] - given[reader], budget});
      given[reader] += part;
      budget -= part;
    }
  }
  return given;
}

}  // namespace strata
