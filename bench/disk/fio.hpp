// fio as the outside witness: the same blocks and amount through its io_uring engine, O_DIRECT. Runs the
// installed program and waits for it. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/disk/bare_loop.hpp"

namespace strata::bench {

struct FioJob {
  std::string file;
  Direction direction = Direction::write;
  Buffers buffers = Buffers::registered;  // --fixedbufs
  uint32_t depth = 8;
  uint64_t block_bytes = 0;
  uint64_t bytes = 0;
};

[[nodiscard]] bool fio_is_there();
// Bytes a second, by fio's own clock, its fsync included; nothing when fio failed.
[[nodiscard]] std::optional<double> run_fio(const FioJob& job);

}  // namespace strata::bench
