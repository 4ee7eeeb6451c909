// DiskReader: asynchronous reads of the engine loop through one IoQueue; more reads than the queue takes wait
// here. A read is handed to the queue at once where it has room, so that the disk works on while the caller
// does. Ownership: buffer and file stay valid until the callback ran. One thread at a time. Never waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/io_queue.hpp"

namespace strata {

class DiskReader {
 public:
  using Done = std::function<void(Status)>;

  explicit DiskReader(IoQueue& queue) : queue_(queue) {}
  // `done` is called by a later poll(), exactly once.
  void read(FileHandle file, std::span<std::byte> to, uint64_t offset, Done done);
  // Submits what waits, runs the callbacks of what is done. True when reads are still under way.
  bool poll();
  // Waits for everything under way; for owners of buffers that go away.
  void drain();
  [[nodiscard]] bool idle() const { return running_.empty(); }

 private:
  void submit_waiting();
  size_t report_refused();
  size_t collect(size_t min, uint64_t timeout_ns);

  IoQueue& queue_;
  std::deque<IoOp> waiting_;
  std::deque<std::pair<uint64_t, Error>> refused_;  // by the queue; reported by the next poll
  std::unordered_map<uint64_t, Done> running_;      // all that did not report yet, by cookie
  uint64_t next_cookie_ = 1;
};

}  // namespace strata
