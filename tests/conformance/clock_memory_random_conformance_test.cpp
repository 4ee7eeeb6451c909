// Clock, MemoryProbe and Random: what every implementation promises, and the memory of machines of all kinds
// (RAM-1).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <set>

#include "core/posix/clock.hpp"
#include "core/posix/memory_probe.hpp"
#include "core/posix/random.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_memory_probe.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/temporary_folder.hpp"

namespace strata {
namespace {

using testing::FakeClock;
using testing::FakeMemoryProbe;
using testing::FakeRandom;
using testing::TemporaryFolder;

template <class Port>
struct Kind {
  const char* name;
  std::function<std::unique_ptr<Port>()> make;
};
template <class Port>
void PrintTo(const Kind<Port>& kind, std::ostream* out) {
  *out << kind.name;
}
template <class Port>
std::string kind_name(const ::testing::TestParamInfo<Kind<Port>>& kind) {
  return kind.param.name;
}

class ClockConformance : public ::testing::TestWithParam<Kind<Clock>> {};

TEST_P(ClockConformance, MonotonicTimeNeverGoesBack) {
  const auto clock = GetParam().make();
  uint64_t last = clock->monotonic_ns();
  EXPECT_GT(last, 0u);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = clock->monotonic_ns();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST_P(ClockConformance, WallTimeIsInNanosecondsSince1970) {
  const auto clock = GetParam().make();
  EXPECT_GT(clock->wall_ns(), 1'600'000'000'000'000'000u);
  EXPECT_LT(clock->wall_ns(), 5'000'000'000'000'000'000u);
}

INSTANTIATE_TEST_SUITE_P(All, ClockConformance,
                         ::testing::Values(Kind<Clock>{"Posix",
                                                       [] { return std::make_unique<PosixClock>(); }},
                                           Kind<Clock>{"Fake", [] { return std::make_unique<FakeClock>(); }}),
                         kind_name<Clock>);

TEST(FakeClockTest, MovesOnlyWhenTold) {
  FakeClock clock;
  const uint64_t start = clock.monotonic_ns();
  EXPECT_EQ(clock.monotonic_ns(), start);
  clock.advance(5);
  EXPECT_EQ(clock.monotonic_ns(), start + 5);
}

class RandomConformance : public ::testing::TestWithParam<Kind<Random>> {};

TEST_P(RandomConformance, NumbersDiffer) {
  const auto random = GetParam().make();
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random->next());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST_P(RandomConformance, EveryBitComesUpBothWays) {
  const auto random = GetParam().make();
  uint64_t ones = 0;
  uint64_t zeros = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random->next();
    ones |= value;
    zeros |= ~value;
  }
  EXPECT_EQ(ones, ~uint64_t{0});
  EXPECT_EQ(zeros, ~uint64_t{0});
}

INSTANTIATE_TEST_SUITE_P(
    All, RandomConformance,
    ::testing::Values(Kind<Random>{"Posix", [] { return std::make_unique<PosixRandom>(); }},
                      Kind<Random>{"Fake", [] { return std::make_unique<FakeRandom>(); }}),
    kind_name<Random>);

TEST(FakeRandomTest, SameSeedSameNumbers) {
  FakeRandom one(7);
  FakeRandom two(7);
  FakeRandom three(8);
  EXPECT_EQ(one.next(), two.next());
  EXPECT_NE(one.next(), three.next());
}

class MemoryProbeConformance : public ::testing::TestWithParam<Kind<MemoryProbe>> {};

TEST_P(MemoryProbeConformance, AvailableIsPartOfTheTotal) {
  const auto state = GetParam().make()->probe();
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_GT(state->total_bytes, 0u);
  EXPECT_LE(state->available_bytes, state->total_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, MemoryProbeConformance,
    ::testing::Values(Kind<MemoryProbe>{"Posix", [] { return std::make_unique<PosixMemoryProbe>(); }},
                      Kind<MemoryProbe>{"Fake", [] { return std::make_unique<FakeMemoryProbe>(); }}),
    kind_name<MemoryProbe>);

TEST(FakeMemoryProbeTest, CanBeUnknown) {  // RAM-1: unknown telemetry refuses
  FakeMemoryProbe probe(5, 10);
  EXPECT_EQ(probe.probe()->available_bytes, 5u);
  probe.set_unknown(true);
  EXPECT_EQ(probe.probe().error().code, ErrorCode::unavailable);
}

// A machine made of files, shown to the probe as its root.
class Machine {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_.path() + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  [[nodiscard]] Result<MemoryState> probe() { return PosixMemoryProbe(root_.path()).probe(); }
  void with_memory() {
    write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  800 kB\n");
  }

 private:
  TemporaryFolder root_;
};

TEST(PosixMemoryProbeTest, UnknownTelemetryRefuses) {  // RAM-1
  Machine machine;
  EXPECT_EQ(machine.probe().error().code, ErrorCode::unavailable);
  machine.write("/proc/meminfo", "MemTotal: 1000 kB\n");
  EXPECT_EQ(machine.probe().error().code, ErrorCode::unavailable);
  machine.write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: lots\n");
  EXPECT_EQ(machine.probe().error().code, ErrorCode::unavailable);
}

TEST(PosixMemoryProbeTest, MachineWithoutGroups) {
  Machine machine;
  machine.with_memory();
  EXPECT_EQ(machine.probe()->available_bytes, 800u * 1024);
  EXPECT_EQ(machine.probe()->total_bytes, 1000u * 1024);
}

TEST(PosixMemoryProbeTest, GroupVersion2LowersBoth) {  // RAM-1: the cgroup limit if lower
  Machine machine;
  machine.with_memory();
  machine.write("/proc/self/cgroup", "0::/a/b\n");
  machine.write("/sys/fs/cgroup/a/b/memory.max", "614400\n");
  machine.write("/sys/fs/cgroup/a/b/memory.current", "307200\n");
  EXPECT_EQ(machine.probe()->available_bytes, 307200u);
  EXPECT_EQ(machine.probe()->total_bytes, 614400u);
  machine.write("/sys/fs/cgroup/a/b/memory.stat",
                "anon 5\ninactive_file 102400\n");  // can be dropped at once
  EXPECT_EQ(machine.probe()->available_bytes, 409600u);
  machine.write("/sys/fs/cgroup/a/b/memory.current", "700000\n");  // over its limit
  machine.write("/sys/fs/cgroup/a/b/memory.stat", "anon 5\n");
  EXPECT_EQ(machine.probe()->available_bytes, 0u);
}

TEST(PosixMemoryProbeTest, AParentsLimitBindsToo) {
  Machine machine;
  machine.with_memory();
  machine.write("/proc/self/cgroup", "0::/a/b\n");
  machine.write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  machine.write("/sys/fs/cgroup/a/b/memory.current", "1\n");
  machine.write("/sys/fs/cgroup/a/memory.max", "102400\n");
  machine.write("/sys/fs/cgroup/a/memory.current", "100\n");
  EXPECT_EQ(machine.probe()->available_bytes, 102300u);
}

TEST(PosixMemoryProbeTest, InAContainerTheGroupIsTheRootOfTheMount) {
  Machine machine;
  machine.with_memory();
  machine.write("/proc/self/cgroup", "0::/not/mounted/here\n");
  machine.write("/sys/fs/cgroup/memory.max", "204800\n");
  machine.write("/sys/fs/cgroup/memory.current", "100\n");
  EXPECT_EQ(machine.probe()->available_bytes, 204700u);
}

TEST(PosixMemoryProbeTest, AHighLimitChangesNothing) {
  Machine machine;
  machine.with_memory();
  machine.write("/proc/self/cgroup", "0::/\n");
  machine.write("/sys/fs/cgroup/memory.max", "9223372036854771712\n");
  machine.write("/sys/fs/cgroup/memory.current", "100\n");
  EXPECT_EQ(machine.probe()->available_bytes, 800u * 1024);
  EXPECT_EQ(machine.probe()->total_bytes, 1000u * 1024);
}

TEST(PosixMemoryProbeTest, GroupVersion1) {
  Machine machine;
  machine.with_memory();
  machine.write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n7:memory:/a\n0::/a\n");
  machine.write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "614400\n");
  machine.write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "307200\n");
  machine.write("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 7200\n");
  EXPECT_EQ(machine.probe()->available_bytes, 314400u);
}

}  // namespace
}  // namespace strata
