// Intake: what is taken in, refused, removed, and never touched (DISK-4, DISK-5, DISK-6, DISK-8; field
// lessons 7, 8, 16).
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/limits.hpp"
#include "core/posix/file_system.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/recording_file_system.hpp"
#include "tests/support/recording_log.hpp"
#include "tests/support/stored_builder.hpp"
#include "tests/support/stored_conversation.hpp"
#include "tiers/intake.hpp"

namespace strata::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr const char* kFolder = "/cache";
constexpr uint64_t kMinuteNs = 60'000'000'000;

std::string in_folder(const std::string& name) { return std::string(kFolder) + "/" + name; }
std::string idx(uint64_t id) { return index_file_name(ConversationId{id}); }
std::string sess(uint64_t id) { return session_file_name(ConversationId{id}); }

class IntakeTest : public ::testing::Test {
 protected:
  IntakeTest() {
    EXPECT_TRUE(memory.create_directory(kFolder).ok());
    const ConversationShape shape;
    rules.folder = kFolder;
    rules.identity = {shape.model_identity, shape.configuration_identity, shape.identity_fields};
    rules.budget_bytes = limits::kGiB;
    rules.now_wall_ns = shape.last_used_ns + 10 * kMinuteNs;
  }

  // Stores a conversation; `change` may make it differ from what is wanted.
  void store(uint64_t id, const std::function<void(ConversationShape&)>& change = {}) {
    ConversationShape shape;
    shape.id = ConversationId{id};
    if (change) change(shape);
    publish(first_publication(shape));
  }
  void publish(PublishJob job) {
    FakeClock clock;
    FakeIoQueue io(memory, clock);
    ASSERT_TRUE(DiskWriter(memory, io, clock).run(make_job(1, kFolder, std::move(job))).status.ok());
  }
  // Conversation `id` that owns nothing and uses all parts of `parent`.
  void store_heir(uint64_t id, uint64_t parent) {
    PublishJob job;
    job.id = ConversationId{id};
    job.manifest = *read_published(memory, kFolder, ConversationId{parent});
    job.manifest.head.id = job.id;
    job.manifest.head.files.insert(job.manifest.head.files.begin(), ManifestFile{job.id, 0});
    for (ManifestPart& part : job.manifest.parts) part.file = 1;
    job.manifest.head.last_used_ns += kMinuteNs;
    publish(std::move(job));
  }
  void clear() {
    for (const std::string& path : memory.paths()) ASSERT_TRUE(memory.unlink(path).ok());
  }
  void damage(const std::string& name, const std::function<void(std::vector<std::byte>&)>& change) {
    std::vector<std::byte> bytes = memory.get(in_folder(name));
    change(bytes);
    memory.put(in_folder(name), bytes);
  }

  IntakeReport take(FileSystem& files) {
    auto report = take_in(files, log, metrics, rules);
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(memory.open_files(), 0u);
    return report.ok() ? *report : IntakeReport{};
  }
  IntakeReport take() { return take(memory); }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const std::string& path : memory.paths()) result.push_back(path.substr(path.rfind('/') + 1));
    return result;
  }
  static std::vector<uint64_t> ids(const IntakeReport& report) {
    std::vector<uint64_t> result;
    for (const TakenIn& taken : report.taken) result.push_back(taken.head.id.value);
    return result;
  }

  // The one refusal of a folder with the good conversation 1 and the bad one 2, whatever the bad one's files
  // do.
  void expect_refused(SkipReason reason, const std::string& detail, bool foreign = true) {
    rules.remove_foreign = false;
    const IntakeReport kept = take();
    EXPECT_THAT(ids(kept), ElementsAre(1));
    ASSERT_EQ(kept.refused.size(), 1u);
    EXPECT_EQ(kept.refused[0].reason, reason) << label(kept.refused[0].reason);
    EXPECT_EQ(kept.refused[0].file_name, idx(2));
    EXPECT_THAT(kept.refused[0].detail, HasSubstr(detail));
    EXPECT_EQ(kept.refused[0].removed, !foreign);
    if (foreign) {
      EXPECT_TRUE(memory.exists(in_folder(idx(2))));
      EXPECT_EQ(kept.taken_bytes + kept.kept_bytes, memory.allocated_bytes());
      EXPECT_GT(kept.kept_bytes, 0u);
      rules.remove_foreign = true;
      const IntakeReport removed = take();
      ASSERT_EQ(removed.refused.size(), 1u);
      EXPECT_EQ(removed.refused[0].reason, reason);
      EXPECT_TRUE(removed.refused[0].removed);
    }
    EXPECT_THAT(names(), ElementsAre(idx(1), sess(1)));
    EXPECT_THAT(ids(take()), ElementsAre(1)) << "and the good one is still good";
  }

  FakeFileSystem memory;
  RecordingLog log;
  Metrics metrics;
  IntakeRules rules;
};

