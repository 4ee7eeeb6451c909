// WriterThread: the queue's contract on a real thread (DISK-1, DISK-2, invariant 7, field lessons 11 and 12).
// Threads are ordered by semaphores and by what the writer says it is doing, never by time.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "core/limits.hpp"
#include "core/posix/clock.hpp"
#include "core/posix/file_system.hpp"
#include "engine/runtime/writer_thread.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/recording_log.hpp"
#include "tests/support/stored_conversation.hpp"

namespace strata::testing {
namespace {

constexpr const char* kFolder = "/cache";

// A disk that stops at each submit until the test lets it go on.
struct Brake {
  std::atomic<bool> on{false};
  std::counting_semaphore<> reached{0};
  std::counting_semaphore<> go_on{0};
  std::atomic<int> submits{0};
};

class BrakedQueue final : public IoQueue {
 public:
  BrakedQueue(FileSystem& files, FakeClock& clock, Brake& brake) : inner_(files, clock), brake_(brake) {}
  [[nodiscard]] IoRequirements requirements() const override { return inner_.requirements(); }
  Result<size_t> submit(std::span<const IoOp> ops) override {
    ++brake_.submits;
    thread = std::this_thread::get_id();
    nice = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()));
    if (brake_.on) {
      brake_.reached.release();
      brake_.go_on.acquire();
    }
    return inner_.submit(ops);
  }
  Result<size_t> poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) override {
    return inner_.poll(min, timeout_ns, done);
  }
  [[nodiscard]] size_t in_flight() const override { return inner_.in_flight(); }
  Status register_buffer(std::span<std::byte>) override { return {}; }
  Status unregister_buffer(std::span<std::byte>) override { return {}; }

  std::thread::id thread;  // that submitted last
  int nice = 0;

 private:
  FakeIoQueue inner_;
  Brake& brake_;
};

class WriterThreadTest : public ::testing::Test {
 protected:
  WriterThreadTest() {
    EXPECT_TRUE(files.create_directory(kFolder).ok());
    writer = std::make_unique<WriterThread>(files, queue, clock, log, [this] { woken.release(); });
  }

  void post(JobId id, uint32_t tokens = 300) {
    ConversationShape shape;
    shape.id = ConversationId{id};
    shape.tokens = tokens;
    writer->post(make_job(id, kFolder, first_publication(shape)));
  }
  std::vector<WriteResult> wait_for(size_t count) {
    std::vector<WriteResult> results;
    while (results.size() < count) {
      woken.acquire();
      for (WriteResult& result : writer->collect()) results.push_back(std::move(result));
    }
    return results;
  }
  void until_held_back() {
    while (!writer->held_back()) std::this_thread::yield();
  }
  [[nodiscard]] bool stored(uint64_t id) { return read_published(files, kFolder, ConversationId{id}).ok(); }

  FakeFileSystem files;
  FakeClock clock;        // of deadlines: moves only when a test says so
  FakeClock queue_clock;  // of transfers
  Brake brake;
  std::counting_semaphore<> woken{0};
  BrakedQueue queue{files, queue_clock, brake};
  RecordingLog log;
  std::unique_ptr<WriterThread> writer;
};

TEST_F(WriterThreadTest, DISK1_JobsAreCarriedOutElsewhereInOrderAndSaidToBeDone) {
  for (JobId id = 1; id <= 5; ++id) post(id);
  const auto results = wait_for(5);
  for (JobId id = 1; id <= 5; ++id) {
    EXPECT_EQ(results[id - 1].id, id);
    EXPECT_TRUE(results[id - 1].published);
    EXPECT_TRUE(stored(id));
  }
  EXPECT_NE(queue.thread, std::this_thread::get_id());
  EXPECT_TRUE(queue.nice >= limits::kWriterNice || log.contains("keeps the priority")) << queue.nice;
}

TEST_F(WriterThreadTest, DISK2_AJobNotStartedIsCancelledAndARunningOneIsNot) {
  brake.on = true;
  post(1);
  post(2);
  brake.reached.acquire();
  EXPECT_FALSE(writer->cancel(1));
  EXPECT_TRUE(writer->cancel(2));
  EXPECT_FALSE(writer->cancel(2));
  EXPECT_FALSE(writer->cancel(77));
  const auto cancelled = writer->collect();
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].status.error().code, ErrorCode::cancelled);
  EXPECT_NE(cancelled[0].job, nullptr);
  brake.on = false;
  brake.go_on.release();
  EXPECT_TRUE(wait_for(1)[0].published);
  EXPECT_FALSE(stored(2));
}

TEST_F(WriterThreadTest, Invariant7_NothingTheEngineLoopCallsWaitsForAHangingDisk) {
  brake.on = true;
  post(1);
  brake.reached.acquire();
  for (JobId id = 2; id < 100; ++id) post(id);
  EXPECT_TRUE(writer->collect().empty());
  writer->set_foreground(true);
  writer->set_foreground(false);
  for (JobId id = 2; id < 100; ++id) EXPECT_TRUE(writer->cancel(id));
  EXPECT_EQ(writer->collect().size(), 98u);
  brake.on = false;
  brake.go_on.release();
  EXPECT_EQ(wait_for(1)[0].id, 1u);
}

