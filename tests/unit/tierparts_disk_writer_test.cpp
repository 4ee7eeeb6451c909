// DiskWriter: the order of its calls, and what is left after each of them fails (B-6, invariant 4, SQLite's
// way: fail the first call, the second, … until a clean pass).
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/limits.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/recording_file_system.hpp"
#include "tests/support/stored_conversation.hpp"
#include "tiers/disk_writer.hpp"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kFolder = "/cache";
const ConversationId kId{0xAB};
const std::string kSess = "conv-00000000000000ab.sess";
const std::string kIdx = "conv-00000000000000ab.idx";

std::string in_folder(const std::string& name) { return std::string(kFolder) + "/" + name; }

ConversationShape shape_of(uint64_t generation, uint32_t tokens) {
  ConversationShape shape;
  shape.id = kId;
  shape.generation = generation;
  shape.tokens = tokens;
  return shape;
}

// The writer over recorder over faults over memory. The queue writes through the same files.
struct Bench {
  explicit Bench(FakeFileSystem::Options options = {}, FakeIoQueue::Options queue = {})
      : memory(options), io(recorder, clock, queue) {
    EXPECT_TRUE(memory.create_directory(kFolder).ok());
  }
  WriteResult run(WriteWork work) { return writer.run(make_job(7, kFolder, std::move(work))); }
  Result<Manifest> published() { return read_published(memory, kFolder, kId); }

  FakeClock clock;
  FakeFileSystem memory;
  FaultyFileSystem faulty{memory};
  RecordingFileSystem recorder{faulty};
  FakeIoQueue io;
  DiskWriter writer{recorder, io, clock};
};

FakeIoQueue::Options in_order() {
  FakeIoQueue::Options options;
  options.seed = 0;
  return options;
}

TEST(DiskWriter, B6_TheOrderOfAFirstPublication) {
  Bench bench({}, in_order());
  const WriteResult result = bench.run(first_publication(shape_of(1, 300)));
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_THAT(bench.recorder.calls,
              ElementsAre("create " + kSess + " direct", "allocate " + kSess + " 0+32768", "sync folder",
                          "unlink " + kIdx + ".tmp failed", "create " + kIdx + ".tmp",
                          "write " + kIdx + ".tmp 0", "sync " + kIdx + ".tmp",  // the disk works on meanwhile
                          "write " + kSess + " 0+4096", "write " + kSess + " 4096+8192",
                          "write " + kSess + " 12288+4096", "write " + kSess + " 16384+16384",
                          "sync " + kSess, "rename " + kIdx + ".tmp " + kIdx, "sync folder"));
  EXPECT_THAT(bench.recorder.violations, IsEmpty());
  EXPECT_TRUE(result.published);
  EXPECT_EQ(result.digests.size(), 3u);
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_EQ(result.files[0].allocated_bytes + result.index_allocated_bytes, bench.memory.allocated_bytes());
  EXPECT_EQ(result.id, 7u);
  EXPECT_NE(result.job, nullptr);
  EXPECT_GT(result.duration_ns, 0u);
  EXPECT_EQ(bench.memory.open_files(), 0u);
  const auto published = bench.published();
  ASSERT_TRUE(published.ok()) << published.error().message;
  EXPECT_EQ(result.written_bytes, 4096 + 28672 + published->head.total_bytes);
}

TEST(DiskWriter, B1_ALaterPublicationWritesOnlyWhatIsNew) {
  Bench bench({}, in_order());
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  const auto before = bench.published();
  ASSERT_TRUE(before.ok());
  const uint64_t end = before->head.files[0].needed_length;
  bench.recorder.calls.clear();
  const WriteResult result = bench.run(next_publication(shape_of(2, 700), *before));
  ASSERT_TRUE(result.status.ok());
  const std::string at = std::to_string(end);
  EXPECT_THAT(
      bench.recorder.calls,
      ElementsAre("open " + kSess + " direct", "allocate " + kSess + " " + at + "+20480",
                  "unlink " + kIdx + ".tmp failed", "create " + kIdx + ".tmp", "write " + kIdx + ".tmp 0",
                  "sync " + kIdx + ".tmp", "write " + kSess + " " + at + "+4096",
                  "write " + kSess + " " + std::to_string(end + 4096) + "+16384", "sync " + kSess,
                  "rename " + kIdx + ".tmp " + kIdx, "sync folder"));
  const auto after = bench.published();
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(after->head.generation, 2u);
  EXPECT_EQ(after->parts[0], before->parts[0]) << "inherited as it was";
}

