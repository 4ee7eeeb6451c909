// The decorators that make an I/O queue and a device fail on demand do what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/faulty_device.hpp"
#include "tests/support/faulty_io_queue.hpp"
#include "tests/support/io_world.hpp"
#include "tests/support/plugin_world.hpp"

namespace strata::testing {
namespace {

constexpr uint64_t kBlock = 4096;

class FaultyQueue : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = *files_.open("/data", OpenMode::create_exclusive, Caching::direct);
    FakeIoQueue::Options options;
    options.seed = 0;
    queue_ = std::make_unique<FaultyIoQueue>(std::make_unique<FakeIoQueue>(files_, clock_, options));
  }
  void submit(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const IoOp op{IoKind::write, file_, memory_.data(), 2 * kBlock, i * 2 * kBlock, 100 + i};
      ASSERT_EQ(*queue_->submit(std::span(&op, 1)), 1u);
    }
  }
  std::vector<IoDone> poll(size_t min) {
    std::vector<IoDone> done(32);
    done.resize(*queue_->poll(min, 1000000000, done));
    return done;
  }

  FakeFileSystem files_;
  FakeClock clock_;
  FileHandle file_;
  AlignedMemory memory_{2 * kBlock};
  std::unique_ptr<FaultyIoQueue> queue_;
};

TEST_F(FaultyQueue, FailsTheNthOperationAlone) {
  queue_->set_faults({.fail_at = 2});
  submit(3);
  for (const IoDone& one : poll(3)) EXPECT_EQ(one.status.ok(), one.cookie != 101) << one.cookie;
  EXPECT_EQ(queue_->injected(), 1u);
  EXPECT_EQ(queue_->submitted(IoKind::write), 3u);
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_F(FaultyQueue, FailsFromThenOn) {
  queue_->set_faults({.fail_at = 2, .fail_from_then_on = true, .error = {ErrorCode::exhausted, 28, "full"}});
  submit(3);
  for (const IoDone& one : poll(3)) {
    ASSERT_EQ(one.status.ok(), one.cookie == 100) << one.cookie;
    if (one.cookie == 101) {
      EXPECT_EQ(one.status.error().code, ErrorCode::exhausted);
    }
  }
}

TEST_F(FaultyQueue, CountsOnlyTheKindItIsToldTo) {
  queue_->set_faults({.fail_at = 1, .only = IoKind::sync_data});
  submit(2);
  const IoOp sync{IoKind::sync_data, file_, nullptr, 0, 0, 500};
  ASSERT_EQ(*queue_->submit(std::span(&sync, 1)), 1u);
  for (const IoDone& one : poll(3)) EXPECT_EQ(one.status.ok(), one.cookie != 500);
}

TEST_F(FaultyQueue, TearsAWrite) {
  queue_->set_faults({.fail_at = 1, .torn = true});
  submit(1);
  const std::vector<IoDone> done = poll(1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_FALSE(done[0].status.ok());
  EXPECT_EQ(files_.get("/data").size(), kBlock);
}

TEST_F(FaultyQueue, HoldsCompletionsBackFromPollsThatDoNotWait) {
  queue_->set_faults({.fail_at = 1, .hold_polls = 2});
  submit(1);
  EXPECT_EQ(poll(0).size(), 0u);
  EXPECT_EQ(poll(0).size(), 0u);
  EXPECT_EQ(queue_->in_flight(), 1u);
  EXPECT_EQ(poll(0).size(), 1u);
  submit(1);
  EXPECT_EQ(poll(1).size(), 1u);  // who waits gets it
}

TEST_F(FaultyQueue, ReordersWhatItFindsTogether) {
  bool changed = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    queue_->set_faults({.reorder_seed = seed});
    submit(4);
    const std::vector<IoDone> done = poll(4);
    ASSERT_EQ(done.size(), 4u);
    const auto by_cookie = [](const IoDone& a, const IoDone& b) { return a.cookie < b.cookie; };
    changed = changed || !std::is_sorted(done.begin(), done.end(), by_cookie);
  }
  EXPECT_TRUE(changed);
}

TEST_F(FaultyQueue, AcceptsOnlyAFew) {
  queue_->set_faults({.accept_at_most = 3});
  const std::vector<IoOp> ops(5, IoOp{IoKind::write, file_, memory_.data(), kBlock, 0, 1});
  EXPECT_EQ(*queue_->submit(ops), 3u);
  EXPECT_EQ(queue_->in_flight(), 3u);
}

TEST_F(FaultyQueue, StandsStillWhilePaused) {
  queue_->set_faults({.fail_at = 1});
  submit(1);
  queue_->set_paused(true);
  std::vector<IoDone> done(1);
  EXPECT_EQ(*queue_->poll(0, 0, done), 0u);
  EXPECT_EQ(*queue_->poll(1, 1000000, done), 0u);
  std::thread resume([&] { queue_->set_paused(false); });
  EXPECT_EQ(*queue_->poll(1, uint64_t{60} * 1000000000, done), 1u);
  resume.join();
}

TEST(FaultyDeviceTest, FailsTheNthCallOfEachKind) {
  PluginWorld world;
  auto inner = world.registry.make_device("host", {});
  ASSERT_TRUE(inner.ok());
  FaultyDevice device(**inner);
  device.set_faults({.fail_allocate_at = 2,
                     .fail_copy_at = 1,
                     .fail_record_at = 2,
                     .fail_finish_at = 2,
                     .fail_register_at = 1});
  const auto memory = device.allocate(4096);
  ASSERT_TRUE(memory.ok());
  EXPECT_FALSE(device.allocate(4096).ok());
  EXPECT_TRUE(device.allocate(4096).ok());
  std::vector<std::byte> source(64);
  const auto copy = [&] {
    return device.copy_async(memory->address, source.data(), 64, CopyDirection::host_to_device, {});
  };
  EXPECT_FALSE(copy().ok());
  EXPECT_TRUE(copy().ok());
  const DeviceEvent event = *device.create_event();
  EXPECT_TRUE(device.record(event, {}).ok());
  EXPECT_FALSE(device.record(event, {}).ok());
  EXPECT_TRUE(device.done(event).ok());
  EXPECT_FALSE(device.wait(event).ok());
  EXPECT_TRUE(device.wait(event).ok());
  EXPECT_FALSE(device.register_host(source).ok());
  EXPECT_EQ(device.injected(), 5u);
  EXPECT_EQ(device.copies(), 2u);
  device.destroy_event(event);
}

TEST(FaultyDeviceTest, AnswersLateAndFailsForEver) {
  PluginWorld world;
  auto inner = world.registry.make_device("host", {{"device_host.delay", "0"}});
  ASSERT_TRUE(inner.ok());
  FaultyDevice device(**inner, {.late_answers = 4});
  const DeviceEvent event = *device.create_event();
  ASSERT_TRUE(device.record(event, {}).ok());
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(*device.done(event));
  EXPECT_TRUE(*device.done(event));
  device.set_faults({.fail_allocate_at = 1, .fail_from_then_on = true});
  EXPECT_FALSE(device.allocate(1).ok());
  EXPECT_FALSE(device.allocate(1).ok());
}

}  // namespace
}  // namespace strata::testing
