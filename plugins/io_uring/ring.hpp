// One io_uring instance and its table of registered buffers. Thin: knows nothing of operations.
//
// The ring is created with SINGLE_ISSUER and DEFER_TASKRUN where the kernel has them, and then belongs to the
// thread that created it. Where it does not, plain flags are used. Ownership: the ring belongs to one
// UringQueue. One thread.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace strata::io_uring_plugin {

// plain: what kernels before Linux 6.1 offer, whatever this one has.
enum class RingFlags : uint8_t { best, plain };

class Ring {
 public:
  Ring() = default;
  ~Ring() { close(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // 0, or the negative errno of io_uring_setup.
  int open(uint32_t entries, RingFlags flags);
  void close();
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] ::io_uring* get() { return &ring_; }
  // Completions appear only when the kernel is entered for them.
  [[nodiscard]] bool deferred() const { return deferred_; }

  // 0, or a negative errno. -EEXIST: meets memory that is registered already.
  int register_memory(uintptr_t address, uint64_t bytes);
  // false: not registered under that address.
  bool unregister_memory(uintptr_t address);
  // The table entry that covers the whole range.
  [[nodiscard]] std::optional<uint16_t> buffer_of(uintptr_t address, uint64_t bytes) const;
  // After the ring was opened anew: registers what was registered before. Returns how many were refused;
  // transfers from those work, they are only dearer.
  uint32_t register_again();

 private:
  struct Region {
    uint64_t bytes = 0;
    std::vector<uint16_t>
        entries;  // one for each kMaxPiece bytes; empty: known, but not registered with this ring
  };

  int ensure_table();
  int enter_region(uintptr_t address, Region& region);
  void leave_region(Region& region);
  int update_entry(uint16_t entry, uintptr_t address, uint64_t bytes);

  ::io_uring ring_{};
  bool open_ = false;
  bool deferred_ = false;
  bool table_ = false;
  std::vector<uint16_t> free_entries_;
  std::map<uintptr_t, Region> regions_;
};

}  // namespace strata::io_uring_plugin