TEST_F(IntakeTest, DISK6_WhatPassesIsTakenInMostRecentlyUsedFirst) {
  store(1);
  store(2, [](ConversationShape& shape) { shape.last_used_ns += 2; });
  store(3, [](ConversationShape& shape) { shape.last_used_ns += 1; });
  const IntakeReport report = take();
  EXPECT_THAT(ids(report), ElementsAre(2, 3, 1));
  EXPECT_THAT(report.refused, IsEmpty());
  EXPECT_EQ(report.taken_bytes, memory.allocated_bytes());
  EXPECT_EQ(report.kept_bytes, 0u);
  ASSERT_EQ(report.files.size(), 3u);
  EXPECT_EQ(report.taken[0].head, read_published(memory, kFolder, ConversationId{2})->head);
  EXPECT_EQ(report.taken[0].index_allocated_bytes, memory.info(in_folder(idx(2)))->allocated_bytes);
}

TEST_F(IntakeTest, AnEmptyFolderIsFineAndAMissingOneIsAnError) {
  EXPECT_THAT(take().taken, IsEmpty());
  rules.folder = "/nowhere";
  EXPECT_FALSE(take_in(memory, log, metrics, rules).ok());
}

// Counts what is read of every file.
class CountingReads final : public FileSystem {
 public:
  explicit CountingReads(FileSystem& inner) : inner_(inner) {}
  Result<FileHandle> open(const std::string& p, OpenMode m, Caching c) override {
    ++opens;
    return inner_.open(p, m, c);
  }
  void close(FileHandle f) override { inner_.close(f); }
  Result<size_t> read_at(FileHandle f, std::span<std::byte> to, uint64_t at) override {
    ++reads;
    bytes += to.size();
    return inner_.read_at(f, to, at);
  }
  Status write_at(FileHandle f, std::span<const std::byte> b, uint64_t at) override {
    return inner_.write_at(f, b, at);
  }
  Status sync_data(FileHandle f) override { return inner_.sync_data(f); }
  Result<FileInfo> info(FileHandle f) override { return inner_.info(f); }
  Result<FileInfo> info(const std::string& p) override { return inner_.info(p); }
  Status allocate(FileHandle f, uint64_t at, uint64_t n) override { return inner_.allocate(f, at, n); }
  Status punch(FileHandle f, uint64_t at, uint64_t n) override { return inner_.punch(f, at, n); }
  Status truncate(FileHandle f, uint64_t n) override { return inner_.truncate(f, n); }
  Status rename(const std::string& a, const std::string& b) override { return inner_.rename(a, b); }
  Status unlink(const std::string& p) override { return inner_.unlink(p); }
  Status set_modified(const std::string& p, int64_t ns) override { return inner_.set_modified(p, ns); }
  Status create_directory(const std::string& p) override { return inner_.create_directory(p); }
  Status sync_directory(const std::string& p) override { return inner_.sync_directory(p); }
  Result<std::vector<std::string>> list(const std::string& p) override { return inner_.list(p); }
  Result<SpaceInfo> space(const std::string& p) override { return inner_.space(p); }
  Result<FileHandle> lock(const std::string& p) override { return inner_.lock(p); }
  void unlock(FileHandle f) override { inner_.unlock(f); }
  uint64_t opens = 0, reads = 0, bytes = 0;

