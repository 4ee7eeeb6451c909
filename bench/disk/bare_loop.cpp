#include "bench/disk/bare_loop.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "core/check.hpp"
#include "core/digest.hpp"

namespace strata::bench {
namespace {

uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Loop {
 public:
  Loop(const BareLoop& loop, const std::vector<std::span<std::byte>>& blocks) : loop_(loop), blocks_(blocks) {
    STRATA_CHECK(io_uring_queue_init(loop.depth, &ring_,
                                     IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) == 0);
    if (loop.buffers != Buffers::registered) return;
    std::vector<iovec> memory;
    for (const auto block : blocks) memory.push_back({block.data(), block.size()});
    STRATA_CHECK(io_uring_register_buffers(&ring_, memory.data(), static_cast<unsigned>(memory.size())) == 0);
  }
  ~Loop() { io_uring_queue_exit(&ring_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void run() {
    const bool writes = loop_.direction == Direction::write;
    const int mode = writes ? O_RDWR | O_CREAT : O_RDONLY;
    file_ = ::open(loop_.file.c_str(), mode | O_DIRECT | O_CLOEXEC, 0600);
    STRATA_CHECK(file_ >= 0);
    uint64_t bytes = 0;
    for (const auto block : blocks_) bytes += block.size();
    if (writes) STRATA_CHECK(::fallocate(file_, 0, 0, static_cast<off_t>(bytes)) == 0);
    while (done_ < blocks_.size()) {
      while (next_ < blocks_.size() && next_ - done_ < loop_.depth) submit();
      STRATA_CHECK(io_uring_submit(&ring_) >= 0);
      digest_one();
      wait();
    }
    digest_one();
    if (writes) STRATA_CHECK(::fdatasync(file_) == 0);
    ::close(file_);
  }

 private:
  void submit() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    const auto block = blocks_[next_];
    const auto length = static_cast<unsigned>(block.size());
    const bool fixed = loop_.buffers == Buffers::registered;
    const auto index = static_cast<int>(next_);
    if (loop_.direction == Direction::write && fixed)
      io_uring_prep_write_fixed(entry, file_, block.data(), length, offset_, index);
    else if (loop_.direction == Direction::write)
      io_uring_prep_write(entry, file_, block.data(), length, offset_);
    else if (fixed)
      io_uring_prep_read_fixed(entry, file_, block.data(), length, offset_, index);
    else
      io_uring_prep_read(entry, file_, block.data(), length, offset_);
    io_uring_sqe_set_data64(entry, next_++);
    offset_ += block.size();
  }

  void wait() {
    io_uring_cqe* entry = nullptr;
    STRATA_CHECK(io_uring_wait_cqe(&ring_, &entry) == 0);
    const uint64_t index = io_uring_cqe_get_data64(entry);
    STRATA_CHECK(entry->res == static_cast<int>(blocks_[index].size()));
    io_uring_cqe_seen(&ring_, entry);
    ++done_;
    if (loop_.direction == Direction::read) to_digest_ = index;
  }

  // While others are in flight: what was read last, or what is still to be written.
  void digest_one() {
    if (loop_.digests == Digests::none || to_digest_ >= blocks_.size()) return;
    const auto first = static_cast<uint32_t>(to_digest_);
    sum_ ^= digest_part({ConversationId{1}, 0, first, PartKind::block}, blocks_[to_digest_]).low;
    if (loop_.direction == Direction::write) ++to_digest_;
  }

  const BareLoop& loop_;
  const std::vector<std::span<std::byte>>& blocks_;
  io_uring ring_{};
  int file_ = -1;
  size_t next_ = 0;
  size_t done_ = 0;
  size_t to_digest_ = loop_.direction == Direction::write ? 0 : SIZE_MAX;
  uint64_t offset_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace

uint64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
uint64_t wall_ns() { return clock_ns(CLOCK_MONOTONIC); }

LoopTime run_bare_loop(const BareLoop& wanted, const std::vector<std::span<std::byte>>& blocks) {
  Loop loop(wanted, blocks);
  const uint64_t cpu = thread_cpu_ns();
  const uint64_t start = wall_ns();
  loop.run();
  return {wall_ns() - start, thread_cpu_ns() - cpu};
}

}  // namespace strata::bench
