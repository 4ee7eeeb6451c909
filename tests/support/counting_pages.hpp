// A source of pages that counts what is taken, and may have none. One thread.
#pragma once

#include <algorithm>
#include <new>

#include "core/limits.hpp"
#include "core/page_source.hpp"

namespace strata::testing {

class CountingPages final : public PageSource {
 public:
  Result<std::span<std::byte>> reserve(uint64_t bytes) override {
    if (empty) return make_error(ErrorCode::exhausted, "no memory");
    taken_bytes += bytes;
    return std::span(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{limits::kAlignment})),
                     bytes);
  }
  Status touch(std::span<std::byte> piece) override {
    if (untouchable) return make_error(ErrorCode::exhausted, "no memory");
    largest_touch = std::max<uint64_t>(largest_touch, piece.size());
    return {};
  }
  void give_back(std::span<std::byte> memory) override {
    taken_bytes -= memory.size();
    ::operator delete (memory.data(), std::align_val_t{limits::kAlignment});
  }
  bool empty = false;
  bool untouchable = false;
  uint64_t largest_touch = 0;
  uint64_t taken_bytes = 0;
};

}  // namespace strata::testing
