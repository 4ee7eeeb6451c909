// One conversation's blocks in a pinned pool, written and read as the program does: DiskWriter, Restore with
// DiskReader, the I/O plugin that "auto" means, the session file format. Nothing of it is a model's: a block
// is bytes. Ownership: makes and removes its files. One thread. Ends the program when a step fails, unless
// said otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/disk/bare_loop.hpp"
#include "bench/disk/settings.hpp"
#include "core/image.hpp"
#include "core/result.hpp"

namespace strata::bench {

class TransferRig {
 public:
  explicit TransferRig(const Settings& settings);
  ~TransferRig();
  TransferRig(const TransferRig&) = delete;
  TransferRig& operator=(const TransferRig&) = delete;

  [[nodiscard]] uint64_t bytes() const;
  [[nodiscard]] std::vector<std::span<std::byte>> blocks() const;
  void remove_files();

  LoopTime publish();        // from the job to the published index; remove_files() first
  Result<LoopTime> fetch();  // from the plan to verified bytes in the pool
  // What the blocks hold is what was made at the start.
  [[nodiscard]] bool intact() const;
  void poison();           // so that a read that does not happen shows
  void damage_one_byte();  // in the published file: the control of fetch()
  void mend();             // again

 private:
  struct Parts;
  void flip_byte();
  std::unique_ptr<Parts> parts_;
};

// The pace of the engine loop while only transfers move.
void pause_as_the_engine_does();

}  // namespace strata::bench
