// What only io_uring can be asked: files that answer in pieces and late (pipes), and the thread a ring is
// bound to.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/plugin_world.hpp"

namespace strata {
namespace {

using testing::PluginWorld;

constexpr uint64_t kMillisecondNs = 1000000;
constexpr uint64_t kLongNs = 60000 * kMillisecondNs;

class IoUring : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(ends_), 0);
    auto queue = world_.registry.make_io("uring", {});
    if (!queue.ok()) GTEST_SKIP() << queue.error().message;
    queue_ = std::move(*queue);
  }
  void TearDown() override {
    close_end(1);  // ends what still reads
    std::vector<IoDone> done(4);
    if (queue_ && queue_->in_flight() > 0) {
      EXPECT_TRUE(queue_->poll(4, kLongNs, done).ok());
    }
    queue_.reset();
    close_end(0);
  }
  void close_end(int end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  void submit_read(std::span<std::byte> to) {
    const IoOp op{IoKind::read, FileHandle{ends_[0]}, to.data(), to.size(), 0, 7};
    ASSERT_EQ(queue_->submit(std::span(&op, 1)).value_or(0), 1u);
  }
  void feed(const std::string& text) {
    ASSERT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  PluginWorld world_;
  int ends_[2] = {-1, -1};
  std::unique_ptr<IoQueue> queue_;
  std::vector<IoDone> done_ = std::vector<IoDone>(4);
};

TEST_F(IoUring, PollWithoutWaitingReturnsAtOnce) {
  std::vector<std::byte> to(8);
  submit_read(to);
  EXPECT_EQ(queue_->poll(0, kLongNs, done_).value_or(99), 0u);
  EXPECT_EQ(queue_->in_flight(), 1u);
}

TEST_F(IoUring, PollGivesUpAfterItsTimeAndNotBefore) {
  std::vector<std::byte> to(8);
  submit_read(to);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(queue_->poll(1, 20 * kMillisecondNs, done_).value_or(99), 0u);
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited, std::chrono::milliseconds(20));
  EXPECT_LT(waited, std::chrono::seconds(30));
}

TEST_F(IoUring, ShortTransfersGoOnUntilAllBytesAreThere) {
  std::vector<std::byte> to(9);
  submit_read(to);
  for (const char* const piece : {"abc", "defg"}) {
    feed(piece);
    EXPECT_EQ(queue_->poll(1, 5 * kMillisecondNs, done_).value_or(99), 0u) << piece;
  }
  feed("hi");
  ASSERT_EQ(queue_->poll(1, kLongNs, done_).value_or(99), 1u);
  EXPECT_TRUE(done_[0].status.ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(to.data()), to.size()), "abcdefghi");
}

TEST_F(IoUring, AnEndBeforeAllBytesIsAnError) {
  std::vector<std::byte> to(9);
  submit_read(to);
  feed("abc");
  close_end(1);
  ASSERT_EQ(queue_->poll(1, kLongNs, done_).value_or(99), 1u);
  ASSERT_FALSE(done_[0].status.ok());
  EXPECT_EQ(done_[0].status.error().code, ErrorCode::io);
  EXPECT_NE(done_[0].status.error().message.find("short read"), std::string::npos);
}

TEST_F(IoUring, AnotherThreadIsRefusedWhileOperationsAreInFlight) {
  std::vector<std::byte> to(3);
  submit_read(to);
  std::thread([&] {
    const IoOp op{IoKind::sync_data, FileHandle{-1}, nullptr, 0, 0, 8};
    const auto submitted = queue_->submit(std::span(&op, 1));
    ASSERT_FALSE(submitted.ok());
    EXPECT_EQ(submitted.error().code, ErrorCode::unavailable);
    const auto polled = queue_->poll(1, kLongNs, done_);
    ASSERT_FALSE(polled.ok());
    EXPECT_EQ(polled.error().code, ErrorCode::unavailable);
  }).join();
  feed("abc");
  ASSERT_EQ(queue_->poll(1, kLongNs, done_).value_or(99), 1u);
  EXPECT_TRUE(done_[0].status.ok());
}

TEST_F(IoUring, MemoryCannotBeRegisteredTwice) {
  std::vector<std::byte> memory(8192);
  const std::span<std::byte> all(memory);
  if (const Status status = queue_->register_buffer(all); !status.ok())
    GTEST_SKIP() << status.error().message;
  for (const auto part : {all, all.first(1), all.last(1)}) {
    const Status again = queue_->register_buffer(part);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, ErrorCode::invalid);
  }
  EXPECT_TRUE(queue_->unregister_buffer(all).ok());
  EXPECT_TRUE(queue_->register_buffer(all.last(1)).ok());
}

// Everything below runs in a child: it gives something up for good. Returns an exit status.
int expect_posix_instead() {
  PluginWorld world;
  const auto chosen = world.registry.make_io("auto", {});
  if (!chosen.ok() || (*chosen)->register_buffer({}).error().code != ErrorCode::unsupported)
    return 20;  // not posix
  const auto ring = world.registry.make_io("uring", {});
  if (ring.ok()) return 21;
  return ring.error().message.find("io_uring_setup") == std::string::npos ? 22 : 0;
}

int without_memlock() {
  const rlimit nothing{0, 0};
  if (::setrlimit(RLIMIT_MEMLOCK, &nothing) != 0) return 10;
  if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 11;
  io_uring_params parameters{};
  if (::syscall(__NR_io_uring_setup, 64, &parameters) >= 0) return 0;  // this kernel does not count rings
  return expect_posix_instead();
}

// As containers do.
int with_io_uring_forbidden() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 10;
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 11;
  return expect_posix_instead();
}

void expect_in_child(int (*test)()) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(test());
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

// Field lesson 18: where no ring can be made, the next plugin is taken, and the refusal says why.
TEST(IoUringRefused, ByTheMemlockLimitLeavesPosixThreads) { expect_in_child(without_memlock); }
TEST(IoUringRefused, ByAContainerLeavesPosixThreads) { expect_in_child(with_io_uring_forbidden); }

}  // namespace
}  // namespace strata
