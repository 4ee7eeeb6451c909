// The contract of the Device port, on every implementation. PLG-1: linked-in and loaded plugins pass the same
// suite. Field lesson 19: copies are in stream order, other streams need an event.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/device_world.hpp"
#include "tests/support/io_world.hpp"

namespace strata {
namespace {

using testing::AlignedMemory;
using testing::DeviceImplementation;
using testing::DeviceWorld;
using testing::fill_pattern;
using testing::has_pattern;

constexpr size_t kBytes = 64 << 10;
constexpr int kMostQueries = 1000000;

std::vector<DeviceImplementation> implementations() {
  return testing::device_implementations(STRATA_TEST_PLUGINS);
}

class DeviceConformance : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    auto world = implementations()[GetParam()].make_world();
    if (!world.ok()) GTEST_SKIP() << world.error().message;
    world_ = std::move(*world);
    auto device = world_->make_device({});
    if (!device.ok()) GTEST_SKIP() << device.error().message;
    device_ = *device;
  }

  std::byte* allocate(size_t bytes) {
    auto memory = device_->allocate(bytes);
    EXPECT_TRUE(memory.ok());
    return static_cast<std::byte*>(memory->address);
  }
  void copy(void* to, const void* from, size_t bytes, CopyDirection direction, DeviceStream stream) {
    const Status status = device_->copy_async(to, from, bytes, direction, stream);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  DeviceEvent record(DeviceStream stream) {
    const DeviceEvent event = *device_->create_event();
    EXPECT_TRUE(device_->record(event, stream).ok());
    return event;
  }
  void finish(DeviceStream stream) {
    const DeviceEvent event = record(stream);
    ASSERT_TRUE(device_->wait(event).ok());
    device_->destroy_event(event);
  }

  std::unique_ptr<DeviceWorld> world_;
  Device* device_ = nullptr;
  AlignedMemory source_{kBytes};
  AlignedMemory target_{kBytes};
};

TEST_P(DeviceConformance, SaysWhatItIs) {
  const auto info = device_->info();
  ASSERT_TRUE(info.ok());
  EXPECT_FALSE(info->name.empty());
  EXPECT_FALSE(info->uuid.empty());
  EXPECT_GT(info->total_bytes, 0u);
  EXPECT_LE(info->free_bytes, info->total_bytes);
  EXPECT_GT(info->pinned_alignment, 0u);
  EXPECT_EQ(info->pinned_alignment & (info->pinned_alignment - 1), 0u);
}

TEST_P(DeviceConformance, BytesGoThereAndBack) {
  std::byte* const memory = allocate(kBytes);
  const DeviceStream stream = *device_->create_stream();
  fill_pattern(source_.span(), 0, 1);
  copy(memory, source_.data(), kBytes, CopyDirection::host_to_device, stream);
  copy(target_.data(), memory, kBytes, CopyDirection::device_to_host, stream);
  finish(stream);
  EXPECT_TRUE(has_pattern(target_.span(), 0, 1));
  device_->destroy_stream(stream);
  device_->free({memory});
}

TEST_P(DeviceConformance, TheDefaultStreamCopiesToo) {
  std::byte* const memory = allocate(kBytes);
  fill_pattern(source_.span(), 0, 2);
  copy(memory, source_.data(), kBytes, CopyDirection::host_to_device, {});
  copy(target_.data(), memory, kBytes, CopyDirection::device_to_host, {});
  finish({});
  EXPECT_TRUE(has_pattern(target_.span(), 0, 2));
  device_->free({memory});
}

TEST_P(DeviceConformance, CopiesOnOneStreamKeepTheirOrder) {
  std::byte* const memory = allocate(2 * kBytes);
  const DeviceStream stream = *device_->create_stream();
  AlignedMemory versions(8 * kBytes);
  for (uint64_t version = 0; version < 8; ++version) {
    fill_pattern(versions.span(version * kBytes, kBytes), 0, version);
    copy(memory, versions.data() + version * kBytes, kBytes, CopyDirection::host_to_device, stream);
    copy(memory + kBytes, memory, kBytes, CopyDirection::device_to_device, stream);
  }
  copy(target_.data(), memory + kBytes, kBytes, CopyDirection::device_to_host, stream);
  finish(stream);
  EXPECT_TRUE(has_pattern(target_.span(), 0, 7));
  device_->destroy_stream(stream);
  device_->free({memory});
}

TEST_P(DeviceConformance, DoneComesInTheEndAndThenTheBytesAreThere) {
  std::byte* const memory = allocate(kBytes);
  fill_pattern(source_.span(), 0, 3);
  copy(memory, source_.data(), kBytes, CopyDirection::host_to_device, {});
  copy(target_.data(), memory, kBytes, CopyDirection::device_to_host, {});
  const DeviceEvent event = record({});
  int queries = 0;
  while (queries < kMostQueries && !*device_->done(event)) ++queries;
  ASSERT_LT(queries, kMostQueries);
  EXPECT_TRUE(has_pattern(target_.span(), 0, 3));
  EXPECT_TRUE(*device_->done(event));  // and stays so
  EXPECT_TRUE(device_->wait(event).ok());
  device_->destroy_event(event);
  device_->free({memory});
}

TEST_P(DeviceConformance, AnEventThatWasNeverRecordedIsDone) {
  const DeviceEvent event = *device_->create_event();
  EXPECT_TRUE(*device_->done(event));
  EXPECT_TRUE(device_->wait(event).ok());
  EXPECT_TRUE(device_->stream_wait({}, event).ok());
  device_->destroy_event(event);
}

TEST_P(DeviceConformance, AnEventCanBeRecordedAgain) {
  std::byte* const memory = allocate(kBytes);
  const DeviceEvent event = *device_->create_event();
  for (uint64_t version = 1; version <= 5; ++version) {
    fill_pattern(source_.span(), 0, version);
    copy(memory, source_.data(), kBytes, CopyDirection::host_to_device, {});
    copy(target_.data(), memory, kBytes, CopyDirection::device_to_host, {});
    ASSERT_TRUE(device_->record(event, {}).ok());
    ASSERT_TRUE(device_->wait(event).ok());
    EXPECT_TRUE(has_pattern(target_.span(), 0, version));
  }
  device_->destroy_event(event);
  device_->free({memory});
}

TEST_P(DeviceConformance, AStreamThatWaitsForAnEventSeesWhatCameBeforeIt) {
  std::byte* const memory = allocate(kBytes);
  const DeviceStream writer = *device_->create_stream();
  const DeviceStream reader = *device_->create_stream();
  for (uint64_t version = 1; version <= 20; ++version) {
    fill_pattern(source_.span(), 0, version);
    copy(memory, source_.data(), kBytes, CopyDirection::host_to_device, writer);
    const DeviceEvent written = record(writer);
    ASSERT_TRUE(device_->stream_wait(reader, written).ok());
    copy(target_.data(), memory, kBytes, CopyDirection::device_to_host, reader);
    finish(reader);
    ASSERT_TRUE(has_pattern(target_.span(), 0, version));
    device_->destroy_event(written);
  }
  device_->destroy_stream(writer);
  device_->destroy_stream(reader);
  device_->free({memory});
}

// Chains through several streams: every link passes the bytes on only after the one before it.
TEST_P(DeviceConformance, ChainsOfEventsKeepTheirOrder) {
  constexpr size_t kLinks = 6;
  std::byte* const memory = allocate(kLinks * kBytes);
  std::vector<DeviceStream> streams;
  for (size_t i = 0; i < kLinks; ++i) streams.push_back(*device_->create_stream());
  fill_pattern(source_.span(), 0, 9);
  copy(memory, source_.data(), kBytes, CopyDirection::host_to_device, streams[0]);
  std::vector<DeviceEvent> events{record(streams[0])};
  for (size_t i = 1; i < kLinks; ++i) {
    ASSERT_TRUE(device_->stream_wait(streams[i], events.back()).ok());
    copy(memory + i * kBytes, memory + (i - 1) * kBytes, kBytes, CopyDirection::device_to_device, streams[i]);
    events.push_back(record(streams[i]));
  }
  ASSERT_TRUE(device_->wait(events.back()).ok());
  for (const DeviceEvent event : events) EXPECT_TRUE(device_->wait(event).ok());
  copy(target_.data(), memory + (kLinks - 1) * kBytes, kBytes, CopyDirection::device_to_host, streams[0]);
  finish(streams[0]);
  EXPECT_TRUE(has_pattern(target_.span(), 0, 9));
  for (const DeviceEvent event : events) device_->destroy_event(event);
  for (const DeviceStream stream : streams) device_->destroy_stream(stream);
  device_->free({memory});
}

TEST_P(DeviceConformance, ManyCopiesOnManyStreamsEndWhereTheyShould) {
  constexpr size_t kStreams = 4;
  constexpr size_t kRounds = 2000;
  constexpr size_t kPiece = 256;
  std::byte* const memory = allocate(kStreams * kPiece);
  std::vector<DeviceStream> streams;
  for (size_t i = 0; i < kStreams; ++i) streams.push_back(*device_->create_stream());
  AlignedMemory versions(kRounds * kPiece);
  std::vector<uint64_t> last(kStreams, 0);
  std::mt19937_64 random(5);
  for (uint64_t round = 0; round < kRounds; ++round) {
    const size_t at = random() % kStreams;
    fill_pattern(versions.span(round * kPiece, kPiece), at, round);
    copy(memory + at * kPiece, versions.data() + round * kPiece, kPiece, CopyDirection::host_to_device,
         streams[at]);
    last[at] = round;
  }
  for (size_t at = 0; at < kStreams; ++at) {
    copy(target_.data() + at * kPiece, memory + at * kPiece, kPiece, CopyDirection::device_to_host,
         streams[at]);
    finish(streams[at]);
    EXPECT_TRUE(has_pattern(target_.span(at * kPiece, kPiece), at, last[at]));
    device_->destroy_stream(streams[at]);
  }
  device_->free({memory});
}

TEST_P(DeviceConformance, MemoryIsGivenBack) {
  const uint64_t before = device_->info()->free_bytes;
  std::byte* const memory = allocate(1 << 20);
  EXPECT_LE(device_->info()->free_bytes, before - (1 << 20));
  device_->free({memory});
  EXPECT_EQ(device_->info()->free_bytes, before);
  device_->free({});
}

TEST_P(DeviceConformance, MoreMemoryThanThereIsIsExhausted) {
  const auto memory = device_->allocate(device_->info()->free_bytes + 1);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::exhausted);
  EXPECT_FALSE(device_->allocate(0).ok());
}

