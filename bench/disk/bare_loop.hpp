// The bare loop: io_uring with nothing around it. The limit beside which the real transfers are measured: the
// same blocks, depth and memory, O_DIRECT, registered buffers, no digest unless asked for, no format.
// Ownership: memory is the caller's. One thread. Units: bytes, nanoseconds. Ends the program on an I/O error:
// there is nothing to compare with then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata::bench {

enum class Direction : uint8_t { read, write };
enum class Buffers : uint8_t { registered, plain };
enum class Digests : uint8_t { none, each_block };

struct BareLoop {
  std::string file;  // written: created or overwritten, blocks one behind the other
  Direction direction = Direction::write;
  Buffers buffers = Buffers::registered;
  Digests digests = Digests::none;
  uint32_t depth = 8;
};

struct LoopTime {
  uint64_t wall_ns = 0;
  uint64_t cpu_ns = 0;  // of this thread
};

// From before the open to after fdatasync (writing) or the last byte (reading).
LoopTime run_bare_loop(const BareLoop& loop, const std::vector<std::span<std::byte>>& blocks);

[[nodiscard]] uint64_t thread_cpu_ns();
[[nodiscard]] uint64_t wall_ns();

}  // namespace strata::bench
