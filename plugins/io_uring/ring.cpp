#include "plugins/io_uring/ring.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace strata::io_uring_plugin {
namespace {

constexpr uint16_t kTableEntries = 1024;
constexpr uint64_t kMaxPiece = uint64_t{1} << 30;  // the kernel takes no larger buffer

}  // namespace

int Ring::open(uint32_t entries, RingFlags flags) {
  int result = -EINVAL;
  deferred_ = flags == RingFlags::best;
  if (deferred_) {
    result = io_uring_queue_init(entries, &ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  }
  if (result == -EINVAL) {
    deferred_ = false;
    result = io_uring_queue_init(entries, &ring_, 0);
  }
  open_ = result == 0;
  table_ = false;
  return result;
}

void Ring::close() {
  if (open_) io_uring_queue_exit(&ring_);
  open_ = false;
  table_ = false;
  for (auto& [address, region] : regions_) region.entries.clear();
}

int Ring::ensure_table() {
  if (table_) return 0;
  const int result = io_uring_register_buffers_sparse(&ring_, kTableEntries);
  if (result < 0) return result;
  table_ = true;
  free_entries_.clear();
  for (uint16_t entry = kTableEntries; entry > 0; --entry)
    free_entries_.push_back(static_cast<uint16_t>(entry - 1));
  return 0;
}

int Ring::update_entry(uint16_t entry, uintptr_t address, uint64_t bytes) {
  const iovec memory{reinterpret_cast<void*>(address), static_cast<size_t>(bytes)};
  const __u64 tag = 0;
  const int result = io_uring_register_buffers_update_tag(&ring_, entry, &memory, &tag, 1);
  return result < 0 ? result : 0;
}

int Ring::enter_region(uintptr_t address, Region& region) {
  if (const int result = ensure_table(); result < 0) return result;
  for (uint64_t at = 0; at < region.bytes; at += kMaxPiece) {
    int result = -ENOSPC;
    if (!free_entries_.empty()) {
      result = update_entry(free_entries_.back(), address + at, std::min(kMaxPiece, region.bytes - at));
    }
    if (result < 0) {
      leave_region(region);
      return result;
    }
    region.entries.push_back(free_entries_.back());
    free_entries_.pop_back();
  }
  return 0;
}

void Ring::leave_region(Region& region) {
  for (const uint16_t entry : region.entries) {
    if (update_entry(entry, 0, 0) == 0) free_entries_.push_back(entry);
  }
  region.entries.clear();
}

int Ring::register_memory(uintptr_t address, uint64_t bytes) {
  const auto next = regions_.lower_bound(address);
  const bool meets_next = next != regions_.end() && next->first < address + bytes;
  const bool meets_previous =
      next != regions_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
  if (meets_next || meets_previous) return -EEXIST;
  Region region{bytes, {}};
  if (const int result = enter_region(address, region); result < 0) return result;
  regions_.emplace(address, std::move(region));
  return 0;
}

bool Ring::unregister_memory(uintptr_t address) {
  const auto found = regions_.find(address);
  if (found == regions_.end()) return false;
  if (open_) leave_region(found->second);
  regions_.erase(found);
  return true;
}

std::optional<uint16_t> Ring::buffer_of(uintptr_t address, uint64_t bytes) const {
  auto found = regions_.upper_bound(address);
  if (found == regions_.begin()) return std::nullopt;
  --found;
  const Region& region = found->second;
  const uint64_t at = address - found->first;
  if (region.entries.empty() || at >= region.bytes || bytes > region.bytes - at) return std::nullopt;
  if (bytes == 0 || at / kMaxPiece != (at + bytes - 1) / kMaxPiece) return std::nullopt;
  return region.entries[at / kMaxPiece];
}

uint32_t Ring::register_again() {
  uint32_t refused = 0;
  for (auto& [address, region] : regions_) {
    if (enter_region(address, region) < 0) ++refused;
  }
  return refused;
}

}  // namespace strata::io_uring_plugin
