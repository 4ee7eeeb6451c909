// PageSource from mmap. Memory of two megabytes and more begins at a border of huge pages and asks for them
// (MADV_HUGEPAGE); kernels and settings without them give small pages, which work the same. See
// core/page_source.hpp for the contract.
#pragma once

#include "core/page_source.hpp"

namespace strata {

class PosixPageSource final : public PageSource {
 public:
  Result<std::span<std::byte>> reserve(uint64_t bytes) override;
  Status touch(std::span<std::byte> piece) override;
  void give_back(std::span<std::byte> memory) override;
};

}  // namespace strata