TEST(DiskWriter, B2_AConversationThatInheritsEverythingWritesItsIndexAlone) {
  Bench bench;
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 512))).status.ok());
  PublishJob job;
  job.id = ConversationId{0xCD};
  job.manifest = *bench.published();
  job.manifest.head.id = job.id;
  job.manifest.head.files.insert(job.manifest.head.files.begin(), ManifestFile{job.id, 0});
  for (ManifestPart& part : job.manifest.parts) part.file = 1;
  bench.recorder.calls.clear();
  const WriteResult result = bench.run(job);
  ASSERT_TRUE(result.status.ok()) << result.status.error().message;
  EXPECT_THAT(result.files, IsEmpty());
  EXPECT_EQ(bench.recorder.calls.size(), 6u);
  EXPECT_TRUE(read_published(bench.memory, kFolder, job.id).ok());
}

TEST(DiskWriter, DISK11_AllStagesAreInOneFile) {
  Bench bench;
  ConversationShape shape = shape_of(1, 600);
  shape.stages = 2;
  ASSERT_TRUE(bench.run(first_publication(shape)).status.ok());
  const auto published = bench.published();
  ASSERT_TRUE(published.ok()) << published.error().message;
  EXPECT_EQ(published->parts.size(), 8u);
}

// A checkpoint is larger than one transfer, the depth is bounded, and digests are of the whole.
TEST(DiskWriter, LargePartsGoInPiecesWithinTheDepth) {
  Bench bench;
  ConversationShape shape = shape_of(1, 256);
  shape.live_bytes = limits::kMaxPartBytes + 12345;
  ASSERT_TRUE(bench.run(first_publication(shape)).status.ok());
  EXPECT_EQ(bench.io.submitted(IoKind::write), 1u + 1u + 2u) << "the header, a block, two pieces";
  EXPECT_TRUE(bench.published().ok());
}

class WatchingQueue final : public IoQueue {
 public:
  WatchingQueue(IoQueue& inner, uint32_t max_in_flight) : inner_(inner), max_in_flight_(max_in_flight) {}
  [[nodiscard]] IoRequirements requirements() const override {
    IoRequirements requirements = inner_.requirements();
    requirements.max_in_flight = max_in_flight_;
    return requirements;
  }
  Result<size_t> submit(std::span<const IoOp> ops) override {
    if (submit_errors > 0 && submit_errors-- > 0) return make_error(ErrorCode::io, "submit refused");
    auto accepted = inner_.submit(ops);
    deepest = std::max(deepest, inner_.in_flight());
    return accepted;
  }
  Result<size_t> poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) override {
    if (poll_errors > 0 && poll_errors-- > 0) return make_error(ErrorCode::io, "poll failed");
    return inner_.poll(min, timeout_ns, done);
  }
  [[nodiscard]] size_t in_flight() const override { return inner_.in_flight(); }
  Status register_buffer(std::span<std::byte>) override { return {}; }
  Status unregister_buffer(std::span<std::byte>) override { return {}; }

  size_t deepest = 0;
  int submit_errors = 0;
  int poll_errors = 0;

 private:
  IoQueue& inner_;
  uint32_t max_in_flight_;
};

TEST(DiskWriter, TheDepthIsUsedAndNotExceeded) {
  for (const uint32_t room : {1u, 3u, 64u}) {
    Bench bench;
    WatchingQueue queue(bench.io, room);
    DiskWriter writer(bench.recorder, queue, bench.clock);
    const auto result = writer.run(make_job(1, kFolder, first_publication(shape_of(1, 5000))));
    ASSERT_TRUE(result.status.ok());
    EXPECT_EQ(queue.deepest, std::min(room, limits::kWriteDepth));
    EXPECT_TRUE(bench.published().ok());
  }
}

TEST(DiskWriter, AQueueThatAcceptsOneAtATimeIsOnlySlower) {
  FakeIoQueue::Options options;
  options.accept_at_most = 1;
  Bench bench({}, options);
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 5000))).status.ok());
  EXPECT_TRUE(bench.published().ok());
}

