// Order of and search in the parts of an image or a slot: blocks by (stage, first), then checkpoints by
// (position, stage). Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/image.hpp"

namespace strata {

[[nodiscard]] bool part_before(const Part& a, const Part& b);
// Inserts in order; replaces a part of the same kind class and place and returns the replaced one (null if
// none).
PartRef insert_part(std::vector<PartRef>& parts, PartRef part);
[[nodiscard]] PartRef find_block(std::span<const PartRef> parts, StageId stage, uint32_t first);
// The live state or checkpoint at `position`.
[[nodiscard]] PartRef find_checkpoint(std::span<const PartRef> parts, StageId stage, uint32_t position);
// Positions with a checkpoint or live state of as many stages as any position has, ascending.
[[nodiscard]] std::vector<uint32_t> resume_positions(std::span<const PartRef> parts);
[[nodiscard]] uint64_t payload_bytes(std::span<const PartRef> parts);

}  // namespace strata
