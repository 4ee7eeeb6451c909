// Port: asynchronous transfers on open files with the caller's buffers.
// A completion is always "all bytes" or an error; short transfers, EINTR and EAGAIN are resubmitted inside.
// Ownership: the buffer and the file stay valid until the operation's completion was polled.
// Thread-safety: one thread at a time per instance. Units: bytes, nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/file_system.hpp"
#include "core/result.hpp"

namespace strata {

enum class IoKind : uint8_t { read, write, sync_data };

struct IoOp {
  IoKind kind = IoKind::read;
  FileHandle file;
  std::byte* data = nullptr;  // not written to by a write
  uint64_t length_bytes = 0;
  uint64_t offset = 0;
  uint64_t cookie = 0;  // comes back with the completion
};

struct IoDone {
  uint64_t cookie = 0;
  Status status;
};

struct IoRequirements {
  uint32_t buffer_alignment = 1;
  uint32_t length_alignment = 1;  // of offset and length
  uint32_t max_in_flight = 1;
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;
  [[nodiscard]] virtual IoRequirements requirements() const = 0;
  // Accepts a prefix of `ops` and returns how many. Fewer than all is back-pressure, not an error.
  virtual Result<size_t> submit(std::span<const IoOp> ops) = 0;
  // Waits until at least `min` operations are done or the time is over; returns how many entries were filled.
  // min = 0 never waits.
  virtual Result<size_t> poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) = 0;
  [[nodiscard]] virtual size_t in_flight() const = 0;
  // Makes transfers from this memory cheaper where the system allows it; unsupported is fine to ignore.
  virtual Status register_buffer(std::span<std::byte> memory) = 0;
  virtual Status unregister_buffer(std::span<std::byte> memory) = 0;
};

}  // namespace strata
