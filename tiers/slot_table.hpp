// SlotTable: what the engine knows of each slot (tier 0). A slot restored from an image, or parked, keeps
// references to the parts it still has unchanged ("inherits" them), so that parking again copies only the
// rest (B-1). One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/image.hpp"

namespace strata {

struct Slot {
  SlotId id = kNoSlot;
  ConversationId conversation;  // 0: empty
  uint64_t generation = 0;      // of the state it was last parked as or restored from
  uint64_t created_ns = 0;      // wall
  std::vector<Token> tokens;    // what the model holds
  std::vector<MediaMark> media;
  uint64_t salt = 0;
  std::vector<PartRef> parts;       // inherited, in image order; held in the RAM tier's count
  uint32_t answer_start = 0;        // length of the last prompt: behind it lies only an answer
  uint32_t root = 0;                // the first border: its checkpoint is kept longest
  std::vector<uint32_t> due;        // checkpoint positions still ahead, ascending
  std::optional<uint64_t> request;  // who has it; none: idle
  bool placing = false;             // for that request: what the slot holds goes away
  bool reserved = false;            // by a session action that waits for it or has it
  bool one_shot = false;            // its state is not worth parking
  bool unwritten = false;           // changed since it was last parked, or since that was tried
  uint64_t unwritten_since_ns = 0;  // monotonic
  uint64_t last_used_ns = 0;        // monotonic
  uint32_t copies_out = 0;          // transfers that read from it now

  [[nodiscard]] uint32_t length() const { return static_cast<uint32_t>(tokens.size()); }
  [[nodiscard]] bool idle() const { return !request && !reserved && copies_out == 0; }
  [[nodiscard]] bool empty() const { return tokens.empty(); }
  [[nodiscard]] TokenSpan span() const { return {tokens, media}; }
};

using SlotTable = std::vector<Slot>;

// The idle slot that is cheapest to take: an empty one, else the one used longest ago; `except` is taken only
// if no other is idle. Null when none is.
[[nodiscard]] Slot* least_used_idle(SlotTable& slots, SlotId except = kNoSlot);

}  // namespace strata
