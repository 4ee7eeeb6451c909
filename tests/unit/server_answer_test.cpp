// What a model's text means, step by step, and its row of blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/server/answer_blocks.hpp"
#include "engine/server/answer_reader.hpp"
#include "engine/server/json_check.hpp"
#include "engine/server/stop_matcher.hpp"
#include "tests/support/byte_vocabulary.hpp"

namespace strata {
namespace {

using testing::ElementsAre;

// Answers what the test says that a text means; anything else cannot be read.
class ScriptedReader final : public test::ByteVocabulary {
 public:
  Result<std::string> chat_parse(const std::string&, std::string_view text, bool final) override {
    const auto found = meanings.find({std::string(text), final});
    if (found == meanings.end()) return make_error(ErrorCode::invalid, "no known form");
    return found->second;
  }
  std::map<std::pair<std::string, bool>, std::string> meanings;
};

AnswerReader reader_of(Model& model, bool incremental = true) {
  return AnswerReader(model, {"parser", incremental, [] { return std::string("made"); }});
}

std::string content(const std::string& text) { return R"({"role":"assistant","content":")" + text + "\"}"; }

std::string call(const std::string& id, const std::string& arguments) {
  return R"({"content":null,"tool_calls":[{"id":")" + id +
         R"(","type":"function","function":{"name":"look","arguments":")" + arguments + R"("}}]})";
}

TEST(ServerAnswerReader, WithoutAParserAllTextIsContent) {
  test::ByteVocabulary model;
  AnswerReader reader(model, {std::nullopt, true, {}});
  EXPECT_EQ(reader.feed("a").text, "a");
  EXPECT_EQ(reader.feed("<b>").text, "<b>");
  EXPECT_TRUE(reader.feed("").empty());
  EXPECT_TRUE(reader.finish().empty());
  EXPECT_EQ(reader.content().text, "a<b>");
}

TEST(ServerAnswerReader, GivesWhatIsNewAndNothingTwice) {
  ScriptedReader model;
  model.meanings = {
      {{"1", false}, content("He")}, {{"12", false}, content("Hello")}, {{"12", true}, content("Hello.")}};
  AnswerReader reader = reader_of(model);
  EXPECT_EQ(reader.feed("1").text, "He");
  EXPECT_EQ(reader.feed("2").text, "llo");
  EXPECT_EQ(reader.finish().text, ".");
  EXPECT_EQ(reader.content().text, "Hello.");
}

TEST(ServerAnswerReader, WhatWasGivenOutIsNeverTakenBack) {
  ScriptedReader model;
  model.meanings = {{{"1", false}, content("Hello")},
                    {{"12", false}, content("He")},
                    {{"123", false}, content("Other words")},
                    {{"123", true}, content("Hello you")}};
  AnswerReader reader = reader_of(model);
  EXPECT_EQ(reader.feed("1").text, "Hello");
  EXPECT_TRUE(reader.feed("2").empty());
  EXPECT_TRUE(reader.feed("3").empty());
  EXPECT_EQ(reader.finish().text, " you");
}

// Reads any text as content, and counts what it is made to read.
class CountingReader final : public test::ByteVocabulary {
 public:
  Result<std::string> chat_parse(const std::string&, std::string_view text, bool) override {
    read_bytes += text.size();
    return content(std::string(text));
  }
  uint64_t read_bytes = 0;
};