 private:
  FileSystem& inner_;
};

TEST_F(IntakeTest, P8_OnlyHeadsAreReadInTwoReadsAnIndex) {
  uint64_t heads = 0;
  for (uint64_t id = 1; id <= 5; ++id) {
    store(id, [](ConversationShape& shape) { shape.tokens = 6000; });
    heads += read_published(memory, kFolder, ConversationId{id})->head.head_bytes;
  }
  CountingReads counting(memory);
  EXPECT_EQ(take(counting).taken.size(), 5u);
  EXPECT_EQ(counting.opens, 5u);
  EXPECT_EQ(counting.reads, 10u);
  EXPECT_EQ(counting.bytes, heads);
}

// ---- a refusal a reason

TEST_F(IntakeTest, DISK8_Version) {
  store(1);
  store(2);
  damage(idx(2), [](auto& bytes) { bytes[8] = std::byte{9}; });
  expect_refused(SkipReason::version, "version 9");
}

TEST_F(IntakeTest, DISK8_AnyDamagedByteOfTheHead) {
  store(1);
  const auto head_bytes = (store(2), read_published(memory, kFolder, ConversationId{2})->head.head_bytes);
  for (uint64_t at = 16; at < head_bytes; at += 13) {
    memory.flip_byte(in_folder(idx(2)), at);
    rules.remove_foreign = false;
    const IntakeReport report = take();
    EXPECT_THAT(ids(report), ElementsAre(1)) << at;
    ASSERT_EQ(report.refused.size(), 1u);
    memory.flip_byte(in_folder(idx(2)), at);
  }
  memory.flip_byte(in_folder(idx(2)), head_bytes - 1);
  expect_refused(SkipReason::corrupt, "digest");
}

TEST_F(IntakeTest, DISK8_IdentityNamesTheField) {
  store(1);
  store(2, [](ConversationShape& shape) {
    shape.configuration_identity = {9, 9};
    shape.identity_fields = {{"kv_type", "q8_0"}};
  });
  expect_refused(SkipReason::identity, "kv_type: stored q8_0, now f16");
}

TEST_F(IntakeTest, DISK8_AnotherModel) {
  store(1);
  store(2, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
  expect_refused(SkipReason::identity, "model");
}

TEST_F(IntakeTest, DISK4_Expired) {
  rules.ttl_ns = 30 * kMinuteNs;
  store(1);
  store(2, [](ConversationShape& shape) { shape.last_used_ns -= 21 * kMinuteNs; });
  expect_refused(SkipReason::expired, "", false);
}

TEST_F(IntakeTest, DISK4_WithoutTtlNothingExpiresAndAFutureTimeIsNotOld) {
  store(1, [](ConversationShape& shape) { shape.last_used_ns = 0; });
  EXPECT_THAT(ids(take()), ElementsAre(1));
  rules.ttl_ns = kMinuteNs;
  store(2, [](ConversationShape& shape) { shape.last_used_ns += 1000 * kMinuteNs; });
  EXPECT_THAT(ids(take()), ElementsAre(2));
}

TEST_F(IntakeTest, DISK8_SessionFileTooShort) {
  store(1);
  store(2);
  memory.cut(in_folder(sess(2)), 8192);
  expect_refused(SkipReason::truncated, sess(2) + " has 8192 of");
}

TEST_F(IntakeTest, DISK8_SessionFileMissing) {
  store(1);
  store(2);
  ASSERT_TRUE(memory.unlink(in_folder(sess(2))).ok());
  expect_refused(SkipReason::truncated, sess(2) + " is missing");
}

TEST_F(IntakeTest, DISK8_SessionFileReplacedByALink) {
  store(1);
  store(2);
  ASSERT_TRUE(memory.unlink(in_folder(sess(2))).ok());
  memory.add_symlink(in_folder(sess(2)));
  EXPECT_THAT(ids(take()), ElementsAre(1));
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1), sess(2))) << "a link is not ours";
}

