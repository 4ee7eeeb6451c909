// RamTier: parked images in pinned memory, least recently used first out (RAM-1 to RAM-5).
//
// Every byte is counted once however many images and slots share it: users of a part are counted here, and
// the last one to let go frees its RAM copy. An image is in this tier when all of its parts have a RAM copy.
//
// Room: images that the disk tier has published ("clean") are dropped first, oldest first; spill_ahead()
// hands the oldest images to on_evict early enough that a switch finds clean ones and never waits for the
// disk (DISK-1). Only when the writer is behind are unwritten images dropped, oldest first. Nothing is
// dropped unless that makes the room that is needed (RAM-2). One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/image.hpp"
#include "core/memory_probe.hpp"
#include "core/reasons.hpp"
#include "core/result.hpp"
#include "tiers/pinned_pool.hpp"

namespace strata {

enum class SpillState : uint8_t {
  none,     // not on disk
  pending,  // this generation or a later one will be written; can be cancelled
  writing,  // is being written
  clean,    // is published
};

// Where evicted images go; implemented by the disk tier. Null when there is none.
class SpillTarget {
 public:
  virtual ~SpillTarget() = default;
  [[nodiscard]] virtual SpillState spill_state(const Image& image) const = 0;
  virtual bool spill(const ImageRef& image) = 0;  // false: refused, with its own reason
  virtual bool cancel_spill(const Image& image) = 0;
};

class RamTier {
 public:
  struct Entry {
    uint64_t key = 0;
    ImageRef image;
    uint32_t pins = 0;  // transfers and plans under way
    bool held_by_user = false;
    bool spill_refused = false;  // the disk tier will not take it: not asked again
  };
  enum class Drop : uint8_t { evicted_clean, evicted_lost, superseded, forgotten };
  struct Options {
    uint64_t budget_bytes = 0;
    uint32_t max_images = 0;
    uint64_t min_free_bytes = 0;
  };
  // Called for every image that leaves the tier, after it left.
  using OnDrop = std::function<void(const Entry&, Drop)>;

  RamTier(const Options& options, PinnedPool& pool, MemoryProbe& probe, OnDrop on_drop);

  void set_spill_target(SpillTarget* target) { target_ = target; }
  [[nodiscard]] bool on() const { return options_.budget_bytes > 0; }

  // --- users of parts
  void hold(const PartRef& part);
  void release(const PartRef& part);

  // --- room
  // Makes room for `bytes` (sum of class sizes) or says why not, and then nothing was dropped.
  enum class Loss : uint8_t { allowed, forbidden };  // of images that are not on disk yet
  std::optional<SkipReason> make_room(uint64_t bytes, Loss loss = Loss::allowed);
  // How much of `bytes` cannot come from the system without pushing available RAM below the floor.
  Result<uint64_t> short_of_floor(uint64_t bytes);
  // At shutdown nothing unwritten may be dropped to make room: whoever needs room waits for the writer.
  void keep_unwritten() { may_lose_ = false; }
  Result<HostBufferRef> allocate(uint64_t bytes) { return pool_.allocate(bytes); }
  // See PinnedPool::grow_ahead; never below the floor of free memory.
  bool grow_ahead(uint64_t part_bytes);
  // Hands the oldest images to the spill target until enough of the budget can be freed at once.
  void spill_ahead();
  // Everything that is not on disk goes to the spill target (shutdown).
  void spill_all();
  // Lets the oldest image go that nobody uses now: one that is on the disk, or any. False: there is none.
  enum class Evict : uint8_t { stored, any };
  bool evict_one(Evict which);
  // Only one image or slot has this part.
  [[nodiscard]] bool has_one_user(const Part& part) const;
  // Slots' blocks that no image uses: their bytes are in the slot, so the copies can go when nothing else is
  // left.
  void set_slot_copies(std::function<void(std::vector<PartRef>&)> list) {
    list_slot_copies_ = std::move(list);
  }

  // --- images
  // Takes a complete image in; supersedes older states of the same conversation (RAM-5).
  Entry& admit(uint64_t key, ImageRef image);
  Entry* find(uint64_t key);
  Entry* find(ConversationId id);  // its newest state
  void touch(uint64_t key);        // most recently used
  void drop(uint64_t key, Drop why);
  void pin(uint64_t key) { ++find(key)->pins; }
  void unpin(uint64_t key);  // an older state that was held through its replacement goes now

  [[nodiscard]] size_t size() const { return by_key_.size(); }
  [[nodiscard]] const std::list<Entry>& entries() const { return lru_; }  // oldest first
  [[nodiscard]] uint64_t in_use_bytes() const { return pool_.in_use_bytes(); }
  [[nodiscard]] uint64_t budget_bytes() const { return options_.budget_bytes; }
  void note_parked_bytes(uint64_t bytes) {
    largest_park_bytes_ = bytes > largest_park_bytes_ ? bytes : largest_park_bytes_;
  }

 private:
  using Position = std::list<Entry>::iterator;
  struct Victims {
    std::vector<uint64_t> keys;
    std::vector<PartRef> slot_copies;
  };
  [[nodiscard]] bool droppable(const Entry& entry, bool may_lose) const;
  std::optional<Victims> choose_victims(uint64_t bytes, uint64_t reclaim, Loss loss);
  void enforce_count();
  [[nodiscard]] bool is_superseded(const Image& old, const Image& image) const;
  void supersede(const Image& image, uint64_t except_key);
  void drop_superseded(uint64_t key);

  Options options_;
  PinnedPool& pool_;
  MemoryProbe& probe_;
  OnDrop on_drop_;
  SpillTarget* target_ = nullptr;
  std::function<void(std::vector<PartRef>&)> list_slot_copies_;
  std::list<Entry> lru_;
  std::unordered_map<uint64_t, Position> by_key_;
  std::unordered_map<const Part*, uint32_t> users_;
  uint64_t largest_park_bytes_ = 0;
  bool may_lose_ = true;
};

}  // namespace strata
