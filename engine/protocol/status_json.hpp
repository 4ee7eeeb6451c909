// The JSON of STATUS and SESSIONS (fields: docs/engine-protocol.md). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/runtime/engine.hpp"
#include "tiers/tier_stack.hpp"

namespace strata {

[[nodiscard]] std::string status_json(const TierStatus& status, std::span<const RequestView> requests,
                                      uint32_t context_tokens, const std::string& prometheus);
[[nodiscard]] std::string sessions_json(std::span<const StoredConversation> conversations);

}  // namespace strata
