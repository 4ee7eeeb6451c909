// The way to the disk (design 07 #18): each is tried with a real write, read and comparison; what does not
// work is named once, and the next one is used.
#include "engine/runtime/disk_route.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/faulty_file_system.hpp"

namespace strata {
namespace {

using ::testing::AllOf;
using testing::FakeFileSystem;
using testing::FakeIoQueue;
using testing::FaultyFileSystem;
using testing::FileCall;
using ::testing::HasSubstr;
using testing::IoFault;
using ::testing::IsEmpty;

const std::string kFolder = "/cache";
const std::vector<IoCandidate> kBoth{{"io_uring", ""}, {"io_posix", ""}};

class DiskRouteChoice : public ::testing::Test {
 protected:
  DiskRouteChoice() { EXPECT_TRUE(files_.create_directory(kFolder)); }

  // faults[i]: of the i-th queue that is made.
  DiskRoute choose(FileSystem& files, std::vector<std::vector<IoFault>> faults = {},
                   const std::vector<IoCandidate>& candidates = kBoth) {
    made_.clear();
    const MakeIo make = [&](const std::string& name) -> Result<std::unique_ptr<IoQueue>> {
      made_.push_back(name);
      if (refused_.contains(name)) return refused_.at(name);
      FakeIoQueue::Options options;
      if (made_.size() <= faults.size()) options.faults = faults[made_.size() - 1];
      return std::unique_ptr<IoQueue>(std::make_unique<FakeIoQueue>(files, clock_, options));
    };
    DiskRoute route = choose_disk_route(files, kFolder, candidates, make);
    EXPECT_THAT(files_.paths(), IsEmpty()) << "a trial leaves nothing behind";
    EXPECT_EQ(files_.open_files(), 0u);
    return route;
  }
  static IoFault fails(IoKind kind, int os_errno) { return {kind, 1, os_errno, true}; }

  FakeFileSystem files_;
  testing::FakeClock clock_;
  std::map<std::string, Error> refused_;
  std::vector<std::string> made_;
};

TEST_F(DiskRouteChoice, TheFirstOneThatWorksWithoutAWord) {
  const DiskRoute route = choose(files_);
  EXPECT_EQ(route.io, "io_uring");
  EXPECT_TRUE(route.direct);
  EXPECT_EQ(route.note, "");
  EXPECT_EQ(made_, std::vector<std::string>{"io_uring"});
}

TEST_F(DiskRouteChoice, AQueueThatCannotRunHereIsNamed) {
  const DiskRoute route = choose(files_, {}, {{"io_uring", "Operation not permitted"}, {"io_posix", ""}});
  EXPECT_EQ(route.io, "io_posix");
  EXPECT_TRUE(route.direct);
  EXPECT_EQ(route.note, "io_uring: Operation not permitted; using io_posix with O_DIRECT");
}

TEST_F(DiskRouteChoice, AQueueThatCannotBeMade) {
  refused_["io_uring"] = make_error(ErrorCode::exhausted, "no memory may be locked");
  const DiskRoute route = choose(files_);
  EXPECT_EQ(route.io, "io_posix");
  EXPECT_THAT(route.note,
              AllOf(HasSubstr("no memory may be locked"), HasSubstr("using io_posix with O_DIRECT")));
}

TEST_F(DiskRouteChoice, ODirectThatIsRefusedAtOpeningKeepsTheQueue) {
  FakeFileSystem::Options options;
  options.direct = false;
  FakeFileSystem plain(options);
  ASSERT_TRUE(plain.create_directory(kFolder));
  const DiskRoute route = choose(plain);
  EXPECT_EQ(route.io, "io_uring");
  EXPECT_FALSE(route.direct);
  EXPECT_THAT(route.note, HasSubstr("using io_uring with the page cache"));
  EXPECT_EQ(made_.size(), 2u) << "no other queue changes what the file system refuses";
}

TEST_F(DiskRouteChoice, ODirectThatOpensAndFailsAtTheFirstWrite) {
  const DiskRoute route = choose(files_, {{fails(IoKind::write, EINVAL)}, {fails(IoKind::write, EINVAL)}});
  EXPECT_EQ(route.io, "io_uring");
  EXPECT_FALSE(route.direct);
  EXPECT_EQ(made_, (std::vector<std::string>{"io_uring", "io_posix", "io_uring"}));
  EXPECT_THAT(route.note,
              AllOf(HasSubstr("io_uring with O_DIRECT: write"), HasSubstr("io_posix with O_DIRECT: write"),
                    HasSubstr("using io_uring with the page cache")));
}

TEST_F(DiskRouteChoice, AQueueWhoseReadsFail) {
  const DiskRoute route = choose(files_, {{fails(IoKind::read, EIO)}});
  EXPECT_EQ(route.io, "io_posix");
  EXPECT_TRUE(route.direct);
  EXPECT_THAT(route.note, HasSubstr("io_uring with O_DIRECT: read"));
}

// A queue that says "done" and moved nothing, as seen with wrong registrations.
class LyingQueue final : public IoQueue {
 public:
  [[nodiscard]] IoRequirements requirements() const override { return {4096, 4096, 1}; }
  Result<size_t> submit(std::span<const IoOp> ops) override {
    cookie_ = ops.front().cookie;
    return size_t{1};
  }
  Result<size_t> poll(size_t, uint64_t, std::span<IoDone> done) override {
    done.front() = {cookie_, {}};
    return size_t{1};
  }
  [[nodiscard]] size_t in_flight() const override { return 0; }
  Status register_buffer(std::span<std::byte>) override { return {}; }
  Status unregister_buffer(std::span<std::byte>) override { return {}; }