TEST_F(IntakeTest, DISK8_IndexCutShort) {
  store(1);
  store(2);
  const uint64_t size = memory.info(in_folder(idx(2)))->size_bytes;
  memory.cut(in_folder(idx(2)), size - 1);
  expect_refused(SkipReason::truncated, std::to_string(size - 1) + " of " + std::to_string(size));
}

TEST_F(IntakeTest, DISK8_IndexCutInsideItsFixedPart) {
  store(1);
  store(2);
  memory.cut(in_folder(idx(2)), 100);
  expect_refused(SkipReason::corrupt, "");
}

TEST_F(IntakeTest, DISK8_BytesBehindTheIndex) {
  store(1);
  store(2);
  damage(idx(2), [](auto& bytes) { bytes.push_back(std::byte{0}); });
  expect_refused(SkipReason::corrupt, "");
}

TEST_F(IntakeTest, DISK8_SwappedIndexes) {
  store(1);
  store(2);
  memory.put(in_folder(idx(2)), memory.get(in_folder(idx(1))));
  expect_refused(SkipReason::corrupt, "of conversation 0000000000000001");
}

TEST_F(IntakeTest, DISK5_EphemeralLeftoversAreRemovedInAnyMode) {
  for (const bool persist : {true, false}) {
    for (const bool remove_foreign : {true, false}) {
      rules.persist = persist;
      rules.remove_foreign = remove_foreign;
      store(1);
      store(2, [](ConversationShape& shape) { shape.ephemeral = true; });
      store(3, [](ConversationShape& shape) { shape.ephemeral = true; });
      ASSERT_TRUE(memory.unlink(in_folder(idx(3))).ok()) << "an interrupted write";
      const IntakeReport report = take();
      EXPECT_EQ(report.refused.size(), 2u);
      EXPECT_THAT(names(), ElementsAre(idx(1), sess(1)));
      EXPECT_EQ(report.taken.size(), persist ? 1u : 0u);
      EXPECT_EQ(persist ? report.taken_bytes : report.kept_bytes, memory.allocated_bytes());
      clear();
    }
  }
}

