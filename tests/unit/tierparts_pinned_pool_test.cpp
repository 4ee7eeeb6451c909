// RAM-1, invariant 3: pinned bytes stay within the budget, counted to the byte.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/limits.hpp"
#include "tests/support/counting_pages.hpp"
#include "tiers/pinned_pool.hpp"

namespace strata {
namespace {

using testing::CountingPages;

using limits::kKiB;
using limits::kMiB;

class CountingLog final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    levels.push_back(level);
    lines.emplace_back(line);
  }
  std::vector<LogLevel> levels;
  std::vector<std::string> lines;
};

// Registers host memory until told to refuse; everything else is out of this test's reach.
class RegisteringDevice final : public Device {
 public:
  Result<DeviceInfo> info() override { return unsupported(); }
  Result<DeviceMemory> allocate(uint64_t) override { return unsupported(); }
  void free(DeviceMemory) override {}
  Status register_host(std::span<std::byte> memory) override {
    ++attempts;
    if (attempts > refuse_after) return make_error(refusal, "memlock limit reached");
    EXPECT_TRUE(registered.insert(memory.data()).second);
    registered_bytes += memory.size();
    return {};
  }
  Status unregister_host(std::span<std::byte> memory) override {
    EXPECT_EQ(registered.erase(memory.data()), 1u);
    registered_bytes -= memory.size();
    return {};
  }
  Result<DeviceStream> create_stream() override { return unsupported(); }
  void destroy_stream(DeviceStream) override {}
  Status copy_async(void*, const void*, uint64_t, CopyDirection, DeviceStream) override {
    return unsupported();
  }
  Result<DeviceEvent> create_event() override { return unsupported(); }
  void destroy_event(DeviceEvent) override {}
  Status record(DeviceEvent, DeviceStream) override { return unsupported(); }
  Result<bool> done(DeviceEvent) override { return unsupported(); }
  Status wait(DeviceEvent) override { return unsupported(); }
  Status stream_wait(DeviceStream, DeviceEvent) override { return unsupported(); }

  int attempts = 0;
  int refuse_after = std::numeric_limits<int>::max();
  ErrorCode refusal = ErrorCode::io;
  std::set<const std::byte*> registered;
  uint64_t registered_bytes = 0;

 private:
  static Error unsupported() { return make_error(ErrorCode::unsupported, "not in this test"); }
};

TEST(PinnedPool, ClassesArePagesAndWasteAtMostAQuarter) {
  EXPECT_EQ(PinnedPool::class_bytes(0), 4 * kKiB);
  EXPECT_EQ(PinnedPool::class_bytes(1), 4 * kKiB);
  EXPECT_EQ(PinnedPool::class_bytes(16 * kMiB), 16 * kMiB);
  EXPECT_EQ(PinnedPool::class_bytes(16 * kMiB + 1), 20 * kMiB);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bytes = random() % (uint64_t{1} << (12 + random() % 30)) + 1;
    const uint64_t size = PinnedPool::class_bytes(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % limits::kAlignment, 0u);
    ASSERT_LE(size, align_up(bytes, limits::kAlignment) * 5 / 4) << bytes;
    ASSERT_EQ(PinnedPool::class_bytes(size), size) << "a class is its own class";
  }
  EXPECT_GT(PinnedPool::class_bytes(std::numeric_limits<uint64_t>::max()), uint64_t{1} << 62);
}

