// strata sessions list | info | verify | gc | export (ID-3, B-10, DISK-8): golden output for people and for
// programs, exit statuses.
#include "engine/cli/sessions.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "engine/cli/sessions_parts.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/stored_builder.hpp"

namespace strata::cli {
namespace {

using testing::kStoreFolder;
using testing::stored_child;
using testing::stored_parent;
using testing::StoredBuilder;

constexpr uint64_t kHourNs = 3'600'000'000'000;
constexpr uint64_t kNow = 1'700'000'000'000'000'000;

class SessionsCommand : public ::testing::Test {
 protected:
  SessionsCommand() {
    clock_.set_wall(kNow);
    EXPECT_TRUE(files_.create_directory(kStoreFolder));
    StoredBuilder parent = stored_parent();
    parent.manifest.head.created_ns = kNow - 100 * kHourNs;
    parent.manifest.head.last_used_ns = kNow - 5 * kHourNs;
    parent.manifest.head.label = "main\x1b[31m agent";  // must not reach the terminal as it is
    parent.manifest.head.identity_fields = {{"state_version", "reference-1"}, {"kv_type", "f32"}};
    parent.write(files_);
    StoredBuilder child = stored_child(parent);
    child.manifest.head.created_ns = kNow - kHourNs;
    child.manifest.head.last_used_ns = kNow - kHourNs / 60;
    child.manifest.head.flags = kManifestEphemeral;
    child.write(files_);
    files_.put(kStoreFolder + "/conv-00000000000000c3.idx.tmp", "STRAINDX");
  }

  int run(SessionsAction action, const std::string& path, const std::string& id = {}, bool json = false) {
    return run(SessionsOptions{action, path, id, json});
  }
  int run(const SessionsOptions& options) {
    out_.str({});
    err_.str({});
    return run_sessions(options, {files_, clock_, random_, out_, err_});
  }
  std::string text(SessionsAction action, const std::string& id = {}, bool json = false) {
    const int status = run(action, kStoreFolder, id, json);
    return out_.str() + err_.str() + "exit " + std::to_string(status) + "\n";
  }
  void damage_child() { files_.flip_byte(kStoreFolder + "/conv-00000000000000b2.sess", 4096); }

