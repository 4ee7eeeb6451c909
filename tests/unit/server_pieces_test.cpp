// The pure pieces of the server: UTF-8, stop strings, hosts, keys, origins, session names, errors, queries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/server/api_error.hpp"
#include "engine/server/file_name_policy.hpp"
#include "engine/server/http_message.hpp"
#include "engine/server/security.hpp"
#include "engine/server/stop_matcher.hpp"
#include "engine/server/utf8.hpp"

namespace strata {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

// ---- UTF-8

TEST(ServerUtf8, EveryCutOfATextYieldsTheText) {
  const std::string text = "aé€😀z";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out;
      for (const std::string& piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        const std::string got = stream.feed(piece);
        EXPECT_TRUE(is_valid_utf8(got));
        out += got;
      }
      EXPECT_EQ(out + stream.finish(), text);
    }
  }
}

TEST(ServerUtf8, BrokenBytesBecomeReplacements) {
  EXPECT_EQ(to_valid_utf8("a\xFFz"), "a" + kReplacement + "z");
  EXPECT_EQ(to_valid_utf8("\xE2\x82"), kReplacement);
  EXPECT_EQ(to_valid_utf8("\xE2\x82X"), kReplacement + "X");
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), kReplacement + kReplacement);
  for (const char* bad :
       {"\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\x80", "\xC3"})
    EXPECT_FALSE(is_valid_utf8(bad));
  EXPECT_TRUE(is_valid_utf8("\xF4\x8F\xBF\xBF"));
}

// ---- stop strings

std::string run(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += matcher.feed(piece);
  return out + matcher.finish();
}

TEST(ServerStopMatcher, EveryCutFindsTheStop) {
  const std::string text = "ababac tail";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      StopMatcher matcher({"abac", "xyz"});
      EXPECT_EQ(
          run(matcher, {text.substr(0, first), text.substr(first, second - first), text.substr(second)}),
          "ab");
      EXPECT_TRUE(matcher.matched());
    }
  }
}

TEST(ServerStopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.feed("abcE"), "abc");
  EXPECT_EQ(matcher.feed("N"), "");
  EXPECT_EQ(matcher.feed("X"), "ENX");
  EXPECT_EQ(matcher.feed("EN"), "");
  EXPECT_EQ(matcher.finish(), "EN");
  EXPECT_FALSE(matcher.matched());
}

TEST(ServerStopMatcher, TheFirstOneInTheTextWins) {
  StopMatcher matcher({"later", "b"});
  EXPECT_EQ(run(matcher, {"aab later"}), "aa");
}

TEST(ServerStopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.feed("abc"), "abc");
}

// ---- hosts (SRV-3)

TEST(ServerHosts, LoopbackBindAddressAndAllowedNamesPass) {
  const HostPolicy policy("192.168.1.5", {"Box.Lan", "[fe80::1]"});
  for (const char* host : {"localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:1", "127.8.9.1", "[::1]:80",
                           "[::1]", "192.168.1.5:8080", "box.lan", "box.lan.", "[fe80::1]:80"})
    EXPECT_TRUE(policy.allows(host, "10.0.0.1")) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b",
                           "user@localhost", "localhost:x", "localhost:80:80", "[::1", "[::1]x", "box.lan/"})
    EXPECT_FALSE(policy.allows(host, "10.0.0.1")) << host;
}

TEST(ServerHosts, AddressTheConnectionCameToPasses) {
  const HostPolicy policy("0.0.0.0", {});
  EXPECT_TRUE(policy.allows("10.0.0.7:8080", "10.0.0.7"));
  EXPECT_FALSE(policy.allows("10.0.0.8", "10.0.0.7"));
  EXPECT_FALSE(policy.allows("0.0.0.0", "10.0.0.7"));
}

TEST(ServerOrigins, OnlyThePageOfThisServerIsOwn) {
  EXPECT_TRUE(is_own_origin("", "localhost:8080"));
  EXPECT_TRUE(is_own_origin("http://localhost:8080", "localhost:8080"));
  for (const char* origin :
       {"http://localhost:3000", "https://evil.example", "null", "file://", "http://", "localhost:8080"})
    EXPECT_FALSE(is_own_origin(origin, "localhost:8080")) << origin;
}

// ---- keys

TEST(ServerKeys, BearerOrHeader) {
  const KeyRing keys({"secret-one", "two"});
  EXPECT_TRUE(keys.accepts("Bearer secret-one", ""));
  EXPECT_TRUE(keys.accepts("bearer two", ""));
  EXPECT_TRUE(keys.accepts("", "two"));
  for (const char* wrong :
       {"Bearer ", "Bearer secret-on", "Bearer secret-one2", "Basic secret-one", "secret-one", ""})
    EXPECT_FALSE(keys.accepts(wrong, "")) << wrong;
  EXPECT_FALSE(keys.accepts("Bearer wrong", "two"))
      << "a wrong Authorization is not saved by the other header";
  EXPECT_TRUE(KeyRing({}).accepts("", ""));
}