TEST(DiskWriter, AQueueThatAcceptsNothingEndsTheJob) {
  FakeIoQueue::Options options;
  options.accept_at_most = 0;
  Bench bench({}, options);
  const WriteResult result = bench.run(first_publication(shape_of(1, 600)));
  ASSERT_FALSE(result.status.ok());
  EXPECT_EQ(result.status.error().code, ErrorCode::unavailable);
  EXPECT_THAT(bench.memory.paths(), IsEmpty());
}

TEST(DiskWriter, QueueErrorsEndTheJobAfterItsTransfersAndTheNextOneWorks) {
  for (const int errors : {1, 3, 100}) {
    Bench bench;
    WatchingQueue queue(bench.io, 64);
    DiskWriter writer(bench.recorder, queue, bench.clock);
    queue.poll_errors = errors;
    EXPECT_FALSE(writer.run(make_job(1, kFolder, first_publication(shape_of(1, 5000)))).status.ok());
    if (errors < 8) {
      EXPECT_EQ(queue.in_flight(), 0u) << "nothing of a failed job is left in the queue";
    }
    EXPECT_EQ(bench.memory.paths().size(), 0u);
    queue.poll_errors = 0;
    queue.submit_errors = 1;
    EXPECT_FALSE(writer.run(make_job(2, kFolder, first_publication(shape_of(1, 5000)))).status.ok());
    const auto result = writer.run(make_job(3, kFolder, first_publication(shape_of(1, 5000))));
    EXPECT_TRUE(result.status.ok()) << "late completions of the first job are not taken for its own";
    EXPECT_TRUE(bench.published().ok());
  }
}

TEST(DiskWriter, WithoutDirectIoItWritesBuffered) {
  FakeFileSystem::Options options;
  options.direct = false;
  options.sync_directory = false;
  Bench bench(options);
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok())
      << "a folder that cannot be flushed is fine";
  EXPECT_EQ(bench.recorder.calls[0], "create " + kSess);
  EXPECT_TRUE(bench.published().ok());
}

TEST(DiskWriter, DISK3_AFullDiskIsExhaustedAndLeavesNothing) {
  for (uint64_t pages = 0; pages < 13; ++pages) {
    FakeFileSystem::Options options;
    options.capacity_bytes = pages * limits::kAlignment;
    Bench bench(options);
    const WriteResult result = bench.run(first_publication(shape_of(1, 600)));
    if (result.status.ok()) {
      EXPECT_GE(pages, 11u);
      continue;
    }
    EXPECT_EQ(result.status.error().code, ErrorCode::exhausted) << result.status.error().message;
    EXPECT_EQ(bench.memory.allocated_bytes(), 0u);
    EXPECT_THAT(bench.memory.paths(), IsEmpty());
    ASSERT_LE(result.files.size(), 1u);
    if (!result.files.empty()) {
      EXPECT_EQ(result.files[0].allocated_bytes, 0u);
    }
  }
}

TEST(DiskWriter, AnExistingFileIsNeverTakenForItsOwn) {
  Bench bench;
  bench.memory.put(in_folder(kSess), "somebody else's");
  const WriteResult result = bench.run(first_publication(shape_of(1, 600)));
  EXPECT_FALSE(result.status.ok());
  EXPECT_EQ(bench.memory.get(in_folder(kSess)).size(), 15u);
}

TEST(DiskWriter, AStaleTemporaryIndexIsReplaced) {
  Bench bench;
  bench.memory.put(in_folder(kIdx + ".tmp"), "cut short by a crash, and longer than what comes now");
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  EXPECT_TRUE(bench.published().ok());
}

struct Outcome {
  std::string name;
  WriteResult result;
  Result<Manifest> published;
};

// What holds after any publication, whatever failed.
void check_outcome(Bench& bench, const Outcome& outcome, uint64_t generation_before, bool created,
                   bool once) {
  SCOPED_TRACE(outcome.name);
  EXPECT_THAT(bench.recorder.violations, IsEmpty());
  EXPECT_EQ(bench.memory.open_files(), 0u);
  EXPECT_EQ(bench.io.in_flight(), 0u);
  const uint64_t expected = outcome.result.published ? generation_before + 1 : generation_before;
  if (expected == 0) {
    EXPECT_FALSE(bench.memory.exists(in_folder(kIdx)));
  } else {
    ASSERT_TRUE(outcome.published.ok()) << outcome.published.error().message;
    EXPECT_EQ(outcome.published->head.generation, expected);
  }
  EXPECT_TRUE(outcome.result.published || !outcome.result.status.ok());
  if (!once)
    return;  // the disk is gone for good: what could not be removed stays for the next start's intake
  EXPECT_FALSE(bench.memory.exists(in_folder(kIdx + ".tmp")));
  if (created && !outcome.result.published) {
    EXPECT_FALSE(bench.memory.exists(in_folder(kSess)));
  }
}