TEST_F(WriterThreadTest, AForegroundReadHoldsBackAJobWhichCanStillBeCancelled) {
  writer->set_foreground(true);
  post(1);
  until_held_back();
  EXPECT_EQ(brake.submits, 0);
  EXPECT_TRUE(writer->cancel(1));
  post(2);
  until_held_back();
  writer->set_foreground(false);
  const auto results = wait_for(1);
  EXPECT_EQ(results.back().id, 2u);
  EXPECT_TRUE(results.back().published);
  EXPECT_FALSE(stored(1));
}

TEST_F(WriterThreadTest, AForegroundReadHoldsBackTheNextTransferOfARunningJob) {
  brake.on = true;
  post(1, 5000);  // 21 transfers, 8 at a time
  brake.reached.acquire();
  writer->set_foreground(true);
  brake.on = false;
  brake.go_on.release();
  until_held_back();
  EXPECT_EQ(brake.submits, 1);
  EXPECT_TRUE(writer->collect().empty());
  writer->set_foreground(false);
  EXPECT_TRUE(wait_for(1)[0].published);
  EXPECT_GE(brake.submits, 3);
}

TEST_F(WriterThreadTest, DirtyDataHasADeadline) {
  writer->set_foreground(true);
  post(1, 5000);
  until_held_back();
  clock.advance(limits::kWriterDeadlineNs);
  writer->set_foreground(true);  // makes the thread look at the clock of this test
  EXPECT_TRUE(wait_for(1)[0].published) << "all its transfers are past the deadline, too";
  post(2);
  until_held_back();
  EXPECT_FALSE(stored(2)) << "a later job has a deadline of its own";
}

TEST_F(WriterThreadTest, TheEndFinishesWhatIsQueuedForegroundOrNot) {
  writer->set_foreground(true);
  for (JobId id = 1; id <= 3; ++id) post(id);
  writer.reset();
  for (JobId id = 1; id <= 3; ++id) EXPECT_TRUE(stored(id));
}

// A buffer that remembers which thread let it go.
class TracedBuffer final : public HostBuffer {
 public:
  TracedBuffer(HostBufferRef inner, std::atomic<std::thread::id>& released_by)
      : inner_(std::move(inner)), released_by_(released_by) {}
  ~TracedBuffer() override { released_by_ = std::this_thread::get_id(); }
  TracedBuffer(const TracedBuffer&) = delete;
  TracedBuffer& operator=(const TracedBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const override { return inner_->bytes(); }

 private:
  HostBufferRef inner_;
  std::atomic<std::thread::id>& released_by_;
};

TEST_F(WriterThreadTest, BuffersAreReleasedOnTheEngineLoopOnly) {
  std::vector<std::atomic<std::thread::id>> released_by(200);
  for (JobId id = 1; id <= released_by.size(); ++id) {
    ConversationShape shape;
    shape.id = ConversationId{id};
    PublishJob job = first_publication(shape);
    job.writes[0].source = std::make_shared<TracedBuffer>(job.writes[0].source, released_by[id - 1]);
    writer->post(make_job(id, kFolder, std::move(job)));
  }
  size_t done = 0;
  while (done < released_by.size()) {
    woken.acquire();
    done += writer->collect().size();  // and drops them
  }
  for (const auto& thread : released_by) EXPECT_EQ(thread.load(), std::this_thread::get_id());
}

// Everything at once, for the thread sanitizer.
TEST_F(WriterThreadTest, ManyJobsCancelsAndReadsAtOnce) {
  size_t ended = 0;
  for (JobId id = 1; id <= 300; ++id) {
    post(id);
    writer->set_foreground(id % 3 == 0);
    if (id % 7 == 0) (void)writer->cancel(id - 3);
    ended += writer->collect().size();
  }
  writer->set_foreground(false);
  while (ended < 300) {
    woken.acquire();
    ended += writer->collect().size();
  }
  EXPECT_EQ(ended, 300u);
}

TEST(WriterThreadOnDisk, DISK1_WritesToTheRealFileSystem) {
  std::string folder = ::testing::TempDir() + "/strata-writer-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  PosixFileSystem files;
  PosixClock clock;
  FakeClock queue_clock;
  {
    FakeIoQueue queue(files, queue_clock);
    RecordingLog log;
    WriterThread writer(files, queue, clock, log);
    ConversationShape shape;
    writer.post(make_job(1, folder, first_publication(shape)));
  }
  EXPECT_TRUE(read_published(files, folder, ConversationId{1}).ok());
  const auto left = files.list(folder);
  for (const std::string& name : *left) EXPECT_TRUE(files.unlink(folder + "/" + name).ok());
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace strata::testing
