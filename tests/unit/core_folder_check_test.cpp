// Looking at stored conversations from outside (B-10): every damage is named by file and reason, nothing is
// changed, and a server at work in the folder is no problem.
#include "core/folder_check.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cerrno>
#include <functional>
#include <ostream>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/session_file.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/stored_builder.hpp"

namespace strata {
namespace {

using testing::FakeFileSystem;
using testing::FaultyFileSystem;
using testing::FileCall;
using testing::FileFault;
using Bytes = std::vector<std::byte>;

using testing::kStoredChild;
using testing::kStoredParent;
const std::string kFolder = testing::kStoreFolder;

using testing::self_contained_session;
using testing::stored_child;
using testing::stored_parent;
using testing::stored_payload;
using testing::StoredBuilder;

class FolderCheck : public ::testing::Test {
 protected:
  FolderCheck() : parent_(stored_parent()), child_(stored_child(parent_)) {
    EXPECT_TRUE(files_.create_directory(kFolder));
    parent_.write(files_);
    child_.write(files_);
    files_.put(kFolder + "/LOCK", "");
    files_.put(kFolder + "/notes.txt", "not ours");
  }

  FolderListing list() {
    auto listing = list_folder(files_, kFolder);
    EXPECT_TRUE(listing) << listing.error().message;
    return std::move(*listing);
  }
  Verification verify(const std::string& name) {
    return verify_stored(files_, kFolder, name, [](uint64_t) {});
  }
  Verification verify(const StoredBuilder& builder) {
    return verify(index_file_name(builder.manifest.head.id));
  }

  // The only problem of the child, as "file reason".
  std::string only_problem() {
    const Verification found = verify(child_);
    if (found.problems.size() != 1) return fmt::format("{} problems", found.problems.size());
    return found.problems[0].file_name + " " + label(found.problems[0].reason);
  }