TEST(ServerKeys, ComparesWholeStrings) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abcabc", "abd"})
    EXPECT_FALSE(equal_in_constant_time(other, "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", ""));
}

TEST(ServerKeys, FileHasOneKeyALine) {
  const std::string path = testing::TempDir() + "strata_server_keys";
  std::ofstream(path) << "# keys of the house\n\n  first \r\nsecond\n";
  EXPECT_EQ(*read_key_file(path), (std::vector<std::string>{"first", "second"}));
  std::ofstream(path) << "# none\n";
  EXPECT_FALSE(read_key_file(path).ok());
  EXPECT_FALSE(read_key_file(path + ".missing").ok());
}

// ---- session names (lesson 24)

TEST(ServerSessionNames, PlainNamesPass) {
  for (const char* name :
       {"a", "work.sess", "Übung 1", "conv-0123.sess", "COMMON", "console.txt", "lpt10", "名前", "a.b.c"})
    EXPECT_EQ(refuse_session_name(name), "") << name;
  EXPECT_EQ(refuse_session_name(std::string(200, 'x')), "");
}

TEST(ServerSessionNames, DangerousNamesAreRefused) {
  for (const std::string name : {"",
                                 ".",
                                 "..",
                                 ".hidden",
                                 "a/b",
                                 "a\\b",
                                 "../up",
                                 "a..b",
                                 "c:",
                                 "a*",
                                 "a?",
                                 "a\"",
                                 "<a",
                                 ">a",
                                 "a|b",
                                 "tail.",
                                 " a",
                                 "a ",
                                 "a\nb",
                                 "a\tb",
                                 "a\x7F"
                                 "b",
                                 "a\xC2\x85"
                                 "b",
                                 "bad\xFF",
                                 "\xEF\xBB\xBF"
                                 "a",
                                 "a\xEF\xBF\xBD",
                                 "a\xEF\xBC\x8E"
                                 "b",
                                 "a\xE2\x88\x95"
                                 "b",
                                 "a\xE2\x88\x96"
                                 "b",
                                 "CON",
                                 "con",
                                 "nul.txt",
                                 "Com1",
                                 "COM1.x",
                                 "lpt9.sess",
                                 "aux .txt",
                                 "COM\xC2\xB9",
                                 "PRN"})
    EXPECT_NE(refuse_session_name(name), "") << name;
  EXPECT_NE(refuse_session_name(std::string(201, 'x')), "");
  EXPECT_NE(refuse_session_name(std::string("a\0b", 3)), "");
}

// ---- errors

TEST(ServerErrors, StatusDecidesTheType) {
  const std::pair<int, const char*> table[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
      {404, "not_found_error"},       {405, "invalid_request_error"}, {413, "invalid_request_error"},
      {415, "invalid_request_error"}, {431, "invalid_request_error"}, {500, "server_error"},
      {501, "not_supported_error"},   {503, "unavailable_error"},     {507, "server_error"}};
  for (const auto& [status, type] : table) EXPECT_STREQ(error_type({status, ""}), type) << status;
}

// SES-4: the status follows the kind, never the text.
TEST(ServerErrors, SlotErrorsFollowTheirKind) {
  EXPECT_EQ(slot_error("invalid", false, "storage").status, 400);
  EXPECT_EQ(slot_error("memory", false, "x").status, 503);
  EXPECT_EQ(slot_error("storage", false, "x").status, 507);
  EXPECT_EQ(slot_error("io", false, "invalid").status, 500);
  EXPECT_EQ(to_json(slot_error("io", true, "late")),
            R"({"error":{"code":500,"message":"late","type":"server_error","kind":"io","published":true}})");
}

TEST(ServerErrors, ContextErrorNamesBothNumbers) {
  const std::string json = to_json(exceeds_context(5000, 4096));
  EXPECT_THAT(
      json, testing::HasSubstr(R"("type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096)"));
}

// ---- requests

TEST(ServerHttpMessage, QueriesAndEscapes) {
  HttpRequest request;
  request.query = "action=sa%76e&b=1+2&empty=&flag";
  EXPECT_EQ(request.query_value("action"), "save");
  EXPECT_EQ(request.query_value("b"), "1 2");
  EXPECT_EQ(request.query_value("empty"), "");
  EXPECT_EQ(request.query_value("flag"), "");
  EXPECT_EQ(request.query_value("c"), std::nullopt);
  EXPECT_EQ(percent_decoded("a%2fb+", false), "a/b+");
  for (const char* broken : {"%", "%2", "%zz", "a%2"})
    EXPECT_EQ(percent_decoded(broken, false), std::nullopt) << broken;
}

}  // namespace
}  // namespace strata
