// Port: memory for transfers, straight from the operating system.
// Ownership: the caller gives back what it took, whole. Thread-safe. Units: bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.hpp"

namespace strata {

class PageSource {
 public:
  virtual ~PageSource() = default;
  // Page-aligned; in huge pages where the system has them and the size allows. `bytes`: a multiple of the
  // page size. Not there before it is touched. exhausted: there is none.
  virtual Result<std::span<std::byte>> reserve(uint64_t bytes) = 0;
  // What is written first to touched memory costs no page faults. In pieces, where somebody waits; a piece is
  // page-aligned, in size too. exhausted: there is none.
  virtual Status touch(std::span<std::byte> piece) = 0;
  virtual void give_back(std::span<std::byte> memory) = 0;

  // Reserved and touched.
  Result<std::span<std::byte>> take(uint64_t bytes) {
    STRATA_ASSIGN(const std::span<std::byte> memory, reserve(bytes));
    const Status touched = touch(memory);
    if (touched.ok()) return memory;
    give_back(memory);
    return touched.error();
  }
};

}  // namespace strata
