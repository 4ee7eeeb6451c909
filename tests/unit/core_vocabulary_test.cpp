// Results, types, digests, reasons and identity.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "core/digest.hpp"
#include "core/identity.hpp"
#include "core/reasons.hpp"
#include "core/result.hpp"
#include "core/types.hpp"

namespace strata {
namespace {

TEST(Result, ErrnoBecomesOneCode) {
  const auto code = [](int os_errno) { return errno_error(os_errno, "x").code; };
  EXPECT_EQ(code(ENOENT), ErrorCode::not_found);
  EXPECT_EQ(code(ENOSPC), ErrorCode::exhausted);
  EXPECT_EQ(code(EDQUOT), ErrorCode::exhausted);
  EXPECT_EQ(code(EAGAIN), ErrorCode::unavailable);
  EXPECT_EQ(code(EACCES), ErrorCode::unavailable);
  EXPECT_EQ(code(EEXIST), ErrorCode::invalid);
  EXPECT_EQ(code(ELOOP), ErrorCode::invalid);
  EXPECT_EQ(code(EOPNOTSUPP), ErrorCode::unsupported);
  EXPECT_EQ(code(EIO), ErrorCode::io);
  const Error error = errno_error(ENOSPC, "conv-1.sess");
  EXPECT_EQ(error.os_errno, ENOSPC);
  EXPECT_EQ(error.message, "conv-1.sess: No space left on device");
}

TEST(Result, ContextComesFirstAndKeepsTheRest) {
  const Error error = with_context(errno_error(EIO, "read"), "intake");
  EXPECT_EQ(error.message, "intake: read: Input/output error");
  EXPECT_EQ(error.code, ErrorCode::io);
  EXPECT_EQ(error.os_errno, EIO);
}

Result<int> half(int value) {
  if (value % 2 != 0) return make_error(ErrorCode::invalid, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  STRATA_ASSIGN(const int once, half(value));
  STRATA_TRY(half(once));
  return once / 2;
}

TEST(Result, ErrorsTravelUp) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_EQ(quarter(5).error().code, ErrorCode::invalid);
}

TEST(Types, HexIsFixedWidthAndLowerCase) {
  EXPECT_EQ(to_hex(ConversationId{0xAB}), "00000000000000ab");
  EXPECT_EQ(to_hex(Digest{0x1, 0xFF}), "00000000000000ff0000000000000001");
}

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 256);
  return bytes;
}

