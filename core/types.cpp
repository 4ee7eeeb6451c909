#include "core/types.hpp"

#include <fmt/format.h>

namespace strata {

std::string to_hex(ConversationId id) { return fmt::format("{:016x}", id.value); }

std::string to_hex(const Digest& digest) { return fmt::format("{:016x}{:016x}", digest.high, digest.low); }

const char* to_string(Tier tier) {
  switch (tier) {
    case Tier::vram:
      return "vram";
    case Tier::ram:
      return "ram";
    case Tier::disk:
      return "disk";
    case Tier::none:
      return "none";
  }
  return "none";
}

}  // namespace strata
