// The double that stands for the writer thread must keep the WriteQueue's contract.
#include <gtest/gtest.h>

#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/stepped_write_queue.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

class SteppedWriteQueueTest : public ::testing::Test {
 protected:
  SteppedWriteQueueTest() { EXPECT_TRUE(files.create_directory("/cache").ok()); }
  void post(JobId id) {
    ConversationShape shape;
    shape.id = ConversationId{id};
    queue.post(make_job(id, "/cache", first_publication(shape)));
  }
  FakeClock clock;
  FakeFileSystem files;
  FakeIoQueue io{files, clock};
  DiskWriter writer{files, io, clock};
  SteppedWriteQueue queue{writer};
};

TEST_F(SteppedWriteQueueTest, JobsRunOnlyWhenToldAndInOrder) {
  post(1);
  post(2);
  EXPECT_TRUE(queue.collect().empty());
  EXPECT_TRUE(files.paths().empty());
  EXPECT_EQ(queue.run_all(), 2u);
  const auto results = queue.collect();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].id, 1u);
  EXPECT_TRUE(results[1].published);
  EXPECT_TRUE(queue.collect().empty());
}

TEST_F(SteppedWriteQueueTest, DISK2_OnlyWhatHasNotStartedIsCancelled) {
  post(1);
  post(2);
  EXPECT_TRUE(queue.start_one());
  EXPECT_FALSE(queue.start_one());
  EXPECT_FALSE(queue.cancel(1));
  EXPECT_TRUE(queue.cancel(2));
  EXPECT_FALSE(queue.cancel(2));
  const auto results = queue.collect();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].status.error().code, ErrorCode::cancelled);
  EXPECT_NE(results[0].job, nullptr) << "buffers come back";
  EXPECT_EQ(queue.run_all(), 1u);
  EXPECT_TRUE(queue.collect()[0].published);
}

TEST_F(SteppedWriteQueueTest, AHangingDiskStartsAJobAndNeverEndsIt) {
  post(1);
  queue.hang(true);
  EXPECT_EQ(queue.run_all(), 0u);
  EXPECT_TRUE(queue.busy());
  EXPECT_FALSE(queue.cancel(1));
  queue.hang(false);
  EXPECT_EQ(queue.run_all(), 1u);
}

}  // namespace
}  // namespace strata::testing