TEST(PinnedPool, RAM1_NeverAboveTheBudgetOverRandomHistories) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    RegisteringDevice device;
    CountingLog log;
    const uint64_t budget = 4 * kMiB + random() % kMiB;
    std::vector<HostBufferRef> held;
    {
      PinnedPool pool(device, log, budget);
      uint64_t in_use = 0;
      for (int step = 0; step < 2000; ++step) {
        const uint32_t action = random() % 10;
        if (action < 5) {
          const uint64_t bytes = 1 + random() % (random() % 4 == 0 ? 2 * kMiB : 64 * kKiB);
          const uint64_t size = PinnedPool::class_bytes(bytes);
          auto buffer = pool.allocate(bytes);
          ASSERT_EQ(buffer.ok(), in_use + size <= budget)
              << "refused exactly when what is in use leaves no room";
          if (buffer.ok()) {
            in_use += size;
            ASSERT_EQ((*buffer)->bytes().size(), size);
            ASSERT_EQ(reinterpret_cast<uintptr_t>((*buffer)->bytes().data()) % limits::kAlignment, 0u);
            (*buffer)->bytes().front() = (*buffer)->bytes().back() = static_cast<std::byte>(step);
            held.push_back(*buffer);
          } else {
            ASSERT_EQ(buffer.error().code, ErrorCode::exhausted);
          }
        } else if (action < 9 && !held.empty()) {
          std::swap(held[random() % held.size()], held.back());
          in_use -= held.back()->bytes().size();
          held.pop_back();
        } else if (action == 9) {
          const uint64_t wanted = random() % budget;
          pool.trim(wanted);
          ASSERT_TRUE(budget - pool.allocated_bytes() >= wanted ||
                      pool.allocated_bytes() == pool.in_use_bytes());
        }
        ASSERT_EQ(pool.in_use_bytes(), in_use);
        ASSERT_LE(pool.allocated_bytes(), pool.budget_bytes());
        ASSERT_GE(pool.allocated_bytes(), pool.in_use_bytes());
        ASSERT_EQ(device.registered_bytes, pool.allocated_bytes())
            << "all of it is registered, and nothing else";
      }
    }
    held.clear();
    ASSERT_EQ(device.registered_bytes, 0u);
    ASSERT_TRUE(log.lines.empty());
  }
}

TEST(PinnedPool, AReleasedBufferIsReusedAndGivenUpForAnotherClass) {
  RegisteringDevice device;
  CountingLog log;
  PinnedPool pool(device, log, kMiB);
  auto first = pool.allocate(512 * kKiB);
  ASSERT_TRUE(first.ok());
  const std::byte* address = (*first)->bytes().data();
  first->reset();
  EXPECT_EQ(pool.in_use_bytes(), 0u);
  EXPECT_EQ(pool.allocated_bytes(), 512 * kKiB);
  auto again = pool.allocate(500 * kKiB);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->bytes().data(), address);
  EXPECT_EQ(device.attempts, 1) << "registered once";
  again->reset();
  ASSERT_TRUE(pool.allocate(768 * kKiB).ok()) << "the kept buffer makes room";
}

TEST(PinnedPool, BuffersOutliveThePool) {
  RegisteringDevice device;
  CountingLog log;
  HostBufferRef survivor;
  {
    PinnedPool pool(device, log, kMiB);
    auto buffer = pool.allocate(8 * kKiB);
    ASSERT_TRUE(buffer.ok());
    survivor = *buffer;
  }
  std::memset(survivor->bytes().data(), 1, survivor->bytes().size());
  EXPECT_EQ(device.registered_bytes, 8 * kKiB);
  survivor.reset();
  EXPECT_EQ(device.registered_bytes, 0u);
}

TEST(PinnedPool, ARefusedRegistrationIsSaidOnceAndPlainMemoryIsUsed) {
  for (const ErrorCode refusal : {ErrorCode::io, ErrorCode::unsupported}) {
    RegisteringDevice device;
    device.refuse_after = 1;
    device.refusal = refusal;
    CountingLog log;
    {
      PinnedPool pool(device, log, kMiB);
      std::vector<HostBufferRef> held;
      for (int i = 0; i < 8; ++i) {
        auto buffer = pool.allocate(16 * kKiB);
        ASSERT_TRUE(buffer.ok());
        std::memset((*buffer)->bytes().data(), 1, 16 * kKiB);
        held.push_back(*buffer);
      }
      EXPECT_EQ(device.attempts, 2) << "one success, one refusal, never asked again";
    }
    ASSERT_EQ(log.lines.size(), 1u);
    EXPECT_NE(log.lines[0].find("memlock limit reached"), std::string::npos);
    EXPECT_EQ(log.levels[0], refusal == ErrorCode::unsupported ? LogLevel::info : LogLevel::warning);
    EXPECT_EQ(device.registered_bytes, 0u) << "only what was registered is unregistered";
  }
}

