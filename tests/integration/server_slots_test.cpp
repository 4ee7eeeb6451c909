// Session files by name over HTTP, against a running server with a scripted engine: answers, every status,
// every refused name, and what ends an action early (SES-3, SES-4, SES-6).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/server_fixture.hpp"

namespace strata::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

void expect_error(const HttpAnswer& answer, int status, const std::string& type,
                  const std::string& kind = "") {
  EXPECT_EQ(answer.status, status) << answer.body;
  EXPECT_THAT(answer.body, StartsWith("{\"error\":{\"code\":" + std::to_string(status) + ","));
  EXPECT_THAT(answer.body, HasSubstr("\"type\":\"" + type + "\""));
  if (kind.empty())
    EXPECT_THAT(answer.body, Not(HasSubstr("\"kind\"")));
  else
    EXPECT_THAT(answer.body, HasSubstr("\"kind\":\"" + kind + "\""));
}

std::string file_body(const std::string& name) { return "{\"filename\":\"" + name + "\"}"; }

std::string target(const std::string& action, int slot = 0) {
  return "/slots/" + std::to_string(slot) + "?action=" + action;
}

class ServerSlots : public testing::Test {
 protected:
  ServerSlots() : server_({{"--slot-save-path", "{folder}/saved"}, {}, true}) {}