TEST_F(IntakeTest, DISK5_ARunWithoutPersistenceKeepsAndCountsWhatOthersStored) {
  store(1);
  store(2, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
  store(3);
  ASSERT_TRUE(memory.unlink(in_folder(idx(3))).ok());
  store(4);
  memory.flip_byte(in_folder(idx(4)), 60);
  const auto before = names();
  rules.persist = false;
  rules.ttl_ns = 1;
  const IntakeReport report = take();
  EXPECT_THAT(report.taken, IsEmpty());
  EXPECT_THAT(report.refused, IsEmpty());
  EXPECT_EQ(names(), before);
  EXPECT_EQ(report.kept_bytes, memory.allocated_bytes());
}

// ---- budget

TEST_F(IntakeTest, DISK8_TheBudgetTakesTheMostRecentFirst) {
  for (uint64_t id = 1; id <= 4; ++id) store(id, [&](ConversationShape& shape) { shape.last_used_ns += id; });
  const uint64_t each = memory.allocated_bytes() / 4;
  rules.budget_bytes = 2 * each + 100;
  rules.remove_foreign = false;
  const IntakeReport report = take();
  EXPECT_THAT(ids(report), ElementsAre(4, 3));
  ASSERT_EQ(report.refused.size(), 2u);
  EXPECT_EQ(report.refused[0].reason, SkipReason::budget);
  EXPECT_TRUE(report.refused[0].removed) << "our own old ones go, also where others' are kept";
  EXPECT_EQ(memory.allocated_bytes(), 2 * each);
  EXPECT_EQ(report.taken_bytes, 2 * each);
}

TEST_F(IntakeTest, DISK8_OneThatDoesNotFitKeepsNoSmallerOneOut) {
  store(1);
  const uint64_t small = memory.allocated_bytes();
  store(2, [](ConversationShape& shape) {
    shape.live_bytes = 10 * limits::kMiB;
    shape.last_used_ns += 5;
  });
  rules.budget_bytes = small;
  EXPECT_THAT(ids(take()), ElementsAre(1));
  EXPECT_EQ(memory.allocated_bytes(), small);
}

TEST_F(IntakeTest, DISK8_WhatIsKeptCountsAgainstTheBudget) {
  store(1);
  const uint64_t each = memory.allocated_bytes();
  store(2, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
  rules.remove_foreign = false;
  rules.budget_bytes = 2 * each - 1;
  const IntakeReport report = take();
  EXPECT_THAT(report.taken, IsEmpty());
  EXPECT_EQ(report.kept_bytes, each);
  EXPECT_THAT(names(), ElementsAre(idx(2), sess(2)));
  EXPECT_EQ(log.lines().back().level, LogLevel::warning) << "that others fill the budget is said";
}

TEST_F(IntakeTest, B2_SharedFilesAreCountedOnceAndStayWhileAnyoneNeedsThem) {
  store(1);
  store_heir(2, 1);
  const IntakeReport both = take();
  EXPECT_THAT(ids(both), ElementsAre(2, 1));
  EXPECT_EQ(both.taken_bytes, memory.allocated_bytes());
  EXPECT_EQ(both.files.size(), 1u);
  rules.budget_bytes = memory.allocated_bytes() - 1;  // the parent's index does not fit
  const IntakeReport heir = take();
  EXPECT_THAT(ids(heir), ElementsAre(2));
  EXPECT_THAT(names(), ElementsAre(sess(1), idx(2)));
  EXPECT_TRUE(read_published(memory, kFolder, ConversationId{2}).ok());
}

TEST_F(IntakeTest, B2_AnHeirOfALostFileIsRefused) {
  store(1);
  store_heir(2, 1);
  ASSERT_TRUE(memory.unlink(in_folder(sess(1))).ok());
  const IntakeReport report = take();
  EXPECT_THAT(report.taken, IsEmpty());
  EXPECT_EQ(report.refused.size(), 2u);
  EXPECT_THAT(names(), IsEmpty());
}

// ---- orphans and what is not ours

TEST_F(IntakeTest, DISK8_InterruptedWritesAndOrphansAreRemoved) {
  store(1);
  store(2);
  memory.put(in_folder(idx(3) + ".tmp"), memory.get(in_folder(idx(2))));
  ASSERT_TRUE(memory.unlink(in_folder(idx(2))).ok());
  const IntakeReport report = take();
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1)));
  ASSERT_EQ(report.refused.size(), 2u);
  for (const Refused& refused : report.refused) {
    EXPECT_EQ(refused.reason, SkipReason::orphan);
    EXPECT_TRUE(refused.removed);
  }
  EXPECT_EQ(metrics.value("strata_skips_total", "tier=\"disk\",reason=\"orphan\""), 2);
}

// A name of ours whose bytes never reached the disk, found by tools/power_loss: it takes space that nothing
// counts.
TEST_F(IntakeTest, DISK8_WhatAPowerCutLeftOfAnInterruptedWriteIsRemoved) {
  store(1);
  memory.put(in_folder(sess(2)), std::vector<std::byte>(3 * limits::kAlignment));
  std::vector<std::byte> torn = memory.get(in_folder(sess(1)));
  std::fill_n(torn.begin(), limits::kAlignment, std::byte{0});
  memory.put(in_folder(sess(3)), torn);
  memory.put(in_folder(idx(4) + ".tmp"), std::vector<std::byte>(100));
  const IntakeReport report = take();
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1)));
  ASSERT_EQ(report.refused.size(), 3u);
  for (const Refused& refused : report.refused) EXPECT_EQ(refused.reason, SkipReason::orphan);
  EXPECT_EQ(report.taken_bytes + report.kept_bytes, memory.allocated_bytes());
}

TEST_F(IntakeTest, DISK8_OrphansStayWhileAnUnreadableIndexMayNeedThem) {
  store(1);
  store(2);
  store(3);
  damage(idx(2), [](auto& bytes) { bytes[8] = std::byte{9}; });
  ASSERT_TRUE(memory.unlink(in_folder(idx(3))).ok());
  rules.remove_foreign = false;
  const IntakeReport report = take();
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1), idx(2), sess(2), sess(3)));
  EXPECT_EQ(report.taken_bytes + report.kept_bytes, memory.allocated_bytes());
  rules.remove_foreign = true;
  take();
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1)));
}