TEST_P(DeviceConformance, MemoryIsRegisteredOnce) {
  const Status status = device_->register_host(source_.span());
  if (!status.ok()) {
    ASSERT_TRUE(status.error().code == ErrorCode::unsupported || status.error().code == ErrorCode::exhausted);
    GTEST_SKIP() << status.error().message;
  }
  EXPECT_FALSE(device_->register_host(source_.span()).ok());
  EXPECT_FALSE(device_->register_host(source_.span(0, kBytes / 2)).ok());
  EXPECT_FALSE(device_->register_host(source_.span(kBytes / 2, kBytes / 2)).ok());
  EXPECT_TRUE(device_->register_host(target_.span()).ok());
  EXPECT_TRUE(device_->unregister_host(source_.span()).ok());
  EXPECT_FALSE(device_->unregister_host(source_.span()).ok());
  EXPECT_TRUE(device_->register_host(source_.span()).ok());
  EXPECT_TRUE(device_->unregister_host(source_.span()).ok());
  EXPECT_TRUE(device_->unregister_host(target_.span()).ok());
}

TEST_P(DeviceConformance, CopiesOfNothingAreFine) {
  std::byte* const memory = allocate(1);
  copy(memory, source_.data(), 0, CopyDirection::host_to_device, {});
  finish({});
  device_->free({memory});
}

INSTANTIATE_TEST_SUITE_P(AllDevices, DeviceConformance, ::testing::Range(size_t{0}, implementations().size()),
                         [](const auto& one) { return implementations()[one.param].name; });

}  // namespace
}  // namespace strata
