// The contract of the IoQueue port, on every implementation, on a real file system with and without O_DIRECT,
// and on tmpfs. PLG-1: linked-in and loaded plugins pass the same suite. Field lessons 18 and 26.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "tests/support/io_world.hpp"

namespace strata {
namespace {

using testing::AlignedMemory;
using testing::fill_pattern;
using testing::has_pattern;
using testing::IoImplementation;
using testing::IoPlace;
using testing::IoWorld;

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kSecondNs = 1000000000;
constexpr uint64_t kLongNs = 60 * kSecondNs;

std::vector<IoImplementation> implementations() { return testing::io_implementations(STRATA_TEST_PLUGINS); }

struct Parameter {
  size_t implementation = 0;
  IoPlace place = IoPlace::disk_direct;
};

std::string name_of(const Parameter& parameter) {
  return implementations()[parameter.implementation].name + "_" + testing::to_string(parameter.place);
}

void PrintTo(const Parameter& parameter, std::ostream* out) { *out << name_of(parameter); }

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  const std::vector<IoImplementation> known = implementations();
  for (size_t i = 0; i < known.size(); ++i) {
    for (const IoPlace place : known[i].places) all.push_back({i, place});
  }
  return all;
}

class IoQueueConformance : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    auto world = implementations()[GetParam().implementation].make_world(GetParam().place);
    if (!world.ok()) GTEST_SKIP() << world.error().message;
    world_ = std::move(*world);
    auto file =
        world_->files().open(world_->folder() + "/data", OpenMode::create_exclusive, world_->caching());
    if (!file.ok() && file.error().code == ErrorCode::unsupported) GTEST_SKIP() << file.error().message;
    ASSERT_TRUE(file.ok()) << file.error().message;
    file_ = *file;
    make_queue({});
  }
  void TearDown() override {
    queue_.reset();
    if (file_) world_->files().close(file_);
  }

  void make_queue(const PluginOptions& options) {
    auto queue = world_->make_queue(options);
    ASSERT_TRUE(queue.ok()) << queue.error().message;
    queue_ = std::move(*queue);
  }

  [[nodiscard]] IoOp write_op(std::span<std::byte> from, uint64_t offset, uint64_t cookie) const {
    return {IoKind::write, file_, from.data(), from.size(), offset, cookie};
  }
  [[nodiscard]] IoOp read_op(std::span<std::byte> to, uint64_t offset, uint64_t cookie) const {
    return {IoKind::read, file_, to.data(), to.size(), offset, cookie};
  }

  // Submits everything under back-pressure and returns the completions by cookie.
  std::map<uint64_t, Status> run(std::span<const IoOp> ops) {
    std::map<uint64_t, Status> finished;
    size_t next = 0;
    std::vector<IoDone> done(5);
    while (next < ops.size() || queue_->in_flight() > 0) {
      const Result<size_t> accepted = queue_->submit(ops.subspan(next));
      EXPECT_TRUE(accepted.ok());
      if (!accepted.ok()) break;
      next += *accepted;
      EXPECT_LE(queue_->in_flight(), queue_->requirements().max_in_flight);
      const Result<size_t> count = queue_->poll(1, kLongNs, done);
      EXPECT_TRUE(count.ok());
      if (!count.ok()) break;
      for (size_t i = 0; i < *count; ++i) {
        EXPECT_TRUE(finished.emplace(done[i].cookie, done[i].status).second)
            << "completed twice: " << done[i].cookie;
      }
    }
    return finished;
  }

  void expect_done(const IoOp& op) {
    const auto finished = run(std::span(&op, 1));
    ASSERT_EQ(finished.count(op.cookie), 1u);
    EXPECT_TRUE(finished.at(op.cookie).ok()) << finished.at(op.cookie).error().message;
  }

  Error expect_failure(const IoOp& op) {
    const auto finished = run(std::span(&op, 1));
    if (finished.count(op.cookie) != 1 || finished.at(op.cookie).ok()) {
      ADD_FAILURE() << "no error";
      return {};
    }
    return finished.at(op.cookie).error();
  }

  std::unique_ptr<IoWorld> world_;
  FileHandle file_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_P(IoQueueConformance, SaysWhatItNeeds) {
  const IoRequirements needs = queue_->requirements();
  for (const uint32_t alignment : {needs.buffer_alignment, needs.length_alignment}) {
    EXPECT_GT(alignment, 0u);
    EXPECT_EQ(alignment & (alignment - 1), 0u);
    EXPECT_EQ(kBlock % alignment, 0u);  // pinned buffers and extents are aligned to 4096
  }
  EXPECT_GE(needs.max_in_flight, 8u);  // the depth of a restore
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_P(IoQueueConformance, BytesComeBackAsTheyWereWritten) {
  AlignedMemory memory(4 << 20);
  uint64_t cookie = 1;
  uint64_t offset = 0;
  for (const uint64_t length : {kBlock, 3 * kBlock, uint64_t{1} << 20, uint64_t{4} << 20}) {
    const std::span<std::byte> part = memory.span(0, length);
    fill_pattern(part, offset, 1);
    expect_done(write_op(part, offset, cookie++));
    std::fill(part.begin(), part.end(), std::byte{0});
    expect_done(read_op(part, offset, cookie++));
    EXPECT_TRUE(has_pattern(part, offset, 1)) << length;
    offset += length;
  }
}

TEST_P(IoQueueConformance, TheLeastAlignmentItAsksForIsEnough) {
  const IoRequirements needs = queue_->requirements();
  AlignedMemory memory(16 * kBlock);
  fill_pattern(memory.span(0, 2 * kBlock), 0, 1);
  expect_done(write_op(memory.span(0, 2 * kBlock), 0, 1));
  const std::span<std::byte> to = memory.span(8 * kBlock + needs.buffer_alignment, needs.length_alignment);
  expect_done(read_op(to, needs.length_alignment, 2));
  EXPECT_TRUE(has_pattern(to, needs.length_alignment, 1));
}

TEST_P(IoQueueConformance, MoreThanFitsIsBackPressureAndNothingIsLost) {
  const size_t limit = queue_->requirements().max_in_flight;
  const size_t count = 3 * limit + 1;
  AlignedMemory memory(count * kBlock);
  std::vector<IoOp> ops;
  for (size_t i = 0; i < count; ++i) {
    fill_pattern(memory.span(i * kBlock, kBlock), i * kBlock, 2);
    ops.push_back(write_op(memory.span(i * kBlock, kBlock), i * kBlock, 1000 + i));
  }
  const Result<size_t> accepted = queue_->submit(ops);
  ASSERT_TRUE(accepted.ok());
  EXPECT_GT(*accepted, 0u);
  EXPECT_LE(*accepted, limit);
  EXPECT_EQ(queue_->in_flight(), *accepted);
  const auto finished = run(std::span(ops).subspan(*accepted));
  EXPECT_EQ(finished.size(), count);
  for (const auto& [cookie, status] : finished) EXPECT_TRUE(status.ok()) << status.error().message;
  AlignedMemory back(count * kBlock);
  expect_done(read_op(back.span(), 0, 1));
  EXPECT_TRUE(has_pattern(back.span(), 0, 2));
}

TEST_P(IoQueueConformance, AFullQueueAcceptsNothingUntilACompletionWasPolled) {
  const size_t limit = queue_->requirements().max_in_flight;
  AlignedMemory memory(kBlock);
  std::vector<IoOp> ops;
  for (uint64_t i = 0; i <= limit; ++i) ops.push_back(write_op(memory.span(), 0, i));
  size_t accepted = 0;
  while (accepted < limit) {
    const Result<size_t> more = queue_->submit(std::span(ops).first(limit).subspan(accepted));
    ASSERT_TRUE(more.ok());
    ASSERT_GT(*more, 0u);
    accepted += *more;
  }
  EXPECT_EQ(*queue_->submit(std::span(ops).last(1)), 0u);
  std::vector<IoDone> done(1);
  ASSERT_EQ(*queue_->poll(1, kLongNs, done), 1u);
  EXPECT_EQ(queue_->in_flight(), limit - 1);
  EXPECT_EQ(*queue_->submit(std::span(ops).last(1)), 1u);
  EXPECT_EQ(run({}).size(), limit);
}

TEST_P(IoQueueConformance, OperationsStayInFlightUntilTheyArePolled) {
  AlignedMemory memory(4 * kBlock);
  std::vector<IoOp> ops;
  for (uint64_t i = 0; i < 4; ++i) ops.push_back(write_op(memory.span(i * kBlock, kBlock), i * kBlock, i));
  size_t accepted = 0;
  while (accepted < ops.size()) accepted += *queue_->submit(std::span(ops).subspan(accepted));
  std::vector<IoDone> done(1);
  for (size_t left = 4; left > 0; --left) {
    EXPECT_EQ(queue_->in_flight(), left);
    EXPECT_EQ(*queue_->poll(4, kLongNs, done), 1u);  // never more than there is room for
  }
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_P(IoQueueConformance, NothingInFlightIsNotWaitedFor) {
  std::vector<IoDone> done(4);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(*queue_->poll(0, kLongNs, done), 0u);
  EXPECT_EQ(*queue_->poll(1, kLongNs, done), 0u);
  EXPECT_EQ(*queue_->submit({}), 0u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_P(IoQueueConformance, WaitingForMoreThanIsInFlightEndsWithTheLast) {
  AlignedMemory memory(kBlock);
  const IoOp op = write_op(memory.span(), 0, 9);
  ASSERT_EQ(*queue_->submit(std::span(&op, 1)), 1u);
  std::vector<IoDone> done(8);
  EXPECT_EQ(*queue_->poll(8, kLongNs, done), 1u);
  EXPECT_EQ(done[0].cookie, 9u);
}

TEST_P(IoQueueConformance, PollWithoutWaitingSeesEveryCompletionInTheEnd) {
  if (implementations()[GetParam().implementation].name == "fake")
    GTEST_SKIP() << "its time moves only when waited for";
  AlignedMemory memory(16 * kBlock);
  std::vector<IoOp> ops;
  for (uint64_t i = 0; i < 16; ++i) ops.push_back(write_op(memory.span(i * kBlock, kBlock), i * kBlock, i));
  size_t next = 0;
  size_t finished = 0;
  std::vector<IoDone> done(16);
  while (finished < ops.size()) {
    if (next < ops.size()) next += *queue_->submit(std::span(ops).subspan(next));
    finished += *queue_->poll(0, kLongNs, done);
  }
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_P(IoQueueConformance, ABadDescriptorIsAnErrorOfItsOperationAlone) {
  AlignedMemory memory(3 * kBlock);
  std::vector<IoOp> ops;
  for (uint64_t i = 0; i < 3; ++i) ops.push_back(write_op(memory.span(i * kBlock, kBlock), i * kBlock, i));
  ops[1].file = FileHandle{-1};
  const auto finished = run(ops);
  ASSERT_EQ(finished.size(), 3u);
  EXPECT_TRUE(finished.at(0).ok());
  ASSERT_FALSE(finished.at(1).ok());
  EXPECT_FALSE(finished.at(1).error().message.empty());
  EXPECT_TRUE(finished.at(2).ok());
}

TEST_P(IoQueueConformance, AFileOpenForReadingCannotBeWritten) {
  if (implementations()[GetParam().implementation].name == "fake")
    GTEST_SKIP() << "the fake file system does not look";
  auto reader = world_->files().open(world_->folder() + "/data", OpenMode::read, world_->caching());
  ASSERT_TRUE(reader.ok());
  AlignedMemory memory(kBlock);
  IoOp op = write_op(memory.span(), 0, 1);
  op.file = *reader;
  expect_failure(op);
  world_->files().close(*reader);
}

TEST_P(IoQueueConformance, ReadingPastTheEndIsAnErrorAndNeverSilentlyShort) {
  AlignedMemory memory(4 * kBlock);
  expect_done(write_op(memory.span(0, 2 * kBlock), 0, 1));
  ASSERT_TRUE(world_->files().truncate(file_, kBlock + 904).ok());
  for (const uint64_t offset : {uint64_t{0}, kBlock, 2 * kBlock, 64 * kBlock}) {
    const Error error = expect_failure(read_op(memory.span(0, 2 * kBlock), offset, 2));
    EXPECT_EQ(error.code, ErrorCode::io) << offset;
    EXPECT_NE(error.message.find("end of"), std::string::npos) << error.message;
  }
  expect_done(read_op(memory.span(0, kBlock), 0, 3));
}

TEST_P(IoQueueConformance, SyncCompletesAndFailsLikeAnyOperation) {
  AlignedMemory memory(kBlock);
  expect_done(write_op(memory.span(), 0, 1));
  expect_done(IoOp{IoKind::sync_data, file_, nullptr, 0, 0, 77});
  expect_failure(IoOp{IoKind::sync_data, FileHandle{-1}, nullptr, 0, 0, 78});
}

TEST_P(IoQueueConformance, RegisteredMemoryMovesTheSameBytes) {
  AlignedMemory memory(64 * kBlock);
  const std::span<std::byte> registered = memory.span(16 * kBlock, 32 * kBlock);
  const Status status = queue_->register_buffer(registered);
  if (!status.ok()) {
    EXPECT_TRUE(status.error().code == ErrorCode::unsupported || status.error().code == ErrorCode::exhausted)
        << status.error().message;
  }
  // Inside, across both edges and outside of the registered part.
  uint64_t cookie = 1;
  for (const uint64_t first :
       {uint64_t{16}, uint64_t{20}, uint64_t{47}, uint64_t{12}, uint64_t{44}, uint64_t{0}}) {
    const std::span<std::byte> part = memory.span(first * kBlock, (first == 47 ? 1 : 8) * kBlock);
    fill_pattern(part, first * kBlock, cookie);
    expect_done(write_op(part, first * kBlock, cookie));
    std::fill(part.begin(), part.end(), std::byte{0});
    expect_done(read_op(part, first * kBlock, cookie));
    EXPECT_TRUE(has_pattern(part, first * kBlock, cookie)) << first;
    ++cookie;
  }
  if (status.ok()) {
    EXPECT_TRUE(queue_->unregister_buffer(registered).ok());
    EXPECT_FALSE(queue_->unregister_buffer(registered).ok());
  }
  expect_done(write_op(registered.first(kBlock), 0, cookie));
}

// In a child, which gives up what lets root lock memory without a limit.
int use_refused_registration(IoQueue& queue, FileHandle file) {
  constexpr size_t kBytes = 4 << 20;
  const rlimit enough_for_a_ring{kBytes / 4, kBytes / 4};
  if (::setrlimit(RLIMIT_MEMLOCK, &enough_for_a_ring) != 0) return 10;
  if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 11;
  AlignedMemory memory(kBytes);
  const Status status = queue.register_buffer(memory.span());
  if (status.ok()) return 12;
  if (status.error().code != ErrorCode::exhausted && status.error().code != ErrorCode::unsupported) return 13;
  for (const IoKind kind : {IoKind::write, IoKind::read}) {
    if (kind == IoKind::write)
      fill_pattern(memory.span(), 0, 3);
    else
      std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
    const IoOp op{kind, file, memory.data(), kBytes, 0, 1};
    std::vector<IoDone> done(1);
    if (queue.submit(std::span(&op, 1)).value_or(0) != 1) return 14;
    if (queue.poll(1, kLongNs, done).value_or(0) != 1 || !done[0].status.ok()) return 15;
  }
  return has_pattern(memory.span(), 0, 3) ? 0 : 16;
}

TEST_P(IoQueueConformance, RegistrationRefusedByTheMemlockLimitLeavesTransfersWorking) {
  if (implementations()[GetParam().implementation].name == "fake") GTEST_SKIP() << "the fake locks no memory";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(use_refused_registration(*queue_, file_));
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  ASSERT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

TEST_P(IoQueueConformance, ManyRandomOperationsKeepTheFileAsExpected) {
  constexpr size_t kBlocks = 128;
  constexpr size_t kOperations = 3000;
  constexpr size_t kLongest = 5;
  struct Running {
    size_t first = 0;
    size_t count = 0;
    uint64_t version = 0;  // 0: a read
    size_t buffer = 0;
  };
  std::mt19937_64 random(42);
  const size_t depth = queue_->requirements().max_in_flight;
  AlignedMemory memory(std::max(depth * kLongest, kBlocks) * kBlock);
  std::vector<uint64_t> version(kBlocks, 1);
  for (size_t i = 0; i < kBlocks; ++i) fill_pattern(memory.span(i * kBlock, kBlock), i * kBlock, 1);
  expect_done(write_op(memory.span(0, kBlocks * kBlock), 0, 0));
  (void)queue_->register_buffer(
      memory.span(0, depth * kLongest / 2 * kBlock));  // some plain, some registered

  std::vector<bool> busy(kBlocks, false);
  std::vector<size_t> free_buffers;
  for (size_t i = 0; i < depth; ++i) free_buffers.push_back(i);
  std::map<uint64_t, Running> running;
  std::vector<IoDone> done(16);
  uint64_t cookie = 0;
  while (cookie < kOperations || !running.empty()) {
    const Running next{random() % kBlocks, 1 + random() % kLongest, random() % 2 == 0 ? 0 : cookie + 2, 0};
    bool possible = cookie < kOperations && !free_buffers.empty() && next.first + next.count <= kBlocks;
    for (size_t i = 0; possible && i < next.count; ++i) possible = !busy[next.first + i];
    if (possible) {
      Running op = next;
      op.buffer = free_buffers.back();
      const std::span<std::byte> buffer = memory.span(op.buffer * kLongest * kBlock, op.count * kBlock);
      const uint64_t offset = op.first * kBlock;
      if (op.version != 0) fill_pattern(buffer, offset, op.version);
      const IoOp io = op.version != 0 ? write_op(buffer, offset, cookie) : read_op(buffer, offset, cookie);
      const Result<size_t> accepted = queue_->submit(std::span(&io, 1));
      ASSERT_TRUE(accepted.ok());
      if (*accepted == 1) {
        free_buffers.pop_back();
        for (size_t i = 0; i < op.count; ++i) busy[op.first + i] = true;
        running.emplace(cookie++, op);
      }
    }
    const bool wait = running.size() == depth || cookie == kOperations || random() % 8 == 0;
    const Result<size_t> count = queue_->poll(wait ? 1 : 0, kLongNs, done);
    ASSERT_TRUE(count.ok());
    for (size_t n = 0; n < *count; ++n) {
      ASSERT_TRUE(done[n].status.ok()) << done[n].status.error().message;
      const auto found = running.find(done[n].cookie);
      ASSERT_NE(found, running.end());
      const Running& op = found->second;
      for (size_t i = 0; i < op.count; ++i) {
        const size_t block = op.first + i;
        busy[block] = false;
        if (op.version != 0) version[block] = op.version;
        const auto bytes = memory.span((op.buffer * kLongest + i) * kBlock, kBlock);
        ASSERT_TRUE(has_pattern(bytes, block * kBlock, version[block])) << "block " << block;
      }
      free_buffers.push_back(op.buffer);
      running.erase(found);
    }
  }
}

TEST_P(IoQueueConformance, AnotherThreadMayGoOnWhenNothingIsInFlight) {
  AlignedMemory memory(4 * kBlock);
  (void)queue_->register_buffer(memory.span());
  expect_done(write_op(memory.span(0, kBlock), 0, 1));
  std::thread([&] {
    fill_pattern(memory.span(0, kBlock), 0, 5);
    expect_done(write_op(memory.span(0, kBlock), 0, 2));
  }).join();
  expect_done(read_op(memory.span(kBlock, kBlock), 0, 3));
  EXPECT_TRUE(has_pattern(memory.span(kBlock, kBlock), 0, 5));
}

TEST_P(IoQueueConformance, QueuesComeAndGo) {
  AlignedMemory memory(kBlock);
  for (uint64_t i = 0; i < 20; ++i) {
    make_queue({});
    (void)queue_->register_buffer(memory.span());
    expect_done(write_op(memory.span(), 0, i));
  }
}

TEST_P(IoQueueConformance, TwoQueuesDoNotMixTheirOperations) {
  auto other = world_->make_queue({});
  ASSERT_TRUE(other.ok());
  AlignedMemory memory(2 * kBlock);
  const IoOp first = write_op(memory.span(0, kBlock), 0, 11);
  const IoOp second = write_op(memory.span(kBlock, kBlock), kBlock, 22);
  ASSERT_EQ(*queue_->submit(std::span(&first, 1)), 1u);
  ASSERT_EQ(*(*other)->submit(std::span(&second, 1)), 1u);
  std::vector<IoDone> done(2);
  ASSERT_EQ(*(*other)->poll(2, kLongNs, done), 1u);
  EXPECT_EQ(done[0].cookie, 22u);
  ASSERT_EQ(*queue_->poll(2, kLongNs, done), 1u);
  EXPECT_EQ(done[0].cookie, 11u);
}

INSTANTIATE_TEST_SUITE_P(AllQueues, IoQueueConformance, ::testing::ValuesIn(parameters()),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace strata
