// ExtentMap: which 4096-aligned ranges of one session file are in use. Freed ranges are reused first-fit,
// lowest first; the file grows at its end. One thread at a time. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/limits.hpp"

namespace strata {

class ExtentMap {
 public:
  // Everything before `first_free` (the header, or all of a file whose extents are not known) is in use.
  explicit ExtentMap(uint64_t first_free = limits::kSessionHeaderBytes);
  // Returns the offset; grows the end if no hole is large enough. `length` is rounded up to the alignment,
  // here and below; nothing occupies less than one alignment unit.
  uint64_t allocate(uint64_t length);
  // Marks a range as in use that was found in an index (after a restart). False, and nothing changes, when it
  // overlaps another one or is not a possible extent (unaligned, beyond kMaxSessionBytes).
  bool reserve(uint64_t offset, uint64_t length);
  // The range must be in use. Merges with neighbours; a hole at the end shortens end_bytes().
  void release(uint64_t offset, uint64_t length);
  [[nodiscard]] uint64_t end_bytes() const;   // length the file must have
  [[nodiscard]] uint64_t used_bytes() const;  // header and extents
  [[nodiscard]] uint64_t hole_bytes() const;  // free ranges before the end

 private:
  std::map<uint64_t, uint64_t> holes_;  // offset → length; never empty, never touching, never at the end
  uint64_t first_free_;
  uint64_t end_;
  uint64_t hole_bytes_ = 0;
};

}  // namespace strata
