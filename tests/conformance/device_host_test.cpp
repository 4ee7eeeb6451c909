// What the host device does on purpose: it is late, it strays across streams, it poisons, and it fails on
// demand.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plugins/host/device_adapter.hpp"
#include "tests/support/io_world.hpp"
#include "tests/support/plugin_world.hpp"

namespace strata {
namespace {

using testing::AlignedMemory;
using testing::fill_pattern;
using testing::has_pattern;
using testing::PluginWorld;

constexpr size_t kBytes = 4096;

class DeviceHost : public ::testing::Test {
 protected:
  Device& make(const PluginOptions& options) {
    auto device = world_.registry.make_device("host", options);
    EXPECT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    return *device_;
  }
  void* allocate() { return device_->allocate(kBytes)->address; }

  PluginWorld world_;
  AlignedMemory source_{kBytes};
  AlignedMemory target_{kBytes};
  std::unique_ptr<Device> device_;
};

// Field lesson 19: without the event the bytes are really not there.
TEST_F(DeviceHost, NothingMovesBeforeTheEventSaysDone) {
  Device& device = make({{"device_host.delay", "5"}});
  void* const memory = allocate();
  fill_pattern(source_.span(), 0, 1);
  ASSERT_TRUE(device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, {}).ok());
  ASSERT_TRUE(device.copy_async(target_.data(), memory, kBytes, CopyDirection::device_to_host, {}).ok());
  const DeviceEvent event = *device.create_event();
  ASSERT_TRUE(device.record(event, {}).ok());
  for (int query = 0; query < 5; ++query) {
    ASSERT_FALSE(*device.done(event));
    ASSERT_EQ(std::count(target_.span().begin(), target_.span().end(), std::byte{0}), std::ptrdiff_t{kBytes});
  }
  ASSERT_TRUE(*device.done(event));
  EXPECT_TRUE(has_pattern(target_.span(), 0, 1));
}

TEST_F(DeviceHost, ASourceThatChangesTooEarlyIsNoticed) {
  Device& device = make({});
  void* const memory = allocate();
  fill_pattern(source_.span(), 0, 1);
  ASSERT_TRUE(device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, {}).ok());
  fill_pattern(source_.span(), 0, 2);  // the fault: no event was waited for
  ASSERT_TRUE(device.copy_async(target_.data(), memory, kBytes, CopyDirection::device_to_host, {}).ok());
  const DeviceEvent event = *device.create_event();
  ASSERT_TRUE(device.record(event, {}).ok());
  ASSERT_TRUE(device.wait(event).ok());
  EXPECT_TRUE(has_pattern(target_.span(), 0, 2));
}

// With some seed the stream that should have waited runs ahead, with another it does not.
TEST_F(DeviceHost, AMissingStreamWaitIsFound) {
  int stale = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    Device& device = make({{"device_host.seed", std::to_string(seed)}, {"device_host.poison", "1"}});
    void* const memory = allocate();
    const DeviceStream writer = *device.create_stream();
    const DeviceStream reader = *device.create_stream();
    fill_pattern(source_.span(), 0, 4);
    ASSERT_TRUE(
        device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, writer).ok());
    ASSERT_TRUE(
        device.copy_async(target_.data(), memory, kBytes, CopyDirection::device_to_host, reader).ok());
    const DeviceEvent event = *device.create_event();
    ASSERT_TRUE(device.record(event, reader).ok());
    ASSERT_TRUE(device.wait(event).ok());
    stale += has_pattern(target_.span(), 0, 4) ? 0 : 1;
  }
  EXPECT_GT(stale, 10);
  EXPECT_LT(stale, 20);
}

TEST_F(DeviceHost, TheSameSeedGivesTheSameOrder) {
  const auto answers = [&](const char* seed) {
    Device& device = make({{"device_host.seed", seed}});
    void* const memory = allocate();
    std::vector<int> queries;
    const DeviceEvent event = *device.create_event();
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, {}).ok());
      EXPECT_TRUE(device.record(event, {}).ok());
      queries.push_back(0);
      while (!*device.done(event)) ++queries.back();
    }
    return queries;
  };
  const std::vector<int> first = answers("11");
  EXPECT_EQ(first, answers("11"));
  EXPECT_NE(first, answers("12"));
  EXPECT_GE(*std::min_element(first.begin(), first.end()), 1);
  EXPECT_LE(*std::max_element(first.begin(), first.end()), 3);
}

TEST_F(DeviceHost, FreshMemoryIsPoisoned) {
  Device& device = make({{"device_host.poison", "1"}});
  const auto* const memory = static_cast<const std::byte*>(allocate());
  EXPECT_EQ(std::count(memory, memory + kBytes, std::byte{0xff}), std::ptrdiff_t{kBytes});
  EXPECT_TRUE(device.info().ok());
}

TEST_F(DeviceHost, MemoryIsLimitedByOption) {
  Device& device = make({{"device_host.memory_mib", "1"}});
  EXPECT_EQ(device.info()->total_bytes, uint64_t{1} << 20);
  ASSERT_TRUE(device.allocate(1 << 19).ok());
  EXPECT_FALSE(device.allocate((1 << 19) + 1).ok());
  EXPECT_TRUE(device.allocate(1 << 19).ok());
}

