#include "tiers/extent_map.hpp"

#include <algorithm>
#include <iterator>

#include "core/check.hpp"

namespace strata {
namespace {

uint64_t occupied(uint64_t length) {
  const uint64_t units =
      std::max<uint64_t>(1, length / limits::kAlignment + (length % limits::kAlignment != 0));
  return units * limits::kAlignment;
}

}  // namespace

ExtentMap::ExtentMap(uint64_t first_free) : first_free_(occupied(first_free)), end_(first_free_) {}

uint64_t ExtentMap::allocate(uint64_t length) {
  STRATA_CHECK(length <= limits::kMaxSessionBytes);
  const uint64_t size = occupied(length);
  const auto hole =
      std::find_if(holes_.begin(), holes_.end(), [&](const auto& entry) { return entry.second >= size; });
  if (hole == holes_.end()) {
    const uint64_t offset = end_;
    end_ += size;
    return offset;
  }
  const auto [offset, room] = *hole;
  holes_.erase(hole);
  if (room > size) holes_.emplace(offset + size, room - size);
  hole_bytes_ -= size;
  return offset;
}

bool ExtentMap::reserve(uint64_t offset, uint64_t length) {
  if (offset % limits::kAlignment != 0 || offset > limits::kMaxSessionBytes ||
      length > limits::kMaxSessionBytes) {
    return false;
  }
  const uint64_t size = occupied(length);
  if (offset >= end_) {
    if (offset > end_) holes_.emplace(end_, offset - end_);
    hole_bytes_ += offset - end_;
    end_ = offset + size;
    return true;
  }
  const auto after = holes_.upper_bound(offset);
  if (after == holes_.begin()) return false;
  const auto hole = std::prev(after);
  const auto [start, room] = *hole;
  if (offset + size > start + room) return false;
  holes_.erase(hole);
  if (offset > start) holes_.emplace(start, offset - start);
  if (offset + size < start + room) holes_.emplace(offset + size, start + room - offset - size);
  hole_bytes_ -= size;
  return true;
}

void ExtentMap::release(uint64_t offset, uint64_t length) {
  uint64_t from = offset;
  uint64_t to = offset + occupied(length);
  STRATA_CHECK(offset % limits::kAlignment == 0 && from >= first_free_ && to <= end_);
  auto after = holes_.lower_bound(from);
  STRATA_CHECK(after == holes_.end() || after->first >= to);
  hole_bytes_ += to - from;
  if (after != holes_.end() && after->first == to) {
    to += after->second;
    after = holes_.erase(after);
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    STRATA_CHECK(before->first + before->second <= from);
    if (before->first + before->second == from) {
      from = before->first;
      holes_.erase(before);
    }
  }
  if (to == end_) {
    end_ = from;
    hole_bytes_ -= to - from;
  } else {
    holes_.emplace(from, to - from);
  }
}

uint64_t ExtentMap::end_bytes() const { return end_; }
uint64_t ExtentMap::used_bytes() const { return end_ - hole_bytes_; }
uint64_t ExtentMap::hole_bytes() const { return hole_bytes_; }

}  // namespace strata