// Runs the publication with the nth call failing, n = 1, 2, … until none fails.
void publish_with_faults(bool later, bool first, const FakeFileSystem::Options& options) {
  uint64_t clean_passes = 0;
  for (uint64_t nth = 1; clean_passes == 0; ++nth) {
    ASSERT_LT(nth, 200u);
    for (const int error : {EIO, ENOSPC}) {
      Bench bench(options, in_order());
      PublishJob job = first_publication(shape_of(1, 600));
      if (!first) {
        ASSERT_TRUE(bench.run(job).status.ok());
        job = next_publication(shape_of(2, 900), *bench.published());
      }
      bench.faulty.set_plan({FileFault{FileCall::any, nth, error, later}});
      const WriteResult result = bench.run(job);
      const uint64_t faults = bench.faulty.faults();
      bench.faulty.set_plan({});
      if (faults == 0) {
        EXPECT_TRUE(result.status.ok());
        ++clean_passes;
      }
      check_outcome(bench, {"call " + std::to_string(nth), result, bench.published()}, first ? 0 : 1, first,
                    !later);
    }
  }
}

TEST(DiskWriter, B6_AnyCallFailingOnceLeavesTheOldOrTheNewGeneration) {
  publish_with_faults(false, true, {});
  publish_with_faults(false, false, {});
}

TEST(DiskWriter, B6_AnyCallFailingForGoodLeavesTheOldOrTheNewGeneration) {
  publish_with_faults(true, true, {});
  publish_with_faults(true, false, {});
}

TEST(DiskWriter, B6_AnyTransferFailingLeavesTheOldGeneration) {
  for (const bool later : {false, true}) {
    for (uint64_t nth = 1; nth <= 12; ++nth) {
      Bench bench;
      ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
      const PublishJob job = next_publication(shape_of(2, 3000), *bench.published());
      ASSERT_GE(job.writes.size(), 8u);
      bench.io.set_faults({IoFault{IoKind::write, nth, ENOSPC, later}});
      const WriteResult result = bench.run(job);
      EXPECT_EQ(result.status.ok(), nth > job.writes.size());
      if (!result.status.ok()) {
        EXPECT_EQ(result.status.error().code, ErrorCode::exhausted);
        EXPECT_THAT(result.digests, IsEmpty());
      }
      check_outcome(bench, {"transfer " + std::to_string(nth), result, bench.published()}, 1, false, true);
    }
  }
}

TEST(DiskWriter, SES1_AFailedFolderFlushSaysThatItIsPublished) {
  Bench bench;
  bench.faulty.set_plan({FileFault{FileCall::sync_directory, 2, EIO}});  // 1: the new session file's name
  const WriteResult result = bench.run(first_publication(shape_of(1, 600)));
  EXPECT_FALSE(result.status.ok());
  EXPECT_TRUE(result.published);
  EXPECT_EQ(result.digests.size(), 4u);
  EXPECT_TRUE(bench.published().ok());
}

TEST(DiskWriter, B6_WithoutTheFilesNameOnDiskNothingIsPublished) {
  Bench bench;
  bench.faulty.set_plan({FileFault{FileCall::sync_directory, 1, EIO}});
  const WriteResult result = bench.run(first_publication(shape_of(1, 600)));
  EXPECT_FALSE(result.status.ok());
  EXPECT_FALSE(result.published);
  EXPECT_THAT(bench.memory.paths(), IsEmpty());
}

TEST(DiskWriter, AFailedFlushIsNotTriedAgain) {
  Bench bench;
  bench.faulty.set_plan({FileFault{FileCall::sync_data, 1, EIO}});
  EXPECT_FALSE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  EXPECT_EQ(bench.faulty.calls(FileCall::sync_data), 1u);
}

