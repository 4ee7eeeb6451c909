// The line protocol (docs/engine-protocol.md): golden text of every line, round trips, and what a decoder
// refuses (SRV-1: the server checks every line).
#include "core/lines.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/golden.hpp"

namespace strata::lines {
namespace {

Generate full_generate() {
  Generate line;
  line.id = 42;
  line.max_tokens = 512;
  line.slot = 3;
  line.sampling = {.temperature = 0.7,
                   .top_p = 0.95,
                   .top_k = 40,
                   .min_p = 0.05,
                   .seed = 18446744073709551615u,
                   .repeat_penalty = 1.1,
                   .presence_penalty = -0.5,
                   .frequency_penalty = 1e-7,
                   .repeat_last_n = 64,
                   .logprobs = 5};
  line.salt = 0xfeed;
  line.keep = false;
  line.use_cache = false;
  line.ignore_end = true;
  line.grammar = "root ::= \"100%\"\n";
  line.media = {{1, 0xabc}, {3, 0xffffffffffffffff}};
  line.borders = {2, 4};
  line.tokens = {1, 2, 3, 2147483647};
  return line;
}

Generate least_generate() {
  Generate line;
  line.id = 1;
  line.tokens = {7};
  return line;
}

std::vector<Command> every_command() {
  return {
      full_generate(),
      least_generate(),
      Stop{42},
      SlotAction{SlotActionKind::save, 1, "/var/lib/sessions/my chat.sess"},
      SlotAction{SlotActionKind::restore, 0, "chat.sess"},
      SlotAction{SlotActionKind::erase, 2, ""},
      QueryStatus{},
      ListSessions{},
      Forget{ConversationId{0xab}},
      Pin{ConversationId{0xab}, true},
      Pin{ConversationId{0xab}, false},
      Quit{},
  };
}

Done sample_done() {
  Done line;
  line.id = 42;
  line.finish = Finish::length;
  line.prompt = 900;
  line.reused = 812;
  line.read = 88;
  line.generated = 16;
  line.slot = 1;
  line.prompt_ms = 12.5;
  line.decode_ms = 40;
  line.cache_ms = 3.25;
  line.tier = Tier::disk;
  line.reason = "prefix_changed@812";
  return line;
}

std::vector<Event> every_event() {
  return {
      Info{{{"model", "reference attention 1.2M"}, {"context", "8192"}, {"odd", "100 %\n"}, {"empty", ""}}},
      Info{},
      Ready{8192, 4},
      Resume{42, 812, Tier::ram, 1.5, 2},
      PromptProgress{42, 100, 900, 12.25},
      TokenLine{42, 65},
      LogProbs{42, 65, -0.25, {{65, -0.25}, {66, -3.5}}},
      LogProbs{42, 65, 0, {}},
      sample_done(),
      Failed{42, "prompt of 9000 tokens does not fit the context of 8192"},
      Failed{std::nullopt, "folder in use by another process"},
      Saved{900, 123456789, 31.5},
      Restored{900, 812, 123456789, 31.5},
      Erased{900},
      SlotError{"storage", true, "directory flush failed"},
      Fatal{"copy to the device failed"},
      SessionProgress{0, 1048576},
      SessionWait{"flush", 60},
      Drain{3, 12},
      StatusReport{R"({"slots":[]})"},
      Sessions{R"([{"id":"00000000000000ab"}])"},
      Acknowledged{"FORGET 00000000000000ab"},
      Bye{},
  };
}

TEST(Lines, GoldenCommands) {
  std::string text;
  for (const Command& command : every_command()) text += encode(command) + "\n";
  testing::expect_golden("commands.txt", text);
}

TEST(Lines, GoldenEvents) {
  std::string text;
  for (const Event& event : every_event()) text += encode(event) + "\n";
  testing::expect_golden("events.txt", text);
}

TEST(Lines, CommandsRoundTrip) {
  for (const Command& command : every_command()) {
    const auto read = decode_command(encode(command));
    ASSERT_TRUE(read) << encode(command) << ": " << read.error().message;
    EXPECT_EQ(*read, command) << encode(command);
  }
}

TEST(Lines, EventsRoundTrip) {
  for (const Event& event : every_event()) {
    const auto read = decode_event(encode(event));
    ASSERT_TRUE(read) << encode(event) << ": " << read.error().message;
    EXPECT_EQ(*read, event) << encode(event);
  }
}

TEST(Lines, SlotActionsDefaultToSlotZero) {
  EXPECT_EQ(*decode_command("SAVE a b.sess"), Command(SlotAction{SlotActionKind::save, 0, "a b.sess"}));
  EXPECT_EQ(*decode_command("ERASE"), Command(SlotAction{SlotActionKind::erase, 0, ""}));
}

TEST(Lines, GenerateOptionsComeInAnyOrder) {
  const auto read = decode_command("GEN 5 max=9 cache=1 seed=3 slot=1 checkpoint=1 tokens=4,5");
  ASSERT_TRUE(read) << read.error().message;
  const auto& line = std::get<Generate>(*read);
  EXPECT_EQ(line.sampling.seed, 3u);
  EXPECT_EQ(line.slot, 1);
  EXPECT_TRUE(line.keep);
  EXPECT_EQ(line.tokens, (std::vector<Token>{4, 5}));
}

TEST(Lines, WrongCommandsAreRefused) {
  for (const char* line : {
           "",
           " ",
           "gen 1 max=1 tokens=1",
           "GEN",
           "GEN 1",
           "GEN 1 max=1",
           "GEN 1 tokens=1",
           "GEN 1 max=1 tokens=",
           "GEN 1 max=1 tokens=1,",
           "GEN 1 max=1 tokens=,1",
           "GEN 1 max=1 tokens=1,,2",
           "GEN 1 max=1 tokens=-1",
           "GEN 1 max=1 tokens=+1",
           "GEN 1 max=1 tokens=01",
           "GEN 1 max=1 tokens=1e3",
           "GEN 1 max=1 tokens=2147483648",
           "GEN 1 max=1 tokens=1 ",
           "GEN 1 max=1 tokens=1 slot=1",
           "GEN 1 max=1  tokens=1",
           "GEN  1 max=1 tokens=1",
           "GEN -1 max=1 tokens=1",
           "GEN 18446744073709551616 max=1 tokens=1",
           "GEN 1 max=4294967296 tokens=1",
           "GEN 1 max=1 max=1 tokens=1",
           "GEN 1 max=1 seed=1 seed=1 tokens=1",
           "GEN 1 max=1 color=red tokens=1",
           "GEN 1 max=1 seed tokens=1",
           "GEN 1 max=1 slot=-1 tokens=1",
           "GEN 1 max=1 temperature=-1 tokens=1",
           "GEN 1 max=1 temperature=nan tokens=1",
           "GEN 1 max=1 temperature=inf tokens=1",
           "GEN 1 max=1 temperature=1e999 tokens=1",
           "GEN 1 max=1 temperature=0x1 tokens=1",
           "GEN 1 max=1 temperature= tokens=1",
           "GEN 1 max=1 top_k=1.5 tokens=1",
           "GEN 1 max=1 presence_penalty=--1 tokens=1",
           "GEN 1 max=1 salt=XYZ tokens=1",
           "GEN 1 max=1 salt=12345678901234567 tokens=1",
           "GEN 1 max=1 cache=2 tokens=1",
           "GEN 1 max=1 checkpoint=yes tokens=1",
           "GEN 1 max=1 media=1:ab tokens=1",  // past the tokens
           "GEN 1 max=1 media=0 tokens=1",
           "GEN 1 max=1 media=1:ab,0:ab tokens=1,2",
           "GEN 1 max=1 borders=2 tokens=1",  // past the tokens
           "GEN 1 max=1 borders=1,1 tokens=1,2",
           "GEN 1 max=1 borders= tokens=1",
           "STOP",
           "STOP x",
           "STOP 1 2",
           "SAVE",
           "SAVE ",
           "SAVE slot=0",
           "SAVE slot=0 ",
           "SAVE slot=x path",
           "SAVE slot=0 a\tb",
           "RESTORE",
           "ERASE slot=",
           "ERASE slot=0 x",
           "STATUS now",
           "SESSIONS ",
           "FORGET ab",
           "FORGET 0000000000000000",
           "FORGET 00000000000000AB",
           "PIN 00000000000000ab",
           "PIN 00000000000000ab 2",
           "QUIT 1",
           "HELLO",
       })
    EXPECT_FALSE(decode_command(line)) << '"' << line << '"';
}

TEST(Lines, RefusalNamesTheField) {
  const auto message = [](std::string_view line) { return decode_command(line).error().message; };
  EXPECT_EQ(message("GEN 1 max=1 color=red tokens=1"), "GEN: unknown key color");
  EXPECT_EQ(message("GEN 1 max=1 top_k=x tokens=1"), "GEN: bad or missing top_k");
  EXPECT_EQ(message("GEN 1 max=1"), "GEN: bad or missing tokens");
  EXPECT_EQ(message("PIN 00000000000000ab"), "PIN: bad or missing pinned");
  EXPECT_EQ(message("STOP 1 2"), "STOP: more than its fields");
}

TEST(Lines, WrongEventsAreRefused) {
  for (const char* line : {
           "",
           "T 1",
           "T 1 -2",
           "T 1 2 3",
           "T 1 2 ",
           "T\t1 2",
           "LP 1 2",
           "LP 1 2 nan",
           "LP 1 2 -inf",
           "LP 1 2 -1 top=",
           "LP 1 2 -1 top=1",
           "LP 1 2 -1 top=1:-1,",
           "LP 1 2 -1 other=1:-1",
           "PP 1 5 4 1",
           "PP 1 1 4 -1",
           "PP 1 1 4",
           "RESUME 1 5 tape 1 0",
           "RESUME 1 5 ram 1",
           "READY 8192",
           "READY 8192 4 1",
           "INFO model",
           "INFO =x",
           "INFO Model=x",
           "INFO a=%2",
           "INFO a=%zz",
           "INFO ",
           "DONE 1 finish=stop",
           "DONE 1 finish=why prompt=1 reused=0 read=1 prompt_ms=1 generated=1 decode_ms=1 tier=none "
           "reason=new slot=0 "
           "cache_ms=0",
           "DONE 1 finish=stop prompt=1 reused=0 read=1 prompt_ms=1 generated=1 decode_ms=1 tier=none "
           "reason= slot=0 "
           "cache_ms=0",
           "DONE 1 finish=stop prompt=1 read=1 reused=0 prompt_ms=1 generated=1 decode_ms=1 tier=none "
           "reason=new slot=0 "
           "cache_ms=0",
           "DONE 1 finish=stop prompt=1 reused=0 read=1 prompt_ms=1 generated=1 decode_ms=1 tier=none "
           "reason=new slot=0",
           "ERR 1",
           "ERR x reason",
           "ERR - ",
           "SAVED 1 2",
           "RESTORED 5 6 1 1",
           "ERASED",
           "SERR disk 0 full",
           "SERR io 2 full",
           "SERR io 0",
           "FATAL",
           "SESSION 2 1",
           "SWAIT sleep 1",
           "SWAIT flush 0",
           "SWAIT flush 3601",
           "DRAIN 1",
           "STATUS",
           "STATUS not json",
           "STATUS {",
           "SESSIONS null",
           "OK",
           "BYE bye",
           "GEN 1 max=1 tokens=1",
       })
    EXPECT_FALSE(decode_event(line)) << '"' << line << '"';
}

TEST(Lines, FreeTextNeverEndsALineEarly) {
  const std::string line = encode(Event(Failed{1, "first\nSERR io 0 second\r"}));
  EXPECT_EQ(line.find_first_of("\r\n"), std::string::npos);
  EXPECT_EQ(*decode_event(line), Event(Failed{1, "first SERR io 0 second "}));
  EXPECT_TRUE(decode_event(encode(Event(Failed{1, ""}))));
}

TEST(Lines, NumbersThatAreNotFiniteStayInForm) {  // a model's logits may hold them
  LogProbs line{
      1, 2, -std::numeric_limits<double>::infinity(), {{3, std::numeric_limits<double>::quiet_NaN()}}};
  EXPECT_TRUE(decode_event(encode(Event(line))));
}

TEST(Lines, IdOfAWrongGenerateLine) {
  EXPECT_EQ(generate_id("GEN 7 max=x"), 7u);
  EXPECT_EQ(generate_id("GEN 7"), 7u);
  EXPECT_EQ(generate_id("GEN x"), std::nullopt);
  EXPECT_EQ(generate_id("STOP 7"), std::nullopt);
}

TEST(Lines, LongPromptsRoundTrip) {
  Generate line = least_generate();
  line.tokens.resize(200'000);
  for (size_t i = 0; i < line.tokens.size(); ++i) line.tokens[i] = static_cast<Token>(i * 17 % 151'000);
  const auto read = decode_command(encode(Command(line)));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, Command(line));
}

}  // namespace
}  // namespace strata::lines
