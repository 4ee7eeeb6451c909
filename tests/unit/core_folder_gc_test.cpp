// Garbage of a conversation folder (DISK-8, design 07 #16): what is removed and why, what is never touched,
// in which order, and what a failure on the way leaves.
#include "core/folder_gc.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/faulty_file_system.hpp"
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

constexpr uint64_t kDayNs = 86'400'000'000'000;
constexpr uint64_t kNow = 1'700'000'000'000'000'000;
const std::string kParent = "conv-00000000000000a1";
const std::string kChild = "conv-00000000000000b2";

class FolderGc : public ::testing::Test {
 protected:
  FolderGc() {
    EXPECT_TRUE(files_.create_directory(kStoreFolder));
    parent_.manifest.head.last_used_ns = kNow - 40 * kDayNs;
    child_.manifest.head.last_used_ns = kNow - 2 * kDayNs;
    parent_.write(files_);
    child_.write(files_);
  }

  static std::string path(const std::string& name) { return kStoreFolder + "/" + name; }
  GcPlan plan(GcRules rules = {}) {
    rules.now_wall_ns = kNow;
    auto made = plan_gc(files_, kStoreFolder, rules);
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }
  static std::vector<std::string> names(const std::vector<GcItem>& items) {
    std::vector<std::string> found;
    for (const GcItem& item : items) found.push_back(item.file_name + " " + label(item.reason));
    return found;
  }
  static std::vector<std::string> removed(const GcPlan& plan) {
    auto all = names(plan.indexes);
    for (std::string& name : names(plan.data)) all.push_back(std::move(name));
    return all;
  }
  using Names = std::vector<std::string>;

  FakeFileSystem files_;
  StoredBuilder parent_ = stored_parent();
  StoredBuilder child_ = stored_child(parent_);
};

TEST_F(FolderGc, ASoundFolderHasNoGarbage) {
  const GcPlan none = plan();
  EXPECT_EQ(removed(none), Names{});
  EXPECT_EQ(none.removed_bytes, 0u);
  EXPECT_EQ(none.staying_conversations, 2u);
  EXPECT_EQ(none.staying_bytes, files_.allocated_bytes());
}