// A double whose rename does its work and then reports an error.
class LyingRename final : public FileSystem {
 public:
  explicit LyingRename(FileSystem& inner) : inner_(inner) {}
  Result<FileHandle> open(const std::string& path, OpenMode mode, Caching caching) override {
    return inner_.open(path, mode, caching);
  }
  void close(FileHandle file) override { inner_.close(file); }
  Result<size_t> read_at(FileHandle f, std::span<std::byte> to, uint64_t at) override {
    return inner_.read_at(f, to, at);
  }
  Status write_at(FileHandle f, std::span<const std::byte> from, uint64_t at) override {
    return inner_.write_at(f, from, at);
  }
  Status sync_data(FileHandle file) override { return inner_.sync_data(file); }
  Result<FileInfo> info(FileHandle file) override { return inner_.info(file); }
  Result<FileInfo> info(const std::string& path) override { return inner_.info(path); }
  Status allocate(FileHandle f, uint64_t at, uint64_t length) override {
    return inner_.allocate(f, at, length);
  }
  Status punch(FileHandle f, uint64_t at, uint64_t length) override { return inner_.punch(f, at, length); }
  Status truncate(FileHandle file, uint64_t length) override { return inner_.truncate(file, length); }
  Status rename(const std::string& from, const std::string& to) override {
    (void)inner_.rename(from, to);
    return errno_error(EIO, "rename");
  }
  Status unlink(const std::string& path) override { return inner_.unlink(path); }
  Status set_modified(const std::string& path, int64_t ns) override { return inner_.set_modified(path, ns); }
  Status create_directory(const std::string& path) override { return inner_.create_directory(path); }
  Status sync_directory(const std::string& path) override { return inner_.sync_directory(path); }
  Result<std::vector<std::string>> list(const std::string& path) override { return inner_.list(path); }
  Result<SpaceInfo> space(const std::string& path) override { return inner_.space(path); }
  Result<FileHandle> lock(const std::string& path) override { return inner_.lock(path); }
  void unlock(FileHandle lock) override { inner_.unlock(lock); }

 private:
  FileSystem& inner_;
};

TEST(DiskWriter, ARenameThatHappenedAndFailedKeepsTheDataItPublished) {
  Bench bench;
  LyingRename lying(bench.memory);
  DiskWriter writer(lying, bench.io, bench.clock);
  const WriteResult result = writer.run(make_job(1, kFolder, first_publication(shape_of(1, 600))));
  EXPECT_FALSE(result.status.ok());
  EXPECT_TRUE(result.published);
  EXPECT_TRUE(bench.published().ok());
}

// ---- release

ReleaseJob release_all() {
  ReleaseJob job;
  job.id = kId;
  job.remove_index = true;
  job.files = {{kId, true, {}}};
  return job;
}

TEST(DiskWriter, TheOrderOfARemoval) {
  Bench bench;
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  bench.recorder.calls.clear();
  const WriteResult result = bench.run(release_all());
  ASSERT_TRUE(result.status.ok());
  EXPECT_THAT(bench.recorder.calls, ElementsAre("unlink " + kIdx, "sync folder", "unlink " + kSess));
  EXPECT_EQ(bench.memory.allocated_bytes(), 0u);
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_EQ(result.files[0].allocated_bytes, 0u);
  EXPECT_TRUE(bench.run(release_all()).status.ok()) << "what is gone is gone";
}

TEST(DiskWriter, AReleasePunchesOnlyWhatItWasTold) {
  Bench bench;
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  const auto first = bench.published();
  ASSERT_TRUE(bench.run(next_publication(shape_of(2, 900), *first)).status.ok());
  ReleaseJob job;
  job.id = kId;
  job.files = {{kId, false, {}}};
  for (size_t i = 2; i < first->parts.size(); ++i) {
    job.files[0].punch.push_back(
        {first->parts[i].offset, align_up(first->parts[i].length, limits::kAlignment)});
  }
  const uint64_t before = bench.memory.allocated_bytes();
  const WriteResult result = bench.run(job);
  ASSERT_TRUE(result.status.ok());
  EXPECT_LT(bench.memory.allocated_bytes(), before);
  EXPECT_EQ(result.files[0].allocated_bytes, bench.memory.info(in_folder(kSess))->allocated_bytes);
  const auto still = bench.published();
  ASSERT_TRUE(still.ok()) << still.error().message;
  EXPECT_EQ(still->head.generation, 2u);
}

TEST(DiskWriter, WithoutHolesTheSpaceIsKeptAndSaidSo) {
  FakeFileSystem::Options options;
  options.punch = false;
  Bench bench(options);
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  ReleaseJob job;
  job.id = kId;
  job.remove_index = true;
  job.files = {{kId, false, {{4096, 4096}, {8192, 4096}}}};
  const uint64_t before = bench.memory.info(in_folder(kSess))->allocated_bytes;
  const WriteResult result = bench.run(job);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.files[0].allocated_bytes, before);
}