 private:
  uint64_t cookie_ = 0;
};

TEST_F(DiskRouteChoice, WhatIsReadBackIsCompared) {
  LyingQueue queue;
  const Status tried = try_disk_route(files_, queue, kFolder, Caching::direct);
  ASSERT_FALSE(tried.ok());
  EXPECT_EQ(tried.error().message, "bytes read back differ");
}

TEST_F(DiskRouteChoice, AFullOrReadOnlyFolderSaysNothingAboutTheWay) {
  for (const int os_errno : {ENOSPC, EDQUOT, EROFS, EACCES}) {
    FaultyFileSystem faulty(files_,
                            {{.call = FileCall::open, .nth = 1, .os_errno = os_errno, .and_later = true}});
    const DiskRoute route = choose(faulty);
    EXPECT_EQ(route.io, "io_uring");
    EXPECT_TRUE(route.direct);
    EXPECT_EQ(route.note, "") << os_errno;
    EXPECT_EQ(made_.size(), 1u);
  }
}

TEST_F(DiskRouteChoice, WhenNothingWorksTheLeastDemandingOneIsUsedAndItIsSaid) {
  FaultyFileSystem faulty(files_, {{.call = FileCall::write, .nth = 1, .os_errno = EIO, .and_later = true}});
  const DiskRoute route = choose(faulty);
  EXPECT_EQ(route.io, "io_posix");
  EXPECT_FALSE(route.direct);
  EXPECT_THAT(route.note, HasSubstr("none works, io_posix with the page cache is used all the same"));
  EXPECT_EQ(made_.size(), 4u);
}

TEST_F(DiskRouteChoice, WhatAnEarlierTrialLeftIsNoObstacle) {
  files_.put(kFolder + "/.strata-probe", "left by a crash");
  EXPECT_EQ(choose(files_).note, "");
}

TEST_F(DiskRouteChoice, BackPressureAtTheTrialIsATrouble) {
  FakeIoQueue::Options options;
  options.accept_at_most = 0;
  FakeIoQueue queue(files_, clock_, options);
  const Status tried = try_disk_route(files_, queue, kFolder, Caching::direct);
  EXPECT_EQ(tried.error().code, ErrorCode::unavailable);
  EXPECT_THAT(files_.paths(), IsEmpty());
}

}  // namespace
}  // namespace strata
