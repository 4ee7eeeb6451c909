// Little-endian fixed-width fields into and out of byte ranges, for the file formats. The writer appends to a
// vector. The reader never reads past its range: it then yields zeros and ok() turns false for good, so that
// a decoder checks once per section. Counts must still be compared with remaining() before anything of their
// size is allocated. One thread at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.hpp"

namespace strata {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in memory");

class ByteWriter {
 public:
  explicit ByteWriter(size_t reserve_bytes) { bytes_.reserve(reserve_bytes); }

  void u16(uint16_t value) { copy(&value, sizeof value); }
  void u32(uint32_t value) { copy(&value, sizeof value); }
  void u64(uint64_t value) { copy(&value, sizeof value); }
  void digest(const Digest& value) {
    u64(value.low);
    u64(value.high);
  }
  void text(std::string_view value) { copy(value.data(), value.size()); }
  template <class T>
  void array(std::span<const T> values) {
    copy(values.data(), values.size_bytes());
  }
  void zeros_up_to(size_t size) {
    if (bytes_.size() < size) bytes_.resize(size);
  }
  void align(size_t alignment) { zeros_up_to((bytes_.size() + alignment - 1) / alignment * alignment); }

  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void copy(const void* from, size_t size) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] uint16_t u16() { return field<uint16_t>(); }
  [[nodiscard]] uint32_t u32() { return field<uint32_t>(); }
  [[nodiscard]] uint64_t u64() { return field<uint64_t>(); }
  [[nodiscard]] Digest digest() {
    const uint64_t low = u64();
    return Digest{low, u64()};
  }
  [[nodiscard]] std::string_view text(size_t size) {
    if (!take(size)) return {};
    return {reinterpret_cast<const char*>(bytes_.data() + at_ - size), size};
  }
  // Fills `to`; the caller has compared its size with remaining() before allocating it.
  template <class T>
  void array(std::span<T> to) {
    if (take(to.size_bytes()) && !to.empty())
      std::memcpy(to.data(), bytes_.data() + at_ - to.size_bytes(), to.size_bytes());
  }
  [[nodiscard]] bool zeros(size_t size) {
    if (!take(size)) return false;
    for (const std::byte value : bytes_.subspan(at_ - size, size))
      if (value != std::byte{0}) return false;
    return true;
  }
  // The bytes up to the next multiple of `alignment` exist and are zero.
  [[nodiscard]] bool align(size_t alignment) {
    return zeros((at_ + alignment - 1) / alignment * alignment - at_);
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] size_t position() const { return at_; }
  [[nodiscard]] size_t remaining() const { return bytes_.size() - at_; }

 private:
  bool take(size_t size) {
    if (!ok_ || size > remaining()) {
      ok_ = false;
      return false;
    }
    at_ += size;
    return true;
  }
  template <class T>
  T field() {
    T value = 0;
    if (take(sizeof value)) std::memcpy(&value, bytes_.data() + at_ - sizeof value, sizeof value);
    return value;
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace strata
