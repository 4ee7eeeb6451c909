#include "core/posix/page_source.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "core/limits.hpp"

namespace strata {
namespace {

constexpr uint64_t kHugePage = 2 * limits::kMiB;

Error refused(uint64_t bytes) {
  return Error{ErrorCode::exhausted, errno, "the system has no " + std::to_string(bytes) + " bytes"};
}

// From a border of huge pages on: more is mapped than needed, and the ends are given back.
std::byte* map_aligned(uint64_t bytes) {
  const uint64_t whole = bytes + kHugePage;
  void* const mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  const uint64_t skip = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (skip > 0) ::munmap(first, skip);
  ::munmap(first + skip + bytes, kHugePage - skip);
  return first + skip;
}

std::byte* map_plain(uint64_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

}  // namespace

Result<std::span<std::byte>> PosixPageSource::reserve(uint64_t bytes) {
  const bool huge = bytes >= kHugePage;
  std::byte* const memory = huge ? map_aligned(bytes) : map_plain(bytes);
  if (memory == nullptr) return refused(bytes);
  if (huge) (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  return std::span(memory, bytes);
}

// Kernels before 5.14 are told page by page.
Status PosixPageSource::touch(std::span<std::byte> piece) {
  if (::madvise(piece.data(), piece.size(), MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) return refused(piece.size());
  for (uint64_t at = 0; at < piece.size(); at += limits::kAlignment) {
    volatile std::byte* const page = piece.data() + at;
    *page = std::byte{0};
  }
  return {};
}

void PosixPageSource::give_back(std::span<std::byte> memory) { ::munmap(memory.data(), memory.size()); }

}  // namespace strata