TEST_F(IntakeTest, DISK8_WhatDoesNotCarryOurMagicIsNeverTouched) {
  store(1);
  const std::vector<std::string> foreign = {
      "LOCK",           "notes.txt",     idx(2),       sess(3),
      idx(4) + ".tmp",  idx(5) + ".bad", "conv-1.idx", "conv-00000000000000AB.sess",
      sess(6) + ".old", sess(7)};
  for (const std::string& name : foreign) memory.put(in_folder(name), "my diary, not yours");
  memory.put(in_folder(sess(7)), "");
  memory.put(in_folder(idx(8)), "");
  memory.add_symlink(in_folder(idx(9)));
  memory.add_symlink(in_folder(sess(9)));
  memory.put(in_folder("real"), memory.get(in_folder(idx(1))));
  memory.add_hard_link(in_folder(idx(10)), in_folder("real"));
  ASSERT_TRUE(memory.create_directory(in_folder(idx(11))).ok());
  const auto before = names();
  const IntakeReport report = take();
  EXPECT_EQ(names(), before);
  EXPECT_THAT(report.refused, IsEmpty());
  EXPECT_THAT(ids(report), ElementsAre(1));
}

TEST_F(IntakeTest, ASelfContainedSessionFileWasSavedBySomebody) {
  SessionHeader header;
  header.flags = kSessionSelfContained;
  header.id = ConversationId{2};
  header.stage_count = 1;
  memory.put(in_folder(sess(2)), encode_session_header(header));
  const IntakeReport report = take();
  EXPECT_THAT(names(), ElementsAre(sess(2)));
  EXPECT_THAT(report.refused, IsEmpty());
  EXPECT_EQ(report.kept_bytes, 4096u);
}

TEST_F(IntakeTest, QuarantinedFilesAreKeptAndCounted) {
  store(1);
  store(2);
  ASSERT_TRUE(memory.rename(in_folder(idx(2)), in_folder(idx(2) + ".bad")).ok());
  const IntakeReport report = take();
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1), idx(2) + ".bad"));
  EXPECT_EQ(report.taken_bytes + report.kept_bytes, memory.allocated_bytes());
}

// ---- order and faults

