// The progress of one read or write until all bytes moved, whatever the system does in between.
// Both io plugins ask it where to go on after each result. Owned by one operation; one thread at a time.
#pragma once

#include <cstdint>

#include "plugins/abi/strata_io.h"

namespace strata::sdk {

class Transfer {
 public:
  enum class Next : uint8_t { go_on, finished };

  Transfer() = default;
  explicit Transfer(const strata_io_op& op);

  // What remains: data(), length() and offset() of the next attempt.
  [[nodiscard]] void* data() const { return static_cast<char*>(op_.data) + from_; }
  [[nodiscard]] uint64_t length() const { return op_.length - from_; }
  [[nodiscard]] uint64_t offset() const { return op_.offset + from_; }
  [[nodiscard]] uint32_t kind() const { return op_.kind; }
  [[nodiscard]] int32_t fd() const { return op_.fd; }

  // result: bytes moved by the attempt, or a negative errno. finished: done() is the completion.
  Next advance(int64_t result);
  [[nodiscard]] const strata_io_done& done() const { return done_; }

 private:
  Next finish(strata_status status, int os_errno);
  Next advance_bytes(uint64_t bytes);

  strata_io_op op_{};
  strata_io_done done_{};
  uint64_t from_ = 0;     // where the next attempt begins
  uint64_t reached_ = 0;  // bytes moved so far
  uint64_t align_ = 1;    // attempts begin at multiples of this, as direct I/O demands
  uint32_t retries_ = 0;
  uint32_t barren_ = 0;
};

}  // namespace strata::sdk