TEST_F(DeviceHost, SeveralDevicesCountTheirOwnMemory) {
  auto second = world_.registry.make_device(
      "host", {{"device_host.devices", "2"}, {"device_host.memory_mib", "1"}, {"device_index", "1"}});
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ((*second)->info()->name, "host memory 1");
  ASSERT_TRUE((*second)->allocate(1 << 20).ok());
  EXPECT_EQ((*second)->info()->free_bytes, 0u);
}

TEST_F(DeviceHost, CopiesOutsideOfDeviceMemoryAreRefused) {
  Device& device = make({});
  auto* const memory = static_cast<std::byte*>(allocate());
  const auto refused = [&](void* to, const void* from, CopyDirection direction) {
    const Status status = device.copy_async(to, from, kBytes, direction, {});
    return !status.ok() && status.error().code == ErrorCode::invalid;
  };
  EXPECT_TRUE(refused(memory + 1, source_.data(), CopyDirection::host_to_device));
  EXPECT_TRUE(refused(target_.data(), source_.data(), CopyDirection::host_to_device));
  EXPECT_TRUE(refused(target_.data(), memory + 1, CopyDirection::device_to_host));
  EXPECT_TRUE(refused(memory, target_.data(), CopyDirection::device_to_device));
  EXPECT_TRUE(refused(nullptr, memory, CopyDirection::device_to_host));
  EXPECT_FALSE(device.copy_async(memory, source_.data(), 1, CopyDirection::host_to_device, {memory}).ok());
  EXPECT_FALSE(device.record({memory}, {}).ok());
  EXPECT_FALSE(device.done({memory}).ok());
}

TEST_F(DeviceHost, FaultsComeAtTheirCall) {
  Device& device = make({{"device_host.fail_alloc_at", "2"},
                         {"device_host.fail_copy_at", "3"},
                         {"device_host.fail_register", "1"}});
  void* const memory = allocate();
  EXPECT_EQ(device.allocate(kBytes).error().code, ErrorCode::exhausted);
  EXPECT_TRUE(device.allocate(kBytes).ok());
  for (int call = 1; call <= 4; ++call) {
    EXPECT_EQ(device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, {}).ok(),
              call != 3);
  }
  EXPECT_EQ(device.register_host(source_.span()).error().code, ErrorCode::exhausted);
}

// A copy that fails while it is carried out shows at the event, on its own stream and on those that waited
// for it.
TEST_F(DeviceHost, FailuresOfQueuedCopiesShowAtTheEvent) {
  Device& device = make({{"device_host.fail_execute_at", "1"}});
  void* const memory = allocate();
  const DeviceStream other = *device.create_stream();
  fill_pattern(source_.span(), 0, 1);
  ASSERT_TRUE(device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, {}).ok());
  const DeviceEvent event = *device.create_event();
  ASSERT_TRUE(device.record(event, {}).ok());
  ASSERT_TRUE(device.stream_wait(other, event).ok());
  const DeviceEvent after = *device.create_event();
  ASSERT_TRUE(device.record(after, other).ok());
  EXPECT_EQ(device.wait(event).error().code, ErrorCode::io);
  EXPECT_EQ(device.wait(after).error().code, ErrorCode::io);
  EXPECT_FALSE(has_pattern(std::span(static_cast<const std::byte*>(memory), kBytes), 0, 1));
}

TEST_F(DeviceHost, ABatchIsTheSameAsItsCopies) {
  make({});
  auto& adapter = dynamic_cast<DeviceAdapter&>(*device_);
  auto* const memory = static_cast<std::byte*>(allocate());
  fill_pattern(source_.span(), 0, 6);
  const size_t half = kBytes / 2;
  const strata_copy copies[] = {{memory + half, source_.data(), half}, {memory, source_.data() + half, half}};
  strata_error error{};
  ASSERT_EQ(adapter.table()->copy_batch_async(adapter.instance(), copies, 2, STRATA_COPY_HOST_TO_DEVICE,
                                              nullptr, &error),
            STRATA_OK);
  ASSERT_TRUE(device_->copy_async(target_.data(), memory, kBytes, CopyDirection::device_to_host, {}).ok());
  const DeviceEvent event = *device_->create_event();
  ASSERT_TRUE(device_->record(event, {}).ok());
  ASSERT_TRUE(device_->wait(event).ok());
  EXPECT_TRUE(std::equal(source_.data(), source_.data() + half, target_.data() + half));
  EXPECT_TRUE(std::equal(source_.data() + half, source_.data() + kBytes, target_.data()));
  const strata_copy outside{memory + kBytes, source_.data(), 1};
  EXPECT_EQ(adapter.table()->copy_batch_async(adapter.instance(), &outside, 1, STRATA_COPY_HOST_TO_DEVICE,
                                              nullptr, &error),
            STRATA_INVALID);
}

// Freeing memory and destroying a stream wait for the copies, as on real devices.
TEST_F(DeviceHost, DestroyingAStreamFinishesItsCopies) {
  Device& device = make({{"device_host.delay", "100"}});
  void* const memory = allocate();
  const DeviceStream stream = *device.create_stream();
  fill_pattern(source_.span(), 0, 8);
  ASSERT_TRUE(device.copy_async(memory, source_.data(), kBytes, CopyDirection::host_to_device, stream).ok());
  device.destroy_stream(stream);
  EXPECT_TRUE(has_pattern(std::span(static_cast<const std::byte*>(memory), kBytes), 0, 8));
}

}  // namespace
}  // namespace strata