TEST_F(IntakeTest, B6_IndexesGoFirstThenTheFolderIsFlushedThenTheirBytes) {
  store(1, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
  store(2);
  RecordingFileSystem recorder(memory);
  ASSERT_TRUE(memory.unlink(in_folder(sess(2))).ok());
  take(recorder);
  EXPECT_THAT(recorder.calls,
              ElementsAre("unlink " + idx(1), "unlink " + idx(2), "sync folder", "unlink " + sess(1)));
}

TEST_F(IntakeTest, AFolderThatCannotBeFlushedKeepsTheBytes) {
  store(1, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
  FaultyFileSystem faulty(memory, {FileFault{FileCall::sync_directory, 1, EIO}});
  const IntakeReport report = take(faulty);
  EXPECT_THAT(names(), ElementsAre(sess(1)));
  EXPECT_EQ(report.kept_bytes, memory.allocated_bytes());
}

TEST_F(IntakeTest, AnIndexThatCannotBeReadTodayIsKept) {
  store(1);
  store(2);
  ASSERT_TRUE(memory.unlink(in_folder(idx(2))).ok());
  FaultyFileSystem faulty(memory, {FileFault{FileCall::read, 1, EIO}, FileFault{FileCall::read, 2, EIO}});
  const IntakeReport report = take(faulty);
  EXPECT_THAT(report.taken, IsEmpty());
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_EQ(report.refused[0].reason, SkipReason::io_error);
  EXPECT_THAT(names(), ElementsAre(idx(1), sess(1), sess(2))) << "the orphan may be its";
}

TEST_F(IntakeTest, AnIndexThatCannotBeReadIsTriedOnceMore) {
  store(1);
  for (const FileCall call : {FileCall::read, FileCall::info}) {
    FaultyFileSystem faulty(memory, {FileFault{call, call == FileCall::read ? 1u : 2u, EIO}});
    EXPECT_THAT(ids(take(faulty)), ElementsAre(1));
    EXPECT_EQ(faulty.faults(), 1u);
  }
}

// What a refused index was, so that a request for it learns why it is read again (OBS-1).
// A short read of a longer file is the disk's failure: no reason to remove anything.
TEST_F(IntakeTest, AShortReadRemovesNothing) {
  store(1);
  store(2);
  memory.put(in_folder(sess(3)), self_contained_session());
  const auto before = names();
  for (uint64_t nth = 1; nth <= 8; ++nth) {
    FileFault fault{FileCall::read, nth};
    fault.keep_bytes = 20;
    FaultyFileSystem faulty(memory, {fault});
    EXPECT_THAT(ids(take(faulty)), UnorderedElementsAre(1, 2)) << "tried once more";
    fault.and_later = true;
    FaultyFileSystem failing(memory, {fault});
    take(failing);
    EXPECT_EQ(names(), before) << "read " << nth;
  }
}

TEST_F(IntakeTest, OBS1_ARefusalCarriesThePrefixChain) {
  store(1, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
  store(2, [](ConversationShape& shape) { shape.ephemeral = true; });
  store(3);
  memory.flip_byte(in_folder(idx(3)), 60);
  const uint32_t tokens = ConversationShape{}.tokens;
  const Manifest stored = *read_published(memory, kFolder, ConversationId{1});
  const IntakeReport report = take();
  ASSERT_EQ(report.refused.size(), 3u);
  for (const Refused& refused : report.refused) {
    const bool known = refused.reason == SkipReason::identity;
    EXPECT_EQ(refused.token_count, known ? tokens : 0) << refused.file_name;
    EXPECT_EQ(refused.prefix_chain, known ? stored.head.prefix_chain : std::vector<uint64_t>{});
  }
}

// A conversation that stays without being taken in keeps the files it shares.
TEST_F(IntakeTest, AFileThatAKeptIndexRefersToIsMarked) {
  store(1);
  store_heir(2, 1);
  store(3);
  const IntakeReport all = take();
  for (const IntakeFile& file : all.files) EXPECT_FALSE(file.kept_for_others);
  rules.remove_foreign = false;
  Manifest heir = *read_published(memory, kFolder, ConversationId{2});
  heir.head.files[1].needed_length += 1 << 20;
  memory.put(in_folder(idx(2)), encode_manifest(heir));
  const IntakeReport report = take();
  EXPECT_THAT(ids(report), ElementsAre(1, 3));
  for (const IntakeFile& file : report.files) EXPECT_EQ(file.kept_for_others, file.id == ConversationId{1});
}

TEST_F(IntakeTest, AnyCallFailingLosesNothingThatCouldBeTakenIn) {
  for (uint64_t nth = 1;; ++nth) {
    clear();
    store(1);
    store_heir(2, 1);
    store(3, [](ConversationShape& shape) { shape.model_identity = {7, 7}; });
    store(4, [](ConversationShape& shape) { shape.ephemeral = true; });
    FaultyFileSystem faulty(memory, {FileFault{FileCall::any, nth, EIO}});
    const auto report = take_in(faulty, log, metrics, rules);
    EXPECT_EQ(memory.open_files(), 0u);
    const bool clean = faulty.faults() == 0;
    if (report.ok()) {
      for (const TakenIn& taken : report->taken) {
        EXPECT_TRUE(read_published(memory, kFolder, taken.head.id).ok())
            << "taken in without its bytes, call " << nth;
      }
      const bool complete = report->taken.size() == 2;
      EXPECT_TRUE(complete || !clean);
    }
    EXPECT_TRUE(read_published(memory, kFolder, ConversationId{1}).ok()) << "lost after call " << nth;
    EXPECT_TRUE(read_published(memory, kFolder, ConversationId{2}).ok()) << "lost after call " << nth;
    if (clean) break;
  }
}

TEST_F(IntakeTest, NoGarbageIsTakenInOrEndsTheProgram) {
  std::mt19937 random(3);
  store(1);
  const auto good = memory.get(in_folder(idx(1)));
  for (int round = 0; round < 400; ++round) {
    std::vector<std::byte> bytes = good;
    bytes.resize(random() % 8 == 0 ? random() % good.size() : good.size());
    const uint32_t flips = random() % 2 == 0 ? 1 : random() % 60;
    for (uint32_t i = 0; i < flips && bytes.size() > 8; ++i)
      bytes[8 + random() % (bytes.size() - 8)] = std::byte(random());
    memory.put(in_folder(idx(2)), bytes);
    rules.remove_foreign = false;
    EXPECT_THAT(ids(take()), ElementsAre(1));
  }
}

// ---- on a real folder

class IntakeOnDisk : public ::testing::Test {
 protected:
  IntakeOnDisk() {
    std::string pattern = ::testing::TempDir() + "/strata-intake-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    const ConversationShape shape;
    rules.folder = folder;
    rules.identity = {shape.model_identity, shape.configuration_identity, shape.identity_fields};
    rules.budget_bytes = limits::kGiB;
    rules.now_wall_ns = shape.last_used_ns;
  }
  ~IntakeOnDisk() override {
    const auto left = files.list(folder);
    for (const std::string& name : *left) EXPECT_TRUE(files.unlink(folder + "/" + name).ok());
    ::rmdir(folder.c_str());
  }
  void store(uint64_t id) {
    ConversationShape shape;
    shape.id = ConversationId{id};
    const WriteResult result = writer.run(make_job(1, folder, first_publication(shape)));
    ASSERT_TRUE(result.status.ok()) << result.status.error().message;
    const auto info = files.info(folder + "/" + sess(id));
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(result.files.at(0).allocated_bytes, info->allocated_bytes);
  }
  void put(const std::string& name, std::span<const std::byte> bytes) {
    (void)files.unlink(folder + "/" + name);
    const auto file = files.open(folder + "/" + name, OpenMode::create_exclusive, Caching::buffered);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(files.write_at(*file, bytes, 0).ok());
    files.close(*file);
  }

  std::string folder;
  PosixFileSystem files;
  FakeClock clock;
  FakeIoQueue io{files, clock};
  DiskWriter writer{files, io, clock};
  RecordingLog log;
  Metrics metrics;
  IntakeRules rules;
};

TEST_F(IntakeOnDisk, DISK8_WritesAndTakesInWithTheRealFileSystem) {
  store(1);
  store(2);
  ASSERT_TRUE(read_published(files, folder, ConversationId{1}).ok());
  auto bytes = *read_whole(files, folder + "/" + idx(2));
  bytes[70] ^= std::byte{1};
  put(idx(2), bytes);
  put(sess(3), std::as_bytes(std::span("my diary")));
  const auto report = take_in(files, log, metrics, rules);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->taken.size(), 1u);
  ASSERT_EQ(report->refused.size(), 1u);
  EXPECT_EQ(report->refused[0].reason, SkipReason::corrupt);
  EXPECT_THAT(*files.list(folder), UnorderedElementsAre(idx(1), sess(1), sess(3)));
}

TEST_F(IntakeOnDisk, DISK8_NoGarbageEndsTheProgram) {
  store(1);
  const auto good = *read_whole(files, folder + "/" + idx(1));
  std::mt19937 random(5);
  for (uint64_t id = 2; id < 60; ++id) {
    std::vector<std::byte> bytes = good;
    bytes.resize(random() % 3 == 0 ? random() % good.size() : good.size());
    for (size_t at = random() % 200; at < bytes.size(); at += 1 + random() % 400)
      bytes[at] = std::byte(random());
    put(idx(id), bytes);
    put(sess(id), bytes);
  }
  const auto report = take_in(files, log, metrics, rules);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->taken.size(), 1u);
}

}  // namespace
}  // namespace strata::testing