  FakeFileSystem files_;
  StoredBuilder parent_;
  StoredBuilder child_;
};

TEST_F(FolderCheck, ListsByLastUse) {
  const FolderListing listing = list();
  ASSERT_EQ(listing.conversations.size(), 2u);
  EXPECT_EQ(listing.conversations[0].head->id, kStoredChild);
  EXPECT_EQ(listing.conversations[1].head->id, kStoredParent);
  EXPECT_EQ(listing.conversations[1].head->label, "main");
  for (const FolderConversation& stored : listing.conversations) EXPECT_FALSE(stored.problem);
  EXPECT_TRUE(listing.leftovers.empty());
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(FolderCheck, ListReadsHeadsOnly) {  // DISK-6
  Bytes index = files_.get(child_.index_path());
  index[index.size() - 20] ^= std::byte{1};  // the body
  files_.put(child_.index_path(), index);
  files_.flip_byte(child_.data_path(), 5000);
  for (const FolderConversation& stored : list().conversations) EXPECT_FALSE(stored.problem);
}

TEST_F(FolderCheck, IntactConversationsVerify) {
  uint64_t seen = 0;
  const Verification found =
      verify_stored(files_, kFolder, index_file_name(kStoredParent), [&](uint64_t bytes) { seen += bytes; });
  EXPECT_TRUE(found.problems.empty());
  EXPECT_EQ(found.checked_bytes, 9000u + 4500 + 5'000'000);
  EXPECT_EQ(seen, found.checked_bytes);
  EXPECT_TRUE(verify(child_).problems.empty());
}

TEST_F(FolderCheck, NothingIsChangedOrLeftOpen) {
  const auto before = files_.paths();
  (void)list();
  (void)verify(parent_);
  (void)verify(child_);
  EXPECT_EQ(files_.paths(), before);
  EXPECT_EQ(files_.get(child_.data_path()), child_.data);
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(FolderCheck, EveryByteOfEveryPartCounts) {  // B-6
  for (const ManifestPart& part : child_.manifest.parts) {
    if (part.file != 0) continue;
    for (const uint64_t at : {part.offset, part.offset + part.length - 1}) {
      files_.flip_byte(child_.data_path(), at);
      EXPECT_EQ(only_problem(), "conv-00000000000000b2.sess corrupt") << at;
      files_.flip_byte(child_.data_path(), at);
    }
  }
  files_.flip_byte(child_.data_path(), 4096 + 1800);  // between two extents: means nothing
  EXPECT_TRUE(verify(child_).problems.empty());
}

TEST_F(FolderCheck, DamageInTheSharedFileShowsInBoth) {  // B-2
  files_.flip_byte(parent_.data_path(), 4096);
  EXPECT_EQ(only_problem(), "conv-00000000000000a1.sess corrupt");
  EXPECT_EQ(verify(parent_).problems.size(), 1u);
}

TEST_F(FolderCheck, EveryBadPartIsNamed) {
  files_.flip_byte(parent_.data_path(), 4096);
  files_.flip_byte(parent_.data_path(), parent_.manifest.parts[2].offset + 4'500'000);
  const Verification found = verify(parent_);
  ASSERT_EQ(found.problems.size(), 2u);
  EXPECT_NE(found.problems[0].detail.find("block of stage 0 at token 0"), std::string::npos);
  EXPECT_NE(found.problems[1].detail.find("live of stage 0 at token 150"), std::string::npos);
}

struct Damage {
  const char* name;
  std::function<void(FakeFileSystem&, const StoredBuilder& parent, const StoredBuilder& child)> make;
  const char* problem;
  bool shows_in_list;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class FolderDamage : public FolderCheck, public ::testing::WithParamInterface<Damage> {};

TEST_P(FolderDamage, IsNamedByFileAndReason) {  // DISK-8: refused by name and reason, never a crash
  GetParam().make(files_, parent_, child_);
  EXPECT_EQ(only_problem(), GetParam().problem);
  size_t listed = 0;
  for (const FolderConversation& stored : list().conversations)
    if (stored.problem) ++listed;
  EXPECT_EQ(listed, GetParam().shows_in_list ? 1u : 0u);
  EXPECT_EQ(files_.open_files(), 0u);
}

const Damage kDamages[] = {
    {"IndexHead", [](auto& f, auto&, auto& c) { f.flip_byte(c.index_path(), 50); },
     "conv-00000000000000b2.idx corrupt", true},
    {"IndexBody",
     [](auto& f, auto&, auto& c) { f.flip_byte(c.index_path(), encode_manifest(c.manifest).size() - 30); },
     "conv-00000000000000b2.idx corrupt", false},
    {"IndexVersion", [](auto& f, auto&, auto& c) { f.flip_byte(c.index_path(), 8); },
     "conv-00000000000000b2.idx version", true},
    {"IndexZeroed", [](auto& f, auto&, auto& c) { f.put(c.index_path(), Bytes(4096)); },
     "conv-00000000000000b2.idx foreign", true},
    {"IndexEmpty", [](auto& f, auto&, auto& c) { f.put(c.index_path(), ""); },
     "conv-00000000000000b2.idx foreign", true},
    {"IndexCut", [](auto& f, auto&, auto& c) { f.cut(c.index_path(), 500); },
     "conv-00000000000000b2.idx truncated", true},
    {"IndexCutInItsFixedPart", [](auto& f, auto&, auto& c) { f.cut(c.index_path(), 100); },
     "conv-00000000000000b2.idx corrupt", true},
    {"IndexOfAnother", [](auto& f, auto& p, auto& c) { f.put(c.index_path(), encode_manifest(p.manifest)); },
     "conv-00000000000000b2.idx corrupt", true},
    {"IndexIsALink", [](auto& f, auto&, auto& c) { f.add_symlink(c.index_path()); },
     "conv-00000000000000b2.idx foreign", true},
    {"DataMissing", [](auto& f, auto&, auto& c) { EXPECT_TRUE(f.unlink(c.data_path())); },
     "conv-00000000000000b2.sess truncated", true},
    {"DataIsALink", [](auto& f, auto&, auto& c) { f.add_symlink(c.data_path()); },
     "conv-00000000000000b2.sess foreign", true},
    {"DataOfAnother", [](auto& f, auto& p, auto& c) { f.put(c.data_path(), p.data); },
     "conv-00000000000000b2.sess corrupt", false},
    {"DataHeader", [](auto& f, auto&, auto& c) { f.flip_byte(c.data_path(), 60); },
     "conv-00000000000000b2.sess corrupt", false},
    {"DataVersion", [](auto& f, auto&, auto& c) { f.flip_byte(c.data_path(), 8); },
     "conv-00000000000000b2.sess version", false},
    {"DataWithoutMagic", [](auto& f, auto&, auto& c) { f.flip_byte(c.data_path(), 0); },
     "conv-00000000000000b2.sess foreign", false},
    {"DataOfAnotherIdentity",
     [](auto& f, auto&, auto& c) {
       Bytes data = c.data;
       SessionHeader header = *decode_session_header(data);
       header.configuration_identity.low ^= 1;
       const auto bytes = encode_session_header(header);
       std::copy(bytes.begin(), bytes.end(), data.begin());
       f.put(c.data_path(), data);
     },
     "conv-00000000000000b2.sess corrupt", false},
};
INSTANTIATE_TEST_SUITE_P(All, FolderDamage, ::testing::ValuesIn(kDamages),
                         [](const auto& damage) { return std::string(damage.param.name); });

TEST_F(FolderCheck, ShortDataShowsInList) {
  files_.cut(child_.data_path(), 5000);
  const FolderListing listing = list();
  ASSERT_TRUE(listing.conversations[0].problem);
  EXPECT_EQ(listing.conversations[0].problem->reason, SkipReason::truncated);
  EXPECT_EQ(listing.conversations[0].problem->detail, "5000 bytes long, 12288 needed");
}

TEST_F(FolderCheck, LeftoversAreNamedAndForeignFilesAreNot) {  // DISK-8
  files_.put(kFolder + "/conv-00000000000000c3.sess", child_.data);
  files_.put(kFolder + "/conv-00000000000000c4.idx.tmp", "STRAINDX");
  files_.put(kFolder + "/conv-00000000000000c5.idx.bad", "STRAINDX");
  files_.put(kFolder + "/holiday.sess", "somebody else's");
  files_.put(kFolder + "/conv-1.idx", "somebody else's");
  EXPECT_TRUE(files_.create_directory(kFolder + "/conv-00000000000000c6.idx.tmp"));
  const FolderListing listing = list();
  EXPECT_EQ(listing.conversations.size(), 2u);
  std::vector<std::string> names;
  for (const Leftover& leftover : listing.leftovers)
    names.push_back(leftover.file_name + ": " + leftover.what);
  EXPECT_EQ(names, (std::vector<std::string>{"conv-00000000000000c3.sess: data that no index refers to",
                                             "conv-00000000000000c4.idx.tmp: interrupted write",
                                             "conv-00000000000000c5.idx.bad: quarantined"}));
}

TEST_F(FolderCheck, SavedSessionsAreConversations) {
  files_.put(kFolder + "/my chat.sess", self_contained_session());
  const FolderListing listing = list();
  ASSERT_EQ(listing.conversations.size(), 3u);
  const FolderConversation& saved =
      listing.conversations[1].self_contained ? listing.conversations[1] : listing.conversations[2];
  EXPECT_EQ(saved.file_name, "my chat.sess");
  EXPECT_FALSE(saved.problem);
  EXPECT_EQ(verify("my chat.sess").checked_bytes, 9000u + 4500 + 5'000'000);
  EXPECT_TRUE(verify("my chat.sess").problems.empty());
}

TEST_F(FolderCheck, DamagedSavedSessionsAreNamed) {
  const Bytes whole = self_contained_session();
  const auto reason_of = [&](const Bytes& bytes) {
    files_.put(kFolder + "/my chat.sess", bytes);
    const Verification found = verify("my chat.sess");
    return found.problems.size() == 1 ? label(found.problems[0].reason) : "not one problem";
  };
  const auto flipped = [&](size_t at) {
    Bytes bytes = whole;
    bytes[at] ^= std::byte{1};
    return bytes;
  };
  EXPECT_STREQ(reason_of(flipped(5000)), "corrupt");                    // a part
  EXPECT_STREQ(reason_of(flipped(whole.size() - 100)), "corrupt");      // the manifest
  EXPECT_STREQ(reason_of(flipped(whole.size() - 64 + 32)), "corrupt");  // the trailer's magic
  EXPECT_STREQ(reason_of(flipped(whole.size() - 64)), "corrupt");       // where the manifest is
  EXPECT_STREQ(reason_of(Bytes(whole.begin(), whole.end() - 1)), "corrupt");
  EXPECT_STREQ(reason_of(Bytes(whole.begin(), whole.begin() + 4000)), "corrupt");
  EXPECT_EQ(list().conversations.size(), 3u);  // still listed, with its problem
}

TEST_F(FolderCheck, ReadErrorsAreNamed) {
  FaultyFileSystem faulty(files_, {FileFault{FileCall::read, 5, EIO, true}});
  const Verification found = verify_stored(faulty, kFolder, index_file_name(kStoredParent), [](uint64_t) {});
  ASSERT_FALSE(found.problems.empty());
  EXPECT_EQ(found.problems[0].reason, SkipReason::io_error);
}

TEST_F(FolderCheck, EveryFailingCallIsSurvived) {  // fail the 1st, 2nd, 3rd … call until a clean pass
  FaultyFileSystem faulty(files_);
  for (uint64_t nth = 1;; ++nth) {
    faulty.set_plan({FileFault{FileCall::any, nth, EIO}});
    const auto listing = list_folder(faulty, kFolder);
    const Verification found = verify_stored(faulty, kFolder, index_file_name(kStoredChild), [](uint64_t) {});
    EXPECT_EQ(files_.open_files(), 0u) << nth;
    if (faulty.faults() == 0) {
      ASSERT_TRUE(listing);
      EXPECT_TRUE(found.problems.empty());
      break;
    }
  }
}

TEST_F(FolderCheck, AMissingFolderIsAnError) {
  EXPECT_EQ(list_folder(files_, "/none").error().code, ErrorCode::not_found);
}

// A server publishes a newer generation while the older one is being read, and then reuses its extents.
TEST_F(FolderCheck, AConversationReplacedMeanwhileIsLookedAtAgain) {
  const Bytes new_live = stored_payload(3000, 77);
  StoredBuilder newer = child_;
  newer.manifest.head.generation = 2;
  newer.manifest.parts[2].digest = digest_part({kStoredChild, 0, 120, PartKind::live}, new_live);
  bool replaced = false;
  const auto replace = [&] {
    files_.put(newer.index_path(), encode_manifest(newer.manifest));
    const auto file = files_.open(newer.data_path(), OpenMode::read_write, Caching::buffered);
    ASSERT_TRUE(file);
    EXPECT_TRUE(files_.write_at(*file, new_live, newer.manifest.parts[2].offset));
    files_.close(*file);
  };
  const Verification found = verify_stored(files_, kFolder, index_file_name(kStoredChild), [&](uint64_t) {
    if (!std::exchange(replaced, true)) replace();
  });
  EXPECT_TRUE(replaced);
  EXPECT_TRUE(found.problems.empty()) << found.problems[0].detail;
  EXPECT_GT(found.checked_bytes, 0u);
}

TEST_F(FolderCheck, ExtentsOverwrittenUnderTheSameIndexAreBad) {  // the control of the test above
  bool damaged = false;
  const Verification found = verify_stored(files_, kFolder, index_file_name(kStoredChild), [&](uint64_t) {
    if (!std::exchange(damaged, true)) files_.flip_byte(child_.data_path(), child_.manifest.parts[2].offset);
  });
  EXPECT_EQ(found.problems.size(), 1u);
}

TEST_F(FolderCheck, AConversationRemovedMeanwhileIsGone) {
  bool removed = false;
  const Verification found = verify_stored(files_, kFolder, index_file_name(kStoredParent), [&](uint64_t) {
    if (std::exchange(removed, true)) return;
    EXPECT_TRUE(files_.unlink(parent_.index_path()));
    EXPECT_TRUE(files_.unlink(parent_.data_path()));
    files_.put(parent_.data_path(), "");
  });
  EXPECT_TRUE(removed);
  EXPECT_TRUE(found.problems.empty());
}

TEST_F(FolderCheck, AnIndexThatVanishedBeforeTheLookIsGone) {
  EXPECT_TRUE(files_.unlink(child_.index_path()));
  const Verification found = verify(child_);
  EXPECT_TRUE(found.gone);
  EXPECT_TRUE(found.problems.empty());
}

}  // namespace
}  // namespace strata
