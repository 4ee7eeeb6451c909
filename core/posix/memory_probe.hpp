// Available memory: MemAvailable of the machine, or what the process's cgroup (version 2 or 1) leaves if that
// is less. Reads through a FileSystem-independent root so that tests can show it any machine. One thread at a
// time.
#pragma once

#include <string>

#include "core/memory_probe.hpp"

namespace strata {

class PosixMemoryProbe final : public MemoryProbe {
 public:
  // `root` stands in front of /proc and /sys/fs/cgroup, so that a test can show any machine.
  explicit PosixMemoryProbe(std::string root = {}) : root_(std::move(root)) {}
  Result<MemoryState> probe() override;

 private:
  std::string root_;
};

}  // namespace strata