TEST(ServerAnswerReader, TheWorkForEachTokenIsBoundedHoweverLongTheAnswer) {
  CountingReader model;
  AnswerReader reader = reader_of(model);
  std::string said;
  std::string text;
  for (uint32_t token = 0; token < 20'000; ++token) {
    const std::string piece = std::to_string(10'000 + token);
    text += piece;
    const AnswerDelta delta = reader.feed(piece);
    said += delta.text;
    if (text.size() <= 2048) {
      EXPECT_EQ(delta.text, piece) << "short answers come token by token";
    }
    EXPECT_LE(text.size() - said.size(), text.size() / 2048 + piece.size());
  }
  said += reader.finish().text;
  EXPECT_EQ(said, text);
  EXPECT_LT(model.read_bytes, 4096 * text.size()) << "the whole text for each token are 1e9 bytes";
}

TEST(ServerAnswerReader, CallsComeInPiecesWithOneId) {
  ScriptedReader model;
  model.meanings = {
      {{"1", false}, call("", "")}, {{"12", false}, call("", "{")}, {{"12", true}, call("", "{}")}};
  AnswerReader reader = reader_of(model);
  EXPECT_THAT(reader.feed("1").tool_calls, ElementsAre(ToolCallDelta{0, true, "made", "look", ""}));
  EXPECT_THAT(reader.feed("2").tool_calls, ElementsAre(ToolCallDelta{0, false, "", "", "{"}));
  EXPECT_THAT(reader.finish().tool_calls, ElementsAre(ToolCallDelta{0, false, "", "", "}"}));
  EXPECT_THAT(reader.content().tool_calls, ElementsAre(ToolCall{"made", "look", "{}"}));
}

TEST(ServerAnswerReader, TheModelsOwnCallIdIsKept) {
  ScriptedReader model;
  model.meanings = {{{"1", true}, call("abc123", "{}")}};
  AnswerReader reader = reader_of(model, false);
  EXPECT_TRUE(reader.feed("1").empty());
  EXPECT_THAT(reader.finish().tool_calls, ElementsAre(ToolCallDelta{0, true, "abc123", "look", "{}"}));
}

TEST(ServerAnswerReader, ACallWithoutANameYetWaits) {
  ScriptedReader model;
  model.meanings = {
      {{"1", false}, R"({"content":"a","tool_calls":[{"function":{"name":"","arguments":""}}]})"}};
  AnswerReader reader = reader_of(model);
  const AnswerDelta delta = reader.feed("1");
  EXPECT_EQ(delta.text, "a");
  EXPECT_TRUE(delta.tool_calls.empty());
}

TEST(ServerAnswerReader, AnUnreadableAnswerIsItsText) {
  ScriptedReader model;
  AnswerReader reader = reader_of(model);
  EXPECT_TRUE(reader.feed("<odd>").empty());
  EXPECT_EQ(reader.finish().text, "<odd>");
}

TEST(ServerAnswerReader, WhatCouldBeReadStandsWhenTheEndCannot) {
  ScriptedReader model;
  model.meanings = {{{"1", false}, content("Hi")}};
  AnswerReader reader = reader_of(model);
  EXPECT_EQ(reader.feed("1").text, "Hi");
  EXPECT_TRUE(reader.feed("2").empty());
  EXPECT_TRUE(reader.finish().empty());
  EXPECT_EQ(reader.content().text, "Hi");
}

// ---- blocks

class BlockJournal final : public BlockWriter {
 public:
  void open(size_t index, const AnswerBlock& block) override {
    lines.push_back("open " + std::to_string(index) + " " + block.name);
  }
  void piece(size_t index, const AnswerBlock&, std::string_view piece) override {
    lines.push_back("piece " + std::to_string(index) + " " + std::string(piece));
  }
  void close(size_t index, const AnswerBlock& block) override {
    lines.push_back("close " + std::to_string(index) + " " + block.body);
  }
  std::vector<std::string> lines;
};

TEST(ServerAnswerBlocks, OneIsOpenAtATime) {
  BlockSequence blocks;
  BlockJournal journal;
  blocks.take({"why", "a", {}}, journal);
  blocks.take({"", "b", {{0, true, "c1", "f", "{"}}}, journal);
  blocks.take({"", "", {{0, false, "", "", "}"}, {1, true, "c2", "g", ""}}}, journal);
  blocks.finish(journal);
  blocks.finish(journal);
  EXPECT_THAT(journal.lines, ElementsAre("open 0 ", "piece 0 why", "close 0 why", "open 1 ", "piece 1 a",
                                         "piece 1 b", "close 1 ab", "open 2 f", "piece 2 {", "piece 2 }",
                                         "close 2 {}", "open 3 g", "close 3 "));
}

TEST(ServerAnswerBlocks, TheEndOfACallComesBeforeWhatFollowsIt) {
  BlockSequence blocks;
  BlockJournal journal;
  blocks.take({"", "", {{0, true, "c1", "f", "{"}}}, journal);
  blocks.take({"", "then", {{0, false, "", "", "}"}}}, journal);
  EXPECT_THAT(journal.lines,
              ElementsAre("open 0 f", "piece 0 {", "piece 0 }", "close 0 {}", "open 1 ", "piece 1 then"));
}

TEST(ServerAnswerBlocks, WholeAnswersHaveTheSameOrder) {
  const auto blocks = blocks_of({"text", "why", {{"c", "f", "{}"}}});
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].body, "why");
  EXPECT_EQ(blocks[1].body, "text");
  EXPECT_EQ(blocks[2].call_id, "c");
  EXPECT_TRUE(blocks_of({}).empty());
}

TEST(ServerAnswerBlocks, ArgumentsThatAreNoObjectBecomeAnEmptyOne) {
  EXPECT_EQ(json_object_or_empty(R"({"a":1})"), R"({"a":1})");
  for (const char* text : {"", "{", "5", "[1]", R"({"a":1}})"})
    EXPECT_EQ(json_object_or_empty(text), "{}") << text;
}

TEST(ServerStopMatcher, SaysWhichStringItWas) {
  StopMatcher stops({"bc", "b", "xyz"});
  EXPECT_EQ(stops.feed("a"), "a");
  EXPECT_EQ(stops.match(), "");
  EXPECT_EQ(stops.feed("bc"), "");
  EXPECT_EQ(stops.match(), "bc");
}

}  // namespace
}  // namespace strata
