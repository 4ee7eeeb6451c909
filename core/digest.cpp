#include "core/digest.hpp"

#include <xxhash.h>
// The library picks the widest vector unit of the processor it runs on; on other processors the plain entry
// is used.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <array>
#include <cstring>
#include <new>

#include "core/check.hpp"

namespace strata {

const char* to_string(PartKind kind) {
  switch (kind) {
    case PartKind::block:
      return "block";
    case PartKind::live:
      return "live";
    case PartKind::checkpoint:
      return "checkpoint";
  }
  return "block";
}

namespace {
Digest from_xxh(XXH128_hash_t hash) { return Digest{hash.low64, hash.high64}; }

// 16 bytes: conversation u64, first u32, stage u16, kind u8, zero u8.
uint64_t place_seed(const PartPlace& place) {
  std::array<std::byte, 16> bytes{};
  std::memcpy(bytes.data(), &place.file.value, 8);
  std::memcpy(bytes.data() + 8, &place.first, 4);
  std::memcpy(bytes.data() + 12, &place.stage, 2);
  // A live state becomes a checkpoint when the conversation goes on: the same bytes, the same place.
  bytes[14] = static_cast<std::byte>(place.kind == PartKind::live ? PartKind::checkpoint : place.kind);
  return hash_bytes(bytes, 0);
}

XXH3_state_t* state_of(void* state) { return static_cast<XXH3_state_t*>(state); }
}  // namespace

Digest digest_bytes(std::span<const std::byte> bytes) {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

Digest digest_part(const PartPlace& place, std::span<const std::byte> bytes) {
  return from_xxh(XXH3_128bits_withSeed(bytes.data(), bytes.size(), place_seed(place)));
}

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

DigestStream::DigestStream() : DigestStream(uint64_t{0}) {}

DigestStream::DigestStream(const PartPlace& place) : DigestStream(place_seed(place)) {}

DigestStream::DigestStream(uint64_t seed) : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  STRATA_CHECK(XXH3_128bits_reset_withSeed(state_of(state_), seed) == XXH_OK);
}

DigestStream::~DigestStream() { XXH3_freeState(state_of(state_)); }

void DigestStream::update(std::span<const std::byte> bytes) {
  STRATA_CHECK(XXH3_128bits_update(state_of(state_), bytes.data(), bytes.size()) == XXH_OK);
}

Digest DigestStream::finish() const { return from_xxh(XXH3_128bits_digest(state_of(state_))); }

}  // namespace strata
