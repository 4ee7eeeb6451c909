// Where checkpoints of a state that cannot be cut are taken and which are kept (RAM-6). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

struct CheckpointRules {
  uint32_t max = 6;               // 0: off
  uint32_t every_tokens = 16384;  // 0: none by distance
  bool spread = true;
};

// Positions in (from, to] where reading must stop for a checkpoint, ascending: borders, multiples of
// every_tokens, and with `spread` positions at geometrically growing distance before `to` (the end of the
// prompt), so that an edit a few thousand tokens back finds one close by. Never `to` itself when the live
// state is kept anyway; at most 4·max.
[[nodiscard]] std::vector<uint32_t> checkpoint_positions(uint32_t from, uint32_t to,
                                                         std::span<const uint32_t> borders,
                                                         const CheckpointRules& rules);

// Of checkpoints at `positions` (ascending) in a conversation of `length` tokens, which to keep: at most
// rules.max; the first border (`root`, 0 if none) is always kept, the rest so that distances grow
// geometrically from the end. Returns kept positions, ascending.
[[nodiscard]] std::vector<uint32_t> checkpoints_to_keep(std::span<const uint32_t> positions, uint32_t length,
                                                        uint32_t root, const CheckpointRules& rules);

}  // namespace strata