TEST_F(FolderGc, NamesWhatIsUselessAndWhy) {
  files_.put(path("conv-00000000000000c3.idx.tmp"), "STRAINDXhalf");
  files_.put(path("conv-00000000000000c4.idx.bad"), "STRAINDXbad");
  files_.put(path("conv-00000000000000c5.sess"), "STRASESSorphan");
  files_.put(path("conv-00000000000000c6.idx"), "STRAINDXcut");
  files_.put(path(".strata-00000000000000c7.tmp"), "STRASESSexport");
  const GcPlan found = plan();
  EXPECT_EQ(removed(found),
            (Names{".strata-00000000000000c7.tmp orphan", "conv-00000000000000c3.idx.tmp orphan",
                   "conv-00000000000000c4.idx.bad corrupt", "conv-00000000000000c6.idx corrupt",
                   "conv-00000000000000c5.sess orphan"}));
  EXPECT_EQ(found.removed_bytes, 5 * 4096u);
  const uint64_t before = files_.allocated_bytes();
  const GcOutcome outcome = carry_out_gc(files_, kStoreFolder, found);
  EXPECT_TRUE(outcome.failures.empty());
  EXPECT_EQ(outcome.removed_files, 5u);
  EXPECT_EQ(files_.allocated_bytes(), before - outcome.removed_bytes);
  EXPECT_EQ(removed(plan()), Names{}) << "a second run finds nothing";
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(FolderGc, NeverTouchesWhatDoesNotCarryTheMagic) {
  for (const char* name :
       {"conv-00000000000000d1.idx", "conv-00000000000000d2.sess", "conv-00000000000000d3.idx.tmp",
        "conv-00000000000000d4.idx.bad", ".strata-00000000000000d5.tmp"})
    files_.put(path(name), "somebody else's");
  files_.put(path("conv-00000000000000d6.idx"), "");
  files_.put(path("conv-00000000000000d7.idx"), "STRA");
  files_.put(path("conv-000000000000000g.idx"), "STRAINDX of a name that is not ours");
  files_.put(path("notes.txt"), "STRAINDX");
  files_.add_symlink(path("conv-00000000000000d8.idx"));
  files_.add_symlink(path("conv-00000000000000d9.idx.bad"));
  files_.put(path("original"), "STRASESS");
  files_.add_hard_link(path("conv-00000000000000da.sess"), path("original"));
  EXPECT_EQ(removed(plan({.older_than_ns = 1, .budget_bytes = 0})),
            (Names{kParent + ".idx expired", kChild + ".idx expired", kParent + ".sess expired",
                   kChild + ".sess expired"}));
}

TEST_F(FolderGc, ASessionSavedByNameStays) {
  files_.put(path("chat.sess"), testing::self_contained_session());
  files_.put(path("conv-00000000000000e1.sess"), testing::self_contained_session());
  EXPECT_EQ(removed(plan()), Names{});
  const GcPlan all = plan({.older_than_ns = 1});
  EXPECT_TRUE(carry_out_gc(files_, kStoreFolder, all).failures.empty());
  EXPECT_EQ(files_.paths(), (Names{path("chat.sess"), path("conv-00000000000000e1.sess")}));
}

TEST_F(FolderGc, SharedDataStaysAsLongAsAnyoneUsesIt) {
  const GcPlan old = plan({.older_than_ns = 30 * kDayNs});
  EXPECT_EQ(removed(old), Names{kParent + ".idx expired"});  // its data is the child's too
  EXPECT_EQ(old.indexes.front().detail, "last used 40.0 days ago");
  const GcPlan both = plan({.older_than_ns = kDayNs});
  EXPECT_EQ(both.data.size(), 2u);
  EXPECT_EQ(both.staying_conversations, 0u);
  EXPECT_EQ(both.removed_bytes, files_.allocated_bytes());
}

TEST_F(FolderGc, AClockThatWentBackExpiresNothing) {
  child_.manifest.head.last_used_ns = kNow + 500 * kDayNs;
  child_.write(files_);
  EXPECT_EQ(removed(plan({.older_than_ns = 100 * kDayNs})), Names{});
}

TEST_F(FolderGc, ABudgetKeepsTheMostRecentlyUsed) {
  const uint64_t all = files_.allocated_bytes();
  EXPECT_EQ(removed(plan({.budget_bytes = all})), Names{});
  EXPECT_EQ(removed(plan({.budget_bytes = all - 1})),
            Names{kParent + ".idx budget"});  // the child needs the data
  const GcPlan none = plan({.budget_bytes = 0});
  EXPECT_EQ(none.indexes.size(), 2u);
  EXPECT_EQ(none.data.size(), 2u);
  EXPECT_EQ(none.staying_bytes, 0u);
}

TEST_F(FolderGc, WhatARunWithoutPersistenceLeftIsRemoved) {
  child_.manifest.head.flags = kManifestEphemeral;
  child_.write(files_);
  EXPECT_EQ(removed(plan()), (Names{kChild + ".idx orphan", kChild + ".sess orphan"}));
}

TEST_F(FolderGc, DamagedIndexesGoAndTheirDataUnlessShared) {
  files_.flip_byte(path(kParent + ".idx"), 60);  // the head
  EXPECT_EQ(removed(plan()), Names{kParent + ".idx corrupt"});
  files_.flip_byte(path(kParent + ".idx"), 60);
  files_.cut(path(kChild + ".sess"), 4096);
  const GcPlan cut = plan();
  EXPECT_EQ(removed(cut), (Names{kChild + ".idx truncated", kChild + ".sess truncated"}));
  EXPECT_NE(cut.indexes.front().detail.find(kChild + ".sess: "), std::string::npos);
}

TEST_F(FolderGc, AnotherVersionStaysWithAllThatItMayNeed) {
  files_.put(path("conv-00000000000000f1.sess"), "STRASESSorphan");
  auto index = files_.get(path(kParent + ".idx"));
  index[8] = std::byte{9};  // a version to come
  files_.put(path(kParent + ".idx"), index);
  const GcPlan found = plan();
  EXPECT_EQ(removed(found), Names{});
  EXPECT_EQ(names(found.kept), (Names{kParent + ".idx version", "conv-00000000000000f1.sess orphan"}));
  EXPECT_EQ(found.staying_bytes, files_.allocated_bytes());
}

TEST_F(FolderGc, WhatCannotBeReadTodayStays) {
  files_.put(path("conv-00000000000000f1.sess"), "STRASESSorphan");
  const size_t opens = 40;
  for (size_t nth = 1; nth <= opens; ++nth) {
    FaultyFileSystem faulty(files_, {{.call = FileCall::read, .nth = nth, .os_errno = EIO}});
    const auto made = plan_gc(faulty, kStoreFolder, {.now_wall_ns = kNow});
    ASSERT_TRUE(made.ok());
    for (const std::string& name : removed(*made))
      EXPECT_EQ(name, "conv-00000000000000f1.sess orphan") << "read " << nth << " failed";
    if (faulty.faults() == 0) return;  // every read failed once
  }
  FAIL() << "more reads than expected";
}

TEST_F(FolderGc, DataOutlivesAnIndexThatCannotBeRemoved) {
  for (const FileCall call : {FileCall::unlink, FileCall::sync_directory}) {
    FaultyFileSystem faulty(files_, {{.call = call, .nth = 1, .os_errno = EIO}});
    const GcOutcome outcome = carry_out_gc(faulty, kStoreFolder, plan({.older_than_ns = kDayNs}));
    EXPECT_EQ(outcome.failures.size(), 2u);
    EXPECT_TRUE(files_.exists(path(kParent + ".sess")));
    EXPECT_TRUE(files_.exists(path(kChild + ".sess")));
  }
}

TEST_F(FolderGc, OneThatCannotBeRemovedDoesNotStopTheRest) {
  const GcPlan all = plan({.older_than_ns = kDayNs});
  FaultyFileSystem faulty(files_, {{.call = FileCall::unlink, .nth = 3, .os_errno = EACCES}});
  const GcOutcome outcome = carry_out_gc(faulty, kStoreFolder, all);
  EXPECT_EQ(outcome.failures.size(), 1u);
  EXPECT_EQ(outcome.removed_files, 3u);
  EXPECT_LT(outcome.removed_bytes, all.removed_bytes);
}

TEST_F(FolderGc, AFolderThatCannotBeListed) {
  EXPECT_EQ(plan_gc(files_, "/none", {}).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace strata
