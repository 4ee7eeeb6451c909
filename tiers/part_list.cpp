#include "tiers/part_list.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace strata {

namespace {

// Live state and checkpoint of one position are the same thing to a reader: the state at that position.
auto place(const Part& part) {
  return part.is_block() ? std::tuple<int, uint32_t, uint32_t>{0, part.stage, part.first}
                         : std::tuple<int, uint32_t, uint32_t>{1, part.first, part.stage};
}

PartRef find(std::span<const PartRef> parts, const Part& wanted) {
  auto at = std::lower_bound(parts.begin(), parts.end(), wanted,
                             [](const PartRef& a, const Part& b) { return place(*a) < place(b); });
  if (at == parts.end() || place(**at) != place(wanted)) return nullptr;
  return *at;
}

}  // namespace

bool part_before(const Part& a, const Part& b) { return place(a) < place(b); }

PartRef insert_part(std::vector<PartRef>& parts, PartRef part) {
  auto at = std::lower_bound(parts.begin(), parts.end(), part,
                             [](const PartRef& a, const PartRef& b) { return part_before(*a, *b); });
  if (at != parts.end() && !part_before(*part, **at)) {
    std::swap(*at, part);
    return part;
  }
  parts.insert(at, std::move(part));
  return nullptr;
}

PartRef find_block(std::span<const PartRef> parts, StageId stage, uint32_t first) {
  Part wanted;
  wanted.kind = PartKind::block;
  wanted.stage = stage;
  wanted.first = first;
  return find(parts, wanted);
}

PartRef find_checkpoint(std::span<const PartRef> parts, StageId stage, uint32_t position) {
  Part wanted;
  wanted.kind = PartKind::checkpoint;
  wanted.stage = stage;
  wanted.first = position;
  return find(parts, wanted);
}

std::vector<uint32_t> resume_positions(std::span<const PartRef> parts) {
  std::map<uint32_t, size_t> stages_at;
  size_t most = 0;
  for (const PartRef& part : parts) {
    if (!part->is_block()) most = std::max(most, ++stages_at[part->first]);
  }
  std::vector<uint32_t> positions;
  for (const auto& [position, count] : stages_at) {
    if (count == most) positions.push_back(position);
  }
  return positions;
}

uint64_t payload_bytes(std::span<const PartRef> parts) {
  uint64_t sum = 0;
  for (const PartRef& part : parts) sum += part->bytes;
  return sum;
}

}  // namespace strata