TEST(DigestTest, SameOnEveryMachine) {  // files outlive the processor that wrote them
  EXPECT_EQ(to_hex(digest_bytes({})),
            "99aa06d3014798d86001c324468d497f");  // published by the authors of XXH3
  const PartPlace place{ConversationId{0x0123456789abcdef}, 1, 256, PartKind::block};
  EXPECT_EQ(to_hex(digest_part(place, pattern(100'000))), "37fec8a16499e651c5bf30ffe3a57447");
  EXPECT_EQ(hash_bytes(pattern(1000), 7), 0xdc2264d6b7f25e5eu);
}

TEST(DigestTest, EveryPartOfThePlaceCounts) {  // intact bytes in the wrong place are found
  const std::vector<std::byte> bytes = pattern(5000);
  const PartPlace place{ConversationId{5}, 1, 256, PartKind::block};
  std::set<Digest> digests{digest_bytes(bytes)};
  digests.insert(digest_part(place, bytes));
  digests.insert(digest_part({ConversationId{6}, 1, 256, PartKind::block}, bytes));
  digests.insert(digest_part({ConversationId{5}, 2, 256, PartKind::block}, bytes));
  digests.insert(digest_part({ConversationId{5}, 1, 512, PartKind::block}, bytes));
  digests.insert(digest_part({ConversationId{5}, 1, 256, PartKind::live}, bytes));
  digests.insert(digest_part({ConversationId{5}, 1, 256, PartKind::checkpoint}, bytes));
  EXPECT_EQ(digests.size(), 6u);  // a live state and a checkpoint at its position are the same place
}

TEST(DigestTest, PiecesGiveTheSameAsTheWhole) {
  const std::vector<std::byte> bytes = pattern(70'001);
  for (const size_t piece : {1u, 63u, 64u, 1024u, 4096u, 70'001u}) {
    DigestStream stream;
    for (size_t at = 0; at < bytes.size(); at += piece)
      stream.update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    EXPECT_EQ(stream.finish(), digest_bytes(bytes)) << piece;
  }
  const PartPlace place{ConversationId{5}, 1, 256, PartKind::block};
  for (const size_t length : {0u, 1u, 200u, 5000u, 70'001u}) {
    DigestStream stream(place);
    stream.update(std::span(bytes).first(length / 3));
    stream.update(std::span(bytes).subspan(length / 3, length - length / 3));
    EXPECT_EQ(stream.finish(), digest_part(place, std::span(bytes).first(length))) << length;
  }
}

TEST(Reasons, TextsArePartOfTheInterface) {  // OBS-1
  const char* expected[kReadReasons] = {
      "none",          "new",       "prefix_changed",  "evicted", "expired", "identity",
      "no_checkpoint", "too_large", "cheaper_to_read", "corrupt", "io_error"};
  for (int i = 0; i < kReadReasons; ++i) EXPECT_STREQ(label(static_cast<ReadReason>(i)), expected[i]);
  EXPECT_EQ(to_string(ReadCause{ReadReason::prefix_changed, 812}), "prefix_changed@812");
  EXPECT_EQ(to_string(ReadCause{ReadReason::fresh, 812}), "new");
}

TEST(Reasons, EverySkipHasItsOwnText) {  // OBS-2
  std::set<std::string> texts;
  for (int i = 0; i < kSkipReasons; ++i) texts.insert(label(static_cast<SkipReason>(i)));
  EXPECT_EQ(texts.size(), static_cast<size_t>(kSkipReasons));
  EXPECT_STREQ(label(SkipReason::needless), "needless");
  EXPECT_STREQ(label(SkipReason::min_free_ram), "min_free_ram");
}

Identity identity(std::vector<IdentityField> fields) {
  return Identity{Digest{1, 2}, configuration_digest(fields), std::move(fields)};
}

TEST(IdentityTest, EqualFieldsGiveTheSameDigestEveryTime) {  // ID-3: a restart has the same identity
  const std::vector<IdentityField> fields = {{"state_version", "reference-1"}, {"kv_type", "f32"}};
  EXPECT_EQ(configuration_digest(fields), configuration_digest(fields));
  EXPECT_EQ(to_hex(configuration_digest(fields)), "fcf6c641faabf6902304076e9b45fb18");
}

TEST(IdentityTest, LengthPrefixesKeepFieldsApart) {  // ID-2
  std::set<Digest> digests;
  digests.insert(configuration_digest({{"ab", "c"}}));
  digests.insert(configuration_digest({{"a", "bc"}}));
  digests.insert(configuration_digest({{"abc", ""}}));
  digests.insert(configuration_digest({{"a", "b"}, {"c", ""}}));
  digests.insert(configuration_digest({{"c", ""}, {"a", "b"}}));
  EXPECT_EQ(digests.size(), 5u);
}

TEST(IdentityTest, TheFieldThatDiffersIsNamed) {  // ID-3
  const Identity wanted = identity({{"state_version", "reference-2"}, {"kv_type", "f16"}});
  EXPECT_FALSE(compare(wanted, wanted));

  const auto value = compare(identity({{"state_version", "reference-1"}, {"kv_type", "f16"}}), wanted);
  ASSERT_TRUE(value);
  EXPECT_EQ(value->field, "state_version");
  EXPECT_EQ(value->stored, "reference-1");
  EXPECT_EQ(value->wanted, "reference-2");

  const auto missing = compare(identity({{"state_version", "reference-2"}}), wanted);
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->field, "kv_type");
  EXPECT_EQ(missing->stored, "(absent)");

  const auto extra =
      compare(identity({{"state_version", "reference-2"}, {"kv_type", "f16"}, {"lora", "x"}}), wanted);
  ASSERT_TRUE(extra);
  EXPECT_EQ(extra->field, "lora");
  EXPECT_EQ(extra->wanted, "(absent)");
}

TEST(IdentityTest, FieldsOfOneNamePairUpInOrder) {
  const auto difference =
      compare(identity({{"stages", "1"}, {"stages", "1"}}), identity({{"stages", "1"}, {"stages", "2"}}));
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->field, "stages");
  EXPECT_EQ(difference->wanted, "2");
}

TEST(IdentityTest, WithoutFieldsOnlyTheDigestCanBeNamed) {
  Identity stored = identity({{"a", "1"}});
  const Identity wanted = identity({{"a", "2"}});
  stored.fields.clear();
  EXPECT_EQ(compare(stored, wanted)->field, "configuration");
  stored.model = Digest{9, 9};
  EXPECT_EQ(compare(stored, wanted)->field, "model");
}

}  // namespace
}  // namespace strata
