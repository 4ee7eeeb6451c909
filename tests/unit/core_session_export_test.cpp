// One conversation as a self-contained file (design 06): golden bytes, every byte checked on the way, nothing
// under the target's name unless it is whole.
#include "core/session_export.hpp"

#include <gtest/gtest.h>

#include "core/folder_check.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/stored_builder.hpp"

namespace strata {
namespace {

using testing::FakeFileSystem;
using testing::FaultyFileSystem;
using testing::FileCall;
using testing::kStoreFolder;
using testing::stored_child;
using testing::stored_parent;
using testing::StoredBuilder;

const std::string kOut = "/out";
const std::string kTarget = "/out/chat.sess";
const std::string kChild = "conv-00000000000000b2.idx";
constexpr auto kSilent = [](uint64_t) {};

class SessionExport : public ::testing::Test {
 protected:
  SessionExport() {
    EXPECT_TRUE(files_.create_directory(kStoreFolder));
    EXPECT_TRUE(files_.create_directory(kOut));
    parent_.write(files_);
    child_.manifest.head.flags = kManifestEphemeral;
    child_.manifest.head.label = "sub agent";
    child_.manifest.head.identity_fields = {{"state_version", "reference-1"}};
    child_.write(files_);
  }

  Result<ExportReport> run(FileSystem& files, const std::string& name = kChild, bool force = false) {
    return export_stored(files, random_, {kStoreFolder, name, kTarget, force}, kSilent);
  }
  void expect_no_trace() {
    for (const std::string& path : files_.paths()) EXPECT_NE(path.substr(0, 5), kOut + "/") << path;
    EXPECT_EQ(files_.open_files(), 0u);
  }

  FakeFileSystem files_;
  testing::FakeRandom random_;
  StoredBuilder parent_ = stored_parent();
  StoredBuilder child_ = stored_child(parent_);
};

TEST_F(SessionExport, GoldenBytes) {  // SES-7
  testing::write_small_pair(files_);
  ASSERT_TRUE(run(files_).ok());
  testing::expect_golden("session_saved_v1.hex", testing::hex_dump(files_.get(kTarget)));
}

TEST_F(SessionExport, StandsAloneWithTheSameContent) {
  uint64_t seen = 0;
  const auto report = export_stored(files_, random_, {kStoreFolder, kChild, kTarget, false},
                                    [&](uint64_t bytes) { seen += bytes; });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->tokens, 120u);
  EXPECT_EQ(report->parts, 3u);
  EXPECT_EQ(report->inherited_parts, 1u);
  EXPECT_EQ(report->file_bytes, files_.get(kTarget).size());
  EXPECT_EQ(seen, 9000u + 1800 + 3000);
  const auto original = read_stored_manifest(files_, kStoreFolder, kChild);
  for (const std::string& path : files_.paths()) {
    if (!path.starts_with(kStoreFolder)) continue;
    ASSERT_TRUE(files_.unlink(path).ok());
  }
  EXPECT_TRUE(verify_stored(files_, kOut, "chat.sess", kSilent).problems.empty());
  const auto saved = read_stored_manifest(files_, kOut, "chat.sess");
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->tokens, original->tokens);
  EXPECT_EQ(saved->head.files.size(), 1u);
  EXPECT_EQ(saved->head.label, "sub agent");
  EXPECT_EQ(saved->head.flags, 0u) << "no longer bound to a run";
  for (size_t i = 0; i < saved->parts.size(); ++i)
    EXPECT_EQ(saved->parts[i].length, original->parts[i].length);
}

TEST_F(SessionExport, ASavedFileCanBeSavedAgain) {
  ASSERT_TRUE(run(files_).ok());
  const auto first = files_.get(kTarget);
  const auto again = export_stored(files_, random_, {kOut, "chat.sess", "/out/copy.sess", false}, kSilent);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(files_.get("/out/copy.sess"), first);
}

TEST_F(SessionExport, LargePartsInPieces) {
  ASSERT_TRUE(run(files_, "conv-00000000000000a1.idx").ok());
  EXPECT_TRUE(verify_stored(files_, kOut, "chat.sess", kSilent).problems.empty());
}

TEST_F(SessionExport, NothingIsReplacedUnlessAsked) {
  files_.put(kTarget, "precious");
  const auto refused = run(files_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid);
  EXPECT_NE(refused.error().message.find("--force"), std::string::npos);
  EXPECT_EQ(files_.get(kTarget).size(), 8u);
  EXPECT_TRUE(run(files_, kChild, true).ok());
  EXPECT_GT(files_.get(kTarget).size(), 8u);
}

TEST_F(SessionExport, LinksAndFoldersAreNeverReplaced) {
  files_.add_symlink(kTarget);
  EXPECT_EQ(run(files_, kChild, true).error().code, ErrorCode::invalid);
  EXPECT_EQ(check_export_target(files_, kOut, true).error().code, ErrorCode::invalid);
  EXPECT_EQ(check_export_target(files_, kOut + "/", true).error().code, ErrorCode::invalid);
}