  HttpAnswer save(const std::string& name, int slot = 0) const {
    return server_.post(target("save", slot), file_body(name));
  }
  // Of a file that is there.
  HttpAnswer restore(const std::string& name, int slot = 0) const {
    std::ofstream(path(name)) << "x";
    return server_.post(target("restore", slot), file_body(name));
  }
  std::string path(const std::string& name) const {
    return std::filesystem::canonical(server_.folder()).string() + "/saved/" + name;
  }
  size_t times_in_journal(const std::string& text) const {
    const std::string journal = server_.journal();
    size_t count = 0;
    for (size_t at = journal.find(text); at != std::string::npos; at = journal.find(text, at + 1)) ++count;
    return count;
  }
  void let_go() const { std::ofstream(path("held.go")) << "x"; }
  // Leaves the request open.
  void begin(HttpClient& client, const std::string& to, const std::string& body) const {
    client.send("POST " + to + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }

  ServerProcess server_;
};

// ---- what succeeds

TEST_F(ServerSlots, AnswersHaveTheFieldsClientsKnow) {
  expect_golden("slot_save.json", save("a.sess").body);
  EXPECT_THAT(server_.journal(), HasSubstr("SAVE slot=0 " + path("a.sess") + "\n"));
  expect_golden("slot_restore.json", restore("a.sess", 1).body);
  EXPECT_THAT(server_.journal(), HasSubstr("RESTORE slot=1 " + path("a.sess") + "\n"));
  expect_golden("slot_erase.json", server_.post(target("erase", 1), "{}").body);
  EXPECT_THAT(server_.journal(), HasSubstr("ERASE slot=1\n"));
  EXPECT_EQ(server_.get("/slots").status, 200);
}

TEST_F(ServerSlots, NamesReachTheEngineAsTheyAre) {
  for (const char* name : {"a  b", "slot=1 x", "größe", "-rf", "%2e%2e%2fa", "a.b.c", "COM", "~", "$(x)"}) {
    const HttpAnswer answer = save(name);
    EXPECT_EQ(answer.status, 200) << name << answer.body;
    EXPECT_THAT(server_.journal(), HasSubstr("SAVE slot=0 " + path(name) + "\n"));
    EXPECT_THAT(answer.body, HasSubstr(std::string("\"filename\":\"") + name + "\""));
  }
  EXPECT_EQ(save(std::string(200, 'n')).status, 200);
}

TEST_F(ServerSlots, EraseNeedsNoBody) {
  HttpClient bare(server_.port());
  bare.send("POST /slots/1?action=erase HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(bare.read_answer().status, 200);
  EXPECT_EQ(server_.post(target("erase"), "").status, 200);
  EXPECT_EQ(server_.post(target("erase"), file_body("ignored/..")).status, 200);
}

TEST_F(ServerSlots, ActionsWorkBesideARequestOfAnotherSlot) {
  HttpClient streaming(server_.port());
  begin(streaming, "/v1/chat/completions", chat_body("@hold", R"(,"stream":true,"max_tokens":9)"));
  EXPECT_THAT(streaming.read_until("\"b\""), HasSubstr("200 OK"));
  EXPECT_EQ(save("beside").status, 200);
  EXPECT_THAT(server_.get("/slots").body, HasSubstr(R"("is_processing":true)"));
  streaming.close();
}

// ---- what is refused before the engine hears of it

TEST_F(ServerSlots, UnknownSlotsAndActionsAre400) {
  for (const char* to :
       {"/slots/2?action=save", "/slots/x?action=save", "/slots/-1?action=save", "/slots/%2B1?action=save",
        "/slots/0x?action=save", "/slots/0?action=eat", "/slots/0",
        "/slots/0?action=", "/slots/0?action=SAVE", "/slots/99999999999?action=save",
        "/slots/2?action=restore", "/slots/2?action=erase"})
    expect_error(server_.post(to, file_body("a")), 400, "invalid_request_error", "invalid");
  EXPECT_THAT(server_.journal(), Not(testing::ContainsRegex("SAVE|RESTORE|ERASE")));
}

TEST_F(ServerSlots, WrongJsonIs400) {
  for (const char* body : {"", "{", "[]", "\"a\"", "null", "{}", R"({"filename":5})", R"({"filename":null})",
                           R"({"filename":["a"]})", R"({"file":"a"})", R"({"filename":"a"} x)",
                           "{\"filename\":\"\xFF\"}", "{\"filename\":\"a\xC0\xAF\"}"}) {
    expect_error(server_.post(target("save"), body), 400, "invalid_request_error", "invalid");
    expect_error(server_.post(target("restore"), body), 400, "invalid_request_error", "invalid");
  }
  for (const char* body : {"{", "[]", "x"})
    expect_error(server_.post(target("erase"), body), 400, "invalid_request_error", "invalid");
  EXPECT_THAT(server_.journal(), Not(testing::ContainsRegex("SAVE|RESTORE|ERASE")));
}

TEST_F(ServerSlots, RefusedNamesAre400AndNothingIsTouched) {
  std::vector<std::string> names = {"",
                                    "..",
                                    "../up",
                                    "a/b",
                                    "/etc/passwd",
                                    "a\\\\b",
                                    ".hidden",
                                    ".",
                                    "a..b",
                                    "a:b",
                                    "a*",
                                    "a?",
                                    "a<b",
                                    "a>b",
                                    "a|b",
                                    "a\\\"b",
                                    " a",
                                    "a ",
                                    "a.",
                                    "NUL",
                                    "nul.txt",
                                    "con",
                                    "AUX.sess",
                                    "COM1",
                                    "com1.x",
                                    "LPT9",
                                    "PRN",
                                    "COM\u00B9",
                                    "a\\u0000b",
                                    "a\\u001Fb",
                                    "a\\nb",
                                    "a\\u007Fb",
                                    "a\\u0085b",
                                    "a\uFEFF",
                                    "a\uFFFD",
                                    "\uFF0E\uFF0E",
                                    "a\u2215b",
                                    "a\u2216b",
                                    std::string(201, 'n'),
                                    std::string(100, '.')};
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    for (const char* action : {"save", "restore"}) {
      const HttpAnswer answer = server_.post(target(action), file_body(name));
      expect_error(answer, 400, "invalid_request_error", "invalid");
      EXPECT_THAT(answer.body, HasSubstr("filename"));
    }
  }
  EXPECT_THAT(server_.journal(), Not(testing::ContainsRegex("SAVE|RESTORE")));
  EXPECT_TRUE(std::filesystem::is_empty(server_.folder() + "/saved"));
}

TEST_F(ServerSlots, RestoreOfANameThatIsNotThereIs404) {
  expect_error(server_.post(target("restore"), file_body("missing")), 404, "not_found_error");
  EXPECT_THAT(server_.journal(), Not(HasSubstr("RESTORE")));
}

// Whether a link is followed is the engine's to say, and it does not follow any.
TEST_F(ServerSlots, ALinkToNothingIsThere) {
  ASSERT_EQ(::symlink("/nowhere/at/all", path("damaged").c_str()), 0);
  expect_error(server_.post(target("restore"), file_body("damaged")), 400, "invalid_request_error",
               "invalid");
  EXPECT_THAT(server_.journal(), HasSubstr("RESTORE slot=0 " + path("damaged")));
}

TEST_F(ServerSlots, ForeignPagesAndOtherMediaTypesAreRefused) {
  for (const char* origin : {"https://evil.example", "null", "http://localhost:1", "file://"})
    for (const char* action : {"save", "restore", "erase"})
      expect_error(server_.post(target(action), file_body("a"), std::string("Origin: ") + origin + "\r\n"),
                   403, "permission_error");
  const std::string own = "Origin: http://localhost\r\n";
  EXPECT_EQ(server_.post(target("save"), file_body("a"), own).status, 200);
  expect_error(server_.post(target("save"), file_body("a"), "Content-Type: text/plain\r\n"), 415,
               "invalid_request_error");
  expect_error(server_.post(target("erase"), "x", "Content-Type: text/plain\r\n"), 415,
               "invalid_request_error");
  EXPECT_EQ(server_.get(target("save")).status, 405);
  EXPECT_EQ(server_.post("/slots/0/1?action=save", file_body("a")).status, 404);
  EXPECT_EQ(server_.post("/slots/0%2F1?action=save", file_body("a")).status, 404);
}

TEST(ServerSlotsWithKeys, TheKeyIsNeededAndExcusesNoForeignPage) {
  const ServerProcess server({{"--api-key", "one", "--slot-save-path", "{folder}/saved"}, {}, true});
  for (const char* action : {"save", "restore", "erase"}) {
    expect_error(server.post(target(action), file_body("a")), 401, "authentication_error");
    expect_error(server.post(target(action), file_body("a"), "X-Api-Key: two\r\n"), 401,
                 "authentication_error");
    expect_error(
        server.post(target(action), file_body("a"), "X-Api-Key: one\r\nOrigin: https://evil.example\r\n"),
        403, "permission_error");
  }
  EXPECT_EQ(server.post(target("save"), file_body("a"), "Authorization: Bearer one\r\n").status, 200);
}

TEST(ServerSlotsWithoutSavePath, ActionsAre501) {
  const ServerProcess server;
  for (const char* action : {"save", "restore", "erase", "eat"}) {
    const HttpAnswer answer = server.post(target(action), file_body("a"));
    expect_error(answer, 501, "not_supported_error");
    EXPECT_THAT(answer.body, HasSubstr("--slot-save-path"));
  }
  EXPECT_EQ(server.get("/slots").status, 200);
}

// ---- what the engine refuses

TEST_F(ServerSlots, TheStatusFollowsTheKind) {
  struct Case {
    const char* name;
    int status;
    const char* type;
    const char* kind;
  };
  for (const Case& c :
       {Case{"damaged", 400, "invalid_request_error", "invalid"},
        Case{"no-memory", 503, "unavailable_error", "memory"},
        Case{"no-room", 507, "server_error", "storage"}, Case{"misleading", 507, "server_error", "storage"},
        Case{"no-device", 500, "server_error", "io"}, Case{"torn", 500, "server_error", "io"}}) {
    SCOPED_TRACE(c.name);
    for (const HttpAnswer& answer : {save(c.name), restore(c.name)}) {
      expect_error(answer, c.status, c.type, c.kind);
      const bool published = std::string(c.name) == "torn";
      EXPECT_EQ(answer.body.find(R"("published":true)") != std::string::npos, published) << answer.body;
    }
  }
  EXPECT_EQ(times_in_journal("START"), 1u) << "the engine goes on";
  expect_golden("slot_error.json", save("torn").body);
}

TEST_F(ServerSlots, NothingWrittenIsNoSuccess) {
  expect_error(save("empty"), 500, "server_error", "io");
  EXPECT_EQ(times_in_journal("START"), 1u);
}

// ---- engines that end or do what they may not

TEST_F(ServerSlots, AnEngineThatEndsIs500AndTheNextRequestHasANewOne) {
  size_t starts = 1;
  for (const char* name : {"crash", "crash-mid", "fatal", "backwards", "other-answer"}) {
    SCOPED_TRACE(name);
    expect_error(restore(name), 500, "server_error", "io");
    EXPECT_EQ(server_.chat("@say(x)").status, 200) << "a new engine, without waiting: this request was good";
    EXPECT_EQ(times_in_journal("START"), ++starts);
  }
  EXPECT_EQ(save("after").status, 200);
}

TEST_F(ServerSlots, FatalSaysWhy) {
  const HttpAnswer answer = restore("fatal");
  EXPECT_THAT(answer.body, HasSubstr("the transfer failed after device writes began"));
  EXPECT_THAT(save("next").body, HasSubstr(R"("n_saved":12)")) << "an action starts an engine as well";
}

TEST(ServerSlotsSilence, ASilentEngineIsEnded) {
  const ServerProcess server(
      {{"--slot-save-path", "{folder}/saved", "--silence-s", "1", "--tick-ms", "20"}, {}, true});
  const HttpAnswer answer = server.post(target("save"), file_body("silent"));
  expect_error(answer, 500, "server_error", "io");
  EXPECT_THAT(answer.body, HasSubstr("silent"));
  EXPECT_EQ(server.post(target("save"), file_body("a")).status, 200);
}

// ---- several at once, and clients that leave

TEST_F(ServerSlots, TwoActionsOfOneSlotGoOneAfterTheOther) {
  HttpClient first(server_.port());
  HttpClient second(server_.port());
  begin(first, target("save", 1), file_body("held"));
  ASSERT_TRUE(server_.wait_for_journal("SAVE slot=1 " + path("held")));
  begin(second, target("erase", 1), "{}");
  EXPECT_THAT(server_.journal(), Not(HasSubstr("ERASE")));
  let_go();
  EXPECT_THAT(first.read_answer().body, HasSubstr(R"("n_saved":12)"));
  EXPECT_EQ(second.read_answer().body, R"({"id_slot":1,"n_erased":7})");
}

TEST_F(ServerSlots, AClientThatLeavesDoesNotStopWhatHasBegun) {
  {
    HttpClient gone(server_.port());
    begin(gone, target("save"), file_body("held"));
    ASSERT_TRUE(server_.wait_for_journal("SAVE slot=0 " + path("held")));
  }
  let_go();
  EXPECT_EQ(save("next").status, 200);
  EXPECT_EQ(times_in_journal("START"), 1u);
}

TEST_F(ServerSlots, WhatAClientLeftBeforeItBeganIsNotDone) {
  HttpClient first(server_.port());
  begin(first, target("save"), file_body("held"));
  ASSERT_TRUE(server_.wait_for_journal("SAVE slot=0 " + path("held")));
  HttpClient gone(server_.port());
  begin(gone, target("erase", 1), "{}");
  gone.finish_sending();
  EXPECT_TRUE(gone.closed_by_server()) << "which it does once it has dropped what was asked";
  let_go();
  EXPECT_EQ(first.read_answer().status, 200);
  EXPECT_EQ(save("next").status, 200);
  EXPECT_THAT(server_.journal(), Not(HasSubstr("ERASE")));
}

TEST_F(ServerSlots, ShutdownAnswersWhatIsOpen) {
  HttpClient client(server_.port());
  begin(client, target("save"), file_body("silent"));
  ASSERT_TRUE(server_.wait_for_journal("SAVE slot=0"));
  server_.signal(SIGTERM);
  EXPECT_EQ(client.read_answer().status, 503);
  EXPECT_EQ(server_.wait_exit(), 0);
}

// ---- the folder

TEST(ServerSlotsFolder, IsMadeForItsOwnerAlone) {
  const ServerProcess server({{"--slot-save-path", "{folder}/new/saved/"}, {}, true});
  const std::string folder = std::filesystem::canonical(server.folder()).string() + "/new/saved";
  struct stat found {};
  ASSERT_EQ(::stat((server.folder() + "/new/saved").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  ASSERT_EQ(::stat((server.folder() + "/new").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  EXPECT_EQ(server.post(target("save"), file_body("a")).status, 200);
  EXPECT_THAT(server.journal(), HasSubstr("SAVE slot=0 " + folder + "/a\n"));
  EXPECT_THAT(server.log(), HasSubstr("strata: sessions by name: " + folder + "\n"));
  EXPECT_THAT(server.log(), Not(HasSubstr("other users")));
}

TEST(ServerSlotsFolder, OneThatCannotBeUsedEndsTheStart) {
  for (const char* folder : {"/proc/strata-sessions", "/dev/null", "/dev/null/below", "{folder}/journal\n"}) {
    SCOPED_TRACE(folder);
    ServerProcess server({{"--slot-save-path", folder}, {}, true});
    EXPECT_EQ(server.port(), 0);
    EXPECT_EQ(server.wait_exit(), 1);
    const std::string log = server.log();
    EXPECT_THAT(log, StartsWith("strata: --slot-save-path"));
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
    EXPECT_EQ(server.journal(), "") << "no engine was started";
  }
}

TEST(ServerSlotsFolder, OneThatOthersMayWriteToIsSaid) {
  std::string folder = (std::filesystem::temp_directory_path() / "strata-open-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::chmod(folder.c_str(), 0770), 0);
  {
    const ServerProcess server({{"--slot-save-path", folder}, {}, true});
    EXPECT_THAT(server.log(), HasSubstr("other users may write to " + folder));
    EXPECT_EQ(server.post(target("save"), file_body("a")).status, 200);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace strata::test