  testing::FakeFileSystem files_;
  testing::FakeClock clock_;
  testing::FakeRandom random_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(SessionsCommand, GoldenText) {
  std::string whole = text(SessionsAction::list) + text(SessionsAction::info, "00000000000000b2") +
                      text(SessionsAction::info, "00000000000000a1") + text(SessionsAction::verify);
  files_.flip_byte(kStoreFolder + "/conv-00000000000000a1.sess", 4096);  // shared by both
  whole += text(SessionsAction::verify);
  damage_child();
  files_.flip_byte(kStoreFolder + "/conv-00000000000000a1.idx", 60);
  whole += text(SessionsAction::list) + text(SessionsAction::verify);
  testing::expect_golden("sessions.txt", whole);
}

TEST_F(SessionsCommand, GoldenJson) {
  std::string whole = text(SessionsAction::list, {}, true) +
                      text(SessionsAction::info, "00000000000000b2", true) +
                      text(SessionsAction::info, {}, true) + text(SessionsAction::verify, {}, true);
  damage_child();
  whole += text(SessionsAction::verify, {}, true);
  testing::expect_golden("sessions.json", whole);
}

TEST_F(SessionsCommand, VerifyFailsWhenAnythingIsBad) {
  EXPECT_EQ(run(SessionsAction::verify, kStoreFolder), 0);
  damage_child();
  EXPECT_EQ(run(SessionsAction::verify, kStoreFolder), 1);
  EXPECT_NE(out_.str().find("conv-00000000000000b2.sess: corrupt: "), std::string::npos) << out_.str();
  EXPECT_EQ(run(SessionsAction::list, kStoreFolder), 0);  // heads are fine
}

TEST_F(SessionsCommand, InfoTakesAnIdAFileNameOrAPath) {
  for (const char* id : {"00000000000000a1", "conv-00000000000000a1.idx", "conv-00000000000000a1.sess"})
    EXPECT_EQ(run(SessionsAction::info, kStoreFolder, id), 0) << id << err_.str();
  for (const char* name : {"/conv-00000000000000a1.idx", "/conv-00000000000000a1.sess"})
    EXPECT_EQ(run(SessionsAction::info, kStoreFolder + name), 0) << name << err_.str();
  files_.put(kStoreFolder + "/chat.sess", testing::self_contained_session());
  EXPECT_EQ(run(SessionsAction::info, kStoreFolder + "/chat.sess"), 0) << err_.str();
  EXPECT_NE(out_.str().find("ok, saved"), std::string::npos) << out_.str();
}

TEST_F(SessionsCommand, InfoOfAFolderShowsEachConversation) {
  std::string apart = text(SessionsAction::info, "00000000000000b2");
  EXPECT_EQ(run(SessionsAction::info, kStoreFolder), 0);
  const std::string together = out_.str();
  EXPECT_EQ(together.find(apart.substr(0, apart.find("exit"))), 0u);
  EXPECT_NE(together.find("00000000000000a1"), std::string::npos);
  damage_child();
  files_.flip_byte(kStoreFolder + "/conv-00000000000000b2.idx", 60);
  EXPECT_EQ(run(SessionsAction::info, kStoreFolder), 1);
  EXPECT_TRUE(files_.create_directory("/empty"));
  EXPECT_EQ(run(SessionsAction::info, "/empty"), 0);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(SessionsCommand, InfoShowsTheHeadOfADamagedBody) {
  const std::string path = kStoreFolder + "/conv-00000000000000a1.idx";
  files_.flip_byte(path, files_.get(path).size() - 20);
  EXPECT_EQ(run(SessionsAction::info, path), 1);
  EXPECT_NE(out_.str().find("corrupt"), std::string::npos);
  EXPECT_NE(out_.str().find("reference-1"), std::string::npos);
}

TEST_F(SessionsCommand, GoldenGcAndExport) {
  const auto told = [&](SessionsOptions options) {
    const int status = run(options);
    return out_.str() + err_.str() + "exit " + std::to_string(status) + "\n";
  };
  SessionsOptions gc{SessionsAction::gc, kStoreFolder};
  SessionsOptions save{SessionsAction::export_one, kStoreFolder, "00000000000000b2"};
  save.target = kStoreFolder + "/chat.sess";
  std::string whole = told(save) + told(save);
  save.json = save.force = true;
  whole += told(save);
  gc.dry_run = true;
  whole += told(gc);
  gc.older_than = "2h";
  gc.json = true;
  whole += told(gc);
  gc.dry_run = false;
  whole += told(gc);
  gc.json = false;
  whole += told(gc);
  testing::expect_golden("sessions_change.txt", whole);
  EXPECT_FALSE(files_.exists(kStoreFolder + "/conv-00000000000000c3.idx.tmp"));
  EXPECT_TRUE(files_.exists(kStoreFolder + "/chat.sess"));
}

TEST_F(SessionsCommand, GcIsRefusedWhileAServerRuns) {
  const auto lock = files_.lock(kStoreFolder + "/LOCK");
  ASSERT_TRUE(lock.ok());
  for (const bool dry_run : {false, true}) {
    SessionsOptions gc{SessionsAction::gc, kStoreFolder};
    gc.dry_run = dry_run;
    EXPECT_EQ(run(gc), 1);
    EXPECT_EQ(err_.str(), "strata: " + kStoreFolder + " is in use by another process; end it first\n");
  }
  files_.unlock(*lock);
  EXPECT_EQ(run(SessionsOptions{SessionsAction::gc, kStoreFolder}), 0);
  EXPECT_TRUE(files_.lock(kStoreFolder + "/LOCK").ok()) << "gc gives the lock back";
}

TEST_F(SessionsCommand, GcLeavesNoLockWhereItHasNothingToDo) {
  EXPECT_TRUE(files_.create_directory("/letters"));
  files_.put("/letters/letter.txt", "dear");
  EXPECT_EQ(run(SessionsOptions{SessionsAction::gc, "/letters"}), 0);
  SessionsOptions look{SessionsAction::gc, kStoreFolder};
  look.dry_run = true;
  EXPECT_EQ(run(look), 0);
  EXPECT_FALSE(files_.exists("/letters/LOCK"));
  EXPECT_FALSE(files_.exists(kStoreFolder + "/LOCK"));
}

TEST_F(SessionsCommand, VerifyOfOneFile) {
  files_.put("/store/chat.sess", testing::self_contained_session());
  EXPECT_EQ(run(SessionsAction::verify, "/store/chat.sess"), 0) << err_.str();
  EXPECT_NE(out_.str().find("1 conversations, 4.8 MiB read, 0 bad"), std::string::npos) << out_.str();
  EXPECT_EQ(run(SessionsAction::verify, "/store/conv-00000000000000b2.idx"), 0) << err_.str();
  files_.flip_byte("/store/chat.sess", 4096);
  EXPECT_EQ(run(SessionsAction::verify, "/store/chat.sess"), 1);
  EXPECT_NE(out_.str().find("chat.sess: corrupt: "), std::string::npos) << out_.str();
  files_.put("/store/notes", "no session");
  EXPECT_EQ(run(SessionsAction::verify, "/store/notes"), 1);
  EXPECT_NE(out_.str().find("foreign"), std::string::npos) << out_.str();
}

TEST(SessionsAge, DaysHoursAndMinutes) {
  EXPECT_EQ(*parse_age("30"), 30 * 24 * kHourNs);
  EXPECT_EQ(*parse_age("30d"), 30 * 24 * kHourNs);
  EXPECT_EQ(*parse_age("12h"), 12 * kHourNs);
  EXPECT_EQ(*parse_age("90m"), kHourNs * 3 / 2);
  for (const char* wrong : {"", "0", "-1", "d", "12 h", "1.5d", "7w", "36501", "99999999999999999999", "3dd"})
    EXPECT_EQ(parse_age(wrong).error().code, ErrorCode::invalid) << wrong;
}

TEST_F(SessionsCommand, WrongUseAndMissingThings) {
  EXPECT_EQ(run(SessionsAction::list, "/none"), 1);
  EXPECT_EQ(err_.str(), "strata: /none: No such file or directory\n");
  EXPECT_EQ(run(SessionsAction::verify, "/none"), 1);
  EXPECT_EQ(run(SessionsAction::info, "/none"), 1);
  EXPECT_EQ(run(SessionsAction::info, kStoreFolder, "../secret"), 2);
  EXPECT_EQ(run(SessionsAction::info, kStoreFolder + "/conv-00000000000000a1.idx", "00000000000000a1"), 2);
  EXPECT_EQ(run(SessionsAction::info, kStoreFolder, "00000000000000ff"), 1);
  EXPECT_EQ(run(SessionsAction::gc, "/none"), 1);
  EXPECT_EQ(run(SessionsAction::verify, "/none/file"), 1);
  SessionsOptions save{SessionsAction::export_one, kStoreFolder, "00000000000000ff"};
  save.target = kStoreFolder + "/LOCK";
  EXPECT_EQ(run(save), 2);
  save.target = "/none/chat.sess";
  EXPECT_EQ(run(save), 1);
  EXPECT_NE(err_.str(), "");
}

}  // namespace
}  // namespace strata::cli