TEST(DiskWriter, BytesUnderAnIndexThatCouldNotBeRemovedStay) {
  for (const FileCall call : {FileCall::unlink, FileCall::sync_directory}) {
    Bench bench;
    ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
    bench.faulty.set_plan({FileFault{call, 1, EIO}});
    const WriteResult result = bench.run(release_all());
    EXPECT_FALSE(result.status.ok());
    EXPECT_TRUE(bench.memory.exists(in_folder(kSess)));
    EXPECT_GT(result.files[0].allocated_bytes, 0u);
  }
}

TEST(DiskWriter, OneFailedStepDoesNotStopTheRestOfARelease) {
  Bench bench;
  ConversationShape other = shape_of(1, 600);
  other.id = ConversationId{0xCD};
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  ASSERT_TRUE(bench.run(first_publication(other)).status.ok());
  ReleaseJob job;
  job.id = kId;
  job.files = {{ConversationId{0xEE}, false, {{4096, 4096}}},
               {kId, false, {{4096, 4096}, {8192, 4096}}},
               {other.id, true, {}}};
  bench.faulty.set_plan({FileFault{FileCall::punch, 1, EIO}});
  const WriteResult result = bench.run(job);
  EXPECT_FALSE(result.status.ok());
  EXPECT_EQ(bench.faulty.calls(FileCall::punch), 2u);
  EXPECT_FALSE(bench.memory.exists(in_folder("conv-00000000000000cd.sess")));
  EXPECT_EQ(result.files.size(), 3u);
  EXPECT_EQ(bench.memory.open_files(), 0u);
}

TEST(DiskWriter, B6_AnyCallOfAReleaseMayFail) {
  for (uint64_t nth = 1;; ++nth) {
    Bench bench;
    ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
    bench.faulty.set_plan({FileFault{FileCall::any, nth, EIO}});
    const WriteResult result = bench.run(release_all());
    const bool clean = bench.faulty.faults() == 0;
    bench.faulty.set_plan({});
    const bool index_there = bench.memory.exists(in_folder(kIdx));
    if (index_there) {
      EXPECT_TRUE(bench.published().ok()) << "an index without its bytes after call " << nth;
    }
    if (clean) {
      EXPECT_TRUE(result.status.ok());
      break;
    }
  }
}

// ---- quarantine

TEST(DiskWriter, AQuarantinedIndexIsKeptUnderAnotherName) {
  Bench bench;
  ASSERT_TRUE(bench.run(first_publication(shape_of(1, 600))).status.ok());
  bench.recorder.calls.clear();
  const WriteResult result = bench.run(QuarantineJob{kId});
  ASSERT_TRUE(result.status.ok());
  EXPECT_THAT(bench.recorder.calls, ElementsAre("rename " + kIdx + " " + kIdx + ".bad", "sync folder"));
  EXPECT_FALSE(bench.memory.exists(in_folder(kIdx)));
  EXPECT_TRUE(bench.memory.exists(in_folder(kSess)));
  EXPECT_EQ(result.index_allocated_bytes, bench.memory.info(in_folder(kIdx + ".bad"))->allocated_bytes);
  const WriteResult again = bench.run(QuarantineJob{kId});
  ASSERT_FALSE(again.status.ok());
  EXPECT_EQ(again.status.error().code, ErrorCode::not_found);
}

// ---- gate

class CountingGate final : public TransferGate {
 public:
  void before_transfer() override { ++asked; }
  void before_background_transfer(const StopFlag&) override { ++asked; }
  int asked = 0;
};

TEST(DiskWriter, EveryBatchOfTransfersAsksTheGateAndNothingElseDoes) {
  Bench bench;
  CountingGate gate;
  DiskWriter writer(bench.recorder, bench.io, bench.clock, &gate);
  ASSERT_TRUE(writer.run(make_job(1, kFolder, first_publication(shape_of(1, 5000)))).status.ok());
  EXPECT_GE(gate.asked, 3) << "21 transfers, at most 8 in flight";
  const int before = gate.asked;
  ASSERT_TRUE(writer.run(make_job(2, kFolder, release_all())).status.ok());
  EXPECT_EQ(gate.asked, before);
}

}  // namespace
}  // namespace strata::testing
