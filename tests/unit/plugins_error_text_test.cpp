// What is kept of an error that is longer than the room the ABI has for it (PLG-1).
#include <gtest/gtest.h>

#include <string>

#include "plugins/sdk/error_text.hpp"

namespace strata::sdk {
namespace {

TEST(ErrorText, SeveralLinesBecomeOneAndLoseWhatOnlyUnderlines) {
  EXPECT_EQ(one_line("\n-----\nWhile executing at line 1:\r\n{{ f() }}\n   ^\nError:\tno f\n"),
            "While executing at line 1: {{ f() }} Error: no f");
  EXPECT_EQ(one_line("a - b"), "a - b");
  EXPECT_EQ(one_line(" \n"), "");
}

TEST(ErrorText, AMessageKeepsItsBeginningAndMoreOfItsEnd) {
  EXPECT_EQ(cut_in_the_middle("short", 5), "short");
  EXPECT_EQ(cut_in_the_middle("0123456789abcdef", 12), "012...abcdef");
  EXPECT_EQ(cut_in_the_middle("0123456789", 2), "01");
}

TEST(ErrorText, APathKeepsItsEnd) {
  EXPECT_EQ(end_of_path("/a/b.gguf", 9), "/a/b.gguf");
  EXPECT_EQ(end_of_path("/folder/b.gguf", 10), ".../b.gguf");
  EXPECT_EQ(end_of_path("/folder/b.gguf", 3), "guf");
}

TEST(ErrorText, ACutNeverFallsInsideACharacter) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "\xe2\x82\xac";  // three bytes each
  const auto is_whole = [](const std::string& cut) {
    std::string rest = cut;
    for (size_t at = 0; (at = rest.find("\xe2\x82\xac")) != std::string::npos;) rest.erase(at, 3);
    return rest == "..." || rest.empty();
  };
  for (size_t room = 0; room < text.size(); ++room) {
    for (const std::string& cut : {cut_in_the_middle(text, room), end_of_path(text, room)}) {
      EXPECT_LE(cut.size(), room);
      EXPECT_TRUE(is_whole(cut)) << room << ": " << cut;
    }
  }
}

TEST(ErrorText, AFilesErrorFitsAndGivesUpThePathBeforeTheReason) {
  const std::string path = "/" + std::string(400, 'p') + "/model.gguf";
  const std::string reason(120, 'r');
  const std::string cut = about_file("model file", path, reason);
  EXPECT_EQ(cut.size(), kErrorRoom);
  EXPECT_TRUE(cut.starts_with("model file ...p")) << cut;
  EXPECT_TRUE(cut.ends_with("p/model.gguf: " + reason)) << cut;
  EXPECT_EQ(about_file("adapter", "/a.gguf", "bad\nfile"), "adapter /a.gguf: bad file");
}

TEST(ErrorText, AReasonLongerThanTheRoomLeavesTheFilesName) {
  const std::string path = "/" + std::string(400, 'p') + "/model.gguf";
  const std::string cut = about_file("model file", path, "first " + std::string(400, 'r') + " last");
  EXPECT_EQ(cut.size(), kErrorRoom);
  EXPECT_NE(cut.find("p/model.gguf: first r"), std::string::npos) << cut;
  EXPECT_TRUE(cut.ends_with("r last")) << cut;
}

}  // namespace
}  // namespace strata::sdk