// Registers buffers until told to refuse.
class RegisteringQueue final : public IoQueue {
 public:
  [[nodiscard]] IoRequirements requirements() const override { return {}; }
  Result<size_t> submit(std::span<const IoOp>) override { return size_t{0}; }
  Result<size_t> poll(size_t, uint64_t, std::span<IoDone>) override { return size_t{0}; }
  [[nodiscard]] size_t in_flight() const override { return 0; }
  Status register_buffer(std::span<std::byte> memory) override {
    if (++attempts > refuse_after) return make_error(refusal, "memlock limit");
    EXPECT_TRUE(registered.insert(memory.data()).second);
    return {};
  }
  Status unregister_buffer(std::span<std::byte> memory) override {
    EXPECT_EQ(registered.erase(memory.data()), 1u);
    return {};
  }
  int attempts = 0;
  int refuse_after = std::numeric_limits<int>::max();
  ErrorCode refusal = ErrorCode::exhausted;
  std::set<const std::byte*> registered;
};

TEST(PinnedPool, LargeBuffersComeFromThePageSourceAndAreRegisteredForTransfers) {
  RegisteringDevice device;
  CountingLog log;
  CountingPages pages;
  RegisteringQueue queue;
  HostBufferRef survivor;
  {
    PinnedPool pool(device, log, 64 * kMiB, {&pages, &queue});
    ASSERT_TRUE(pool.allocate(kMiB).ok()) << "a small one comes from the allocator";
    EXPECT_EQ(pages.taken_bytes, 0u);
    EXPECT_EQ(queue.attempts, 0);
    survivor = *pool.allocate(16 * kMiB);
    { const auto second = pool.allocate(16 * kMiB); }
    EXPECT_EQ(pages.taken_bytes, 32 * kMiB);
    EXPECT_EQ(queue.registered.size(), 2u);
    ASSERT_TRUE(pool.allocate(40 * kMiB).ok()) << "the kept one makes room";
    EXPECT_EQ(pages.taken_bytes, 16 * kMiB + 40 * kMiB);
    EXPECT_EQ(queue.registered.size(), 2u) << "what went back to the system is registered no more";
  }
  EXPECT_EQ(queue.registered.size(), 1u);
  survivor.reset();
  EXPECT_TRUE(queue.registered.empty());
  EXPECT_EQ(pages.taken_bytes, 0u);
  EXPECT_TRUE(log.lines.empty());
}

TEST(PinnedPool, ARefusedRegistrationForTransfersIsSaidOnceUnlessItIsTheQueuesNature) {
  for (const ErrorCode refusal : {ErrorCode::exhausted, ErrorCode::unsupported}) {
    RegisteringDevice device;
    CountingLog log;
    CountingPages pages;
    RegisteringQueue queue;
    queue.refuse_after = 1;
    queue.refusal = refusal;
    {
      PinnedPool pool(device, log, 64 * kMiB, {&pages, &queue});
      std::vector<HostBufferRef> held;
      for (int i = 0; i < 6; ++i) held.push_back(*pool.allocate(4 * kMiB));
      EXPECT_EQ(queue.attempts, 2) << "one success, one refusal, never asked again";
    }
    EXPECT_TRUE(queue.registered.empty());
    ASSERT_EQ(log.lines.size(), refusal == ErrorCode::unsupported ? 0u : 1u);
    for (const std::string& line : log.lines) EXPECT_NE(line.find("memlock limit"), std::string::npos);
  }
}

