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
  // Page-aligned, touched already: what is written to it first costs no page faults. In huge pages where the
  // system has them and the size allows. `bytes`: a multiple of the page size. exhausted: there is none.
  virtual Result<std::span<std::byte>> take(uint64_t bytes) = 0;
  virtual void give_back(std::span<std::byte> memory) = 0;
};

}  // namespace strata
