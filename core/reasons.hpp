// Why a prompt (or its rest) was read again, and why something was refused, skipped or dropped (OBS-1,
// OBS-2). The texts are part of the interface: log lines, timings.cache_reason and metric labels use them.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

enum class ReadReason : uint8_t {
  none,             // everything that could be reused was
  fresh,            // "new": nothing like it is stored
  prefix_changed,   // "prefix_changed@N": a stored conversation agrees up to N only
  evicted,          // its budget was needed for others
  expired,          // older than the TTL
  identity,         // saved by another model or configuration
  no_checkpoint,    // the state cannot be cut and no checkpoint lies before the change
  too_large,        // does not fit the budgets
  cheaper_to_read,  // restoring was predicted to be slower than reading
  corrupt,          // stored bytes failed their check
  io_error,         // the disk failed
};
inline constexpr int kReadReasons = 11;

struct ReadCause {
  ReadReason reason = ReadReason::fresh;
  uint32_t at = 0;  // prefix_changed: the first token that differs
};

[[nodiscard]] const char* label(ReadReason reason);    // "prefix_changed"
[[nodiscard]] std::string to_string(ReadCause cause);  // "prefix_changed@812"

// Why a park, spill, take-in or transfer did not happen.
enum class SkipReason : uint8_t {
  off,             // the tier or the request does not keep anything
  too_large,       // larger than the whole budget
  budget,          // no room that may be taken
  min_free_ram,    // available RAM would fall below the floor
  memory_unknown,  // available RAM cannot be determined
  min_free_disk,   // free disk would fall below the floor
  no_space,        // ENOSPC or quota
  queue_full,      // the writer is behind
  cancelled,       // asked for again before its write started
  superseded,      // a newer state of the same conversation replaced it
  lru,             // evicted as the least recently used
  expired,
  identity,
  version,  // of the file format
  corrupt,
  truncated,  // a file is missing or shorter than its index says
  foreign,    // not ours
  orphan,     // an interrupted write, or data nobody refers to
  io_error,
  no_state,  // the model has nothing to park (checkpoints off)
  needless,  // a continuation is parked already
};
inline constexpr int kSkipReasons = 21;
[[nodiscard]] const char* label(SkipReason reason);

}  // namespace strata
