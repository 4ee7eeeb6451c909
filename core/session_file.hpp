// Header of conv-<id>.sess and of saved session files, and the trailer of a self-contained one.
// Byte tables: docs/session-format.md. Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/limits.hpp"
#include "core/result.hpp"
#include "core/types.hpp"

namespace strata {

inline constexpr uint32_t kSessionVersion = 1;

enum SessionFlags : uint32_t {
  kSessionSelfContained = 1u << 0,
  kSessionEncrypted = 1u << 1,
  kSessionEphemeral = 1u << 2,  // bound to one run
};

struct SessionHeader {
  uint32_t flags = 0;
  uint32_t stage_count = 0;
  ConversationId id;
  uint64_t created_ns = 0;
  Digest model_identity;
  Digest configuration_identity;
  uint32_t tokens_per_block = 0;
  uint32_t alignment = static_cast<uint32_t>(limits::kAlignment);
  bool operator==(const SessionHeader&) const = default;
};

struct SessionTrailer {
  uint64_t manifest_offset = 0;
  uint64_t manifest_length = 0;
  Digest manifest_digest;
  bool operator==(const SessionTrailer&) const = default;
};

inline constexpr size_t kSessionTrailerBytes = 64;

using SessionHeaderBytes = std::array<std::byte, limits::kSessionHeaderBytes>;
using SessionTrailerBytes = std::array<std::byte, kSessionTrailerBytes>;

[[nodiscard]] SessionHeaderBytes encode_session_header(const SessionHeader& header);
// Errors: invalid (not our magic), unsupported (version or flags), corrupt.
Result<SessionHeader> decode_session_header(std::span<const std::byte> bytes);
[[nodiscard]] SessionTrailerBytes encode_session_trailer(const SessionTrailer& trailer);
Result<SessionTrailer> decode_session_trailer(std::span<const std::byte> bytes);
// True when the first bytes carry the magic of one of our files (session file or index): the only ones we may
// remove.
[[nodiscard]] bool has_strata_magic(std::span<const std::byte> first_bytes);

}  // namespace strata