TEST(PinnedPool, RAM1_ItGrowsAheadUpToTheBudgetAndNoFurther) {
  RegisteringDevice device;
  CountingLog log;
  CountingPages pages;
  PinnedPool pool(device, log, 40 * kMiB, {&pages, nullptr});
  EXPECT_FALSE(pool.grow_ahead(kMiB)) << "small ones are not made ahead";
  for (int step = 0; step < 2 * 8; ++step) EXPECT_TRUE(pool.grow_ahead(16 * kMiB)) << "step " << step;
  EXPECT_FALSE(pool.grow_ahead(16 * kMiB));
  EXPECT_EQ(pool.allocated_bytes(), 32 * kMiB);
  EXPECT_EQ(pool.in_use_bytes(), 0u);
  EXPECT_EQ(pages.largest_touch, 2 * kMiB) << "a request that comes meanwhile waits for no more";
  ASSERT_TRUE(pool.allocate(16 * kMiB).ok());
  EXPECT_EQ(pages.taken_bytes, 32 * kMiB) << "a kept one was used";
  pages.empty = true;
  pool.trim(40 * kMiB);
  EXPECT_FALSE(pool.grow_ahead(16 * kMiB)) << "the system has no memory";
  EXPECT_EQ(pool.allocate(16 * kMiB).error().code, ErrorCode::exhausted);
  PinnedPool plain(device, log, 40 * kMiB);
  EXPECT_FALSE(plain.grow_ahead(16 * kMiB)) << "without a page source nothing is touched ahead";
}

// A slab that is a little too large and there is better than a new one, while there is room.
TEST(PinnedPool, RAM1_AKeptSlabOfTheNextClassServesWhileThereIsRoom) {
  RegisteringDevice device;
  CountingLog log;
  CountingPages pages;
  PinnedPool pool(device, log, 64 * kMiB, {&pages, nullptr});
  { const auto buffer = pool.allocate(6 * kMiB); }
  auto near = *pool.allocate(5 * kMiB);
  EXPECT_EQ(pages.taken_bytes, 6 * kMiB) << "none was made";
  EXPECT_EQ(near->bytes().size(), 6 * kMiB);
  EXPECT_EQ(pool.in_use_bytes(), 6 * kMiB) << "counted as what it is";
  near.reset();
  const auto far = *pool.allocate(4 * kMiB);
  EXPECT_EQ(far->bytes().size(), 4 * kMiB) << "half as large again is too large";
  const auto much = *pool.allocate(40 * kMiB);
  const auto exact = *pool.allocate(5 * kMiB);
  EXPECT_EQ(exact->bytes().size(), 5 * kMiB) << "beyond half of the budget every byte counts";
  EXPECT_LE(pool.allocated_bytes(), 64 * kMiB);
}

TEST(PinnedPool, RAM1_WhatGrowsAheadGivesWayAndIsCounted) {
  RegisteringDevice device;
  CountingLog log;
  CountingPages pages;
  {
    PinnedPool pool(device, log, 40 * kMiB, {&pages, nullptr});
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(pool.grow_ahead(16 * kMiB));
    EXPECT_EQ(pool.allocated_bytes(), 16 * kMiB) << "also before it is done";
    EXPECT_TRUE(pool.grow_ahead(8 * kMiB)) << "another size begins anew";
    EXPECT_EQ(pool.allocated_bytes(), 8 * kMiB);
    ASSERT_TRUE(pool.allocate(40 * kMiB).ok());
    EXPECT_EQ(pool.allocated_bytes(), 40 * kMiB) << "the room was needed";
    pool.trim(40 * kMiB);
    EXPECT_TRUE(pool.grow_ahead(16 * kMiB));
    pages.untouchable = true;
    EXPECT_FALSE(pool.grow_ahead(16 * kMiB));
    EXPECT_EQ(pool.allocated_bytes(), 0u) << "what cannot be touched goes back";
    EXPECT_EQ(pool.allocate(16 * kMiB).error().code, ErrorCode::exhausted);
    pages.untouchable = false;
    EXPECT_TRUE(pool.grow_ahead(16 * kMiB));
  }
  EXPECT_EQ(pages.taken_bytes, 0u);
}

TEST(PinnedPool, AnAbsurdSizeIsRefused) {
  RegisteringDevice device;
  CountingLog log;
  PinnedPool pool(device, log, std::numeric_limits<uint64_t>::max());
  const auto buffer = pool.allocate(uint64_t{1} << 61);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::exhausted);
  EXPECT_EQ(pool.allocated_bytes(), 0u);
}

}  // namespace
}  // namespace strata
