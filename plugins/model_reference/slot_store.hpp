// The slots' state in device memory, and staged imports beside them.
// There are more regions than slots: an import fills a spare one, and its commit exchanges it with the
// slot's, so a slot is untouched until then. A spare region is taken only after the copies of an earlier
// import into it ended. Errors are those of the Model contract (core/model.hpp). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugins/model_reference/bound_device.hpp"
#include "plugins/model_reference/options.hpp"
#include "plugins/model_reference/state_layout.hpp"

namespace strata::reference {

class SlotStore {
 public:
  SlotStore(const Options& options, const StateLayout& layout, BoundDevice device);
  ~SlotStore();
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  strata_status allocate(strata_error* error);  // once, before anything else

  [[nodiscard]] bool is_slot(int32_t slot) const {
    return slot >= 0 && static_cast<size_t>(slot) < slots_.size();
  }
  [[nodiscard]] uint32_t length(int32_t slot) const { return slots_[static_cast<size_t>(slot)].length; }
  void set_length(int32_t slot, uint32_t length) { slots_[static_cast<size_t>(slot)].length = length; }
  [[nodiscard]] std::byte* region(int32_t slot) const;

  strata_status export_block(int32_t slot, uint32_t stage, uint32_t first, uint32_t count, void* to,
                             uint64_t capacity, void* stream, strata_error* error);
  strata_status export_checkpoint(int32_t slot, uint32_t stage, void* to, uint64_t capacity, void* stream,
                                  uint64_t* bytes, strata_error* error);

  strata_status begin(int32_t slot, uint32_t tokens, uint64_t* import, strata_error* error);
  strata_status add_block(uint64_t import, uint32_t stage, uint32_t first, uint32_t count, const void* from,
                          uint64_t bytes, void* stream, strata_error* error);
  strata_status add_checkpoint(uint64_t import, uint32_t stage, uint32_t position, const void* from,
                               uint64_t bytes, void* stream, strata_error* error);
  strata_status commit(uint64_t import, strata_error* error);
  void abort(uint64_t import);

 private:
  struct Region {
    std::byte* memory = nullptr;
    void* event = nullptr;  // after the last copy of an import into it
    void* stream = nullptr;
    bool recorded = false;
  };
  struct Slot {
    uint32_t region = 0;
    uint32_t length = 0;
  };
  struct Import {
    uint64_t id = 0;
    int32_t slot = 0;
    uint32_t region = 0;
    uint32_t tokens = 0;
    std::vector<uint32_t> blocks;      // [stage][block]: tokens that came
    std::vector<uint8_t> checkpoints;  // per stage
  };

  [[nodiscard]] Import* find(uint64_t import);
  [[nodiscard]] uint32_t blocks_of(uint32_t tokens) const;
  strata_status take(Import& import, const void* from, std::span<const Segment> segments, void* stream,
                     strata_error* error);
  strata_status check_complete(const Import& import, strata_error* error) const;
  strata_status check_range(uint32_t stage, uint32_t first, uint32_t count, strata_error* error) const;

  const Options options_;
  const StateLayout& layout_;
  BoundDevice device_;
  std::vector<Region> regions_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> spare_;
  std::vector<Import> imports_;
  uint64_t next_import_ = 1;
};

}  // namespace strata::reference