TEST_F(SessionExport, NamesOfTheFolderItselfAreRefused) {
  for (const char* name : {"LOCK", "conv-00000000000000b2.sess", "conv-00000000000000b2.idx",
                           "conv-00000000000000b2.idx.tmp", "conv-00000000000000b2.idx.bad", "chat.idx"})
    EXPECT_EQ(check_export_target(files_, kStoreFolder + "/" + name, true).error().code, ErrorCode::invalid)
        << name;
  EXPECT_TRUE(check_export_target(files_, kStoreFolder + "/chat.sess", false).ok());
}

TEST_F(SessionExport, ATargetThatAppearedMeanwhileIsNotReplaced) {
  const auto report = export_stored(files_, random_, {kStoreFolder, kChild, kTarget, false}, [&](uint64_t) {
    if (!files_.exists(kTarget)) files_.put(kTarget, "precious");
  });
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(files_.get(kTarget).size(), 8u);
  EXPECT_EQ(files_.paths().size(), 5u) << "the temporary file is gone";
}

TEST_F(SessionExport, DamageIsFoundWhileCopying) {
  for (const char* name : {"conv-00000000000000a1.sess", "conv-00000000000000b2.sess"}) {
    for (const uint64_t at : {uint64_t{30}, uint64_t{4096}}) {  // the header, a part
      files_.flip_byte(kStoreFolder + "/" + name, at);
      const auto report = run(files_);
      ASSERT_FALSE(report.ok()) << name;
      EXPECT_EQ(report.error().code, ErrorCode::corrupt) << report.error().message;
      EXPECT_NE(report.error().message.find(name), std::string::npos) << report.error().message;
      files_.flip_byte(kStoreFolder + "/" + name, at);
      expect_no_trace();
    }
  }
  files_.cut(kStoreFolder + "/conv-00000000000000b2.sess", 8192);
  EXPECT_FALSE(run(files_).ok());
  ASSERT_TRUE(files_.unlink(kStoreFolder + "/conv-00000000000000b2.sess").ok());
  EXPECT_FALSE(run(files_).ok());
  files_.flip_byte(kStoreFolder + "/" + kChild, 500);
  EXPECT_FALSE(run(files_).ok());
  EXPECT_FALSE(run(files_, "conv-00000000000000ff.idx").ok());
  expect_no_trace();
}

TEST_F(SessionExport, AFullDiskLeavesNothing) {
  files_.set_capacity(files_.allocated_bytes() + 8192);
  const auto report = run(files_);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::exhausted);
  expect_no_trace();
}

TEST_F(SessionExport, EveryFailureLeavesNothingOrTheWholeFile) {
  for (const FileCall call :
       {FileCall::open, FileCall::read, FileCall::write, FileCall::sync_data, FileCall::info,
        FileCall::allocate, FileCall::rename, FileCall::sync_directory}) {
    for (uint64_t nth = 1;; ++nth) {
      FaultyFileSystem faulty(files_, {{.call = call, .nth = nth, .os_errno = EIO}});
      const auto report = run(faulty);
      if (faulty.faults() == 0) {
        EXPECT_TRUE(report.ok());
        ASSERT_TRUE(files_.unlink(kTarget).ok());
        break;
      }
      EXPECT_FALSE(report.ok());
      if (call == FileCall::sync_directory) {  // renamed: whole, and said to be there
        EXPECT_TRUE(verify_stored(files_, kOut, "chat.sess", kSilent).problems.empty());
        ASSERT_TRUE(files_.unlink(kTarget).ok());
      }
      expect_no_trace();
    }
  }
}

TEST_F(SessionExport, AConversationThatIsReplacedMeanwhileIsReadAgain) {
  bool replaced = false;
  const auto report = export_stored(files_, random_, {kStoreFolder, kChild, kTarget, false}, [&](uint64_t) {
    if (std::exchange(replaced, true)) return;
    StoredBuilder newer =
        stored_child(parent_);  // the same parts in other places; the old places are used anew
    newer.manifest.head.generation = 2;
    newer.add(PartKind::block, 100, 20, 1800);
    newer.add(PartKind::live, 120, 0, 3000);
    newer.manifest.parts.erase(newer.manifest.parts.begin() + 1, newer.manifest.parts.begin() + 3);
    std::fill_n(newer.data.begin() + 4096, 8192, std::byte{0});
    const auto file = files_.open(newer.data_path(), OpenMode::read_write, Caching::buffered);
    EXPECT_TRUE(files_.write_at(*file, newer.data, 0).ok());
    files_.close(*file);
    files_.put(newer.index_path(), encode_manifest(newer.manifest));
  });
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(read_stored_manifest(files_, kOut, "chat.sess")->head.generation, 2u);
  EXPECT_TRUE(verify_stored(files_, kOut, "chat.sess", kSilent).problems.empty());
}

}  // namespace
}  // namespace strata
