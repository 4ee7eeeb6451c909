// Session file header and trailer: golden bytes, and each rule a reader enforces (SES-7, SES-3).
#include "core/session_file.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostream>

#include "core/digest.hpp"
#include "tests/support/golden.hpp"

namespace strata {
namespace {

SessionHeader sample_header() {
  SessionHeader header;
  header.flags = kSessionSelfContained;
  header.stage_count = 2;
  header.id = ConversationId{0x0123456789abcdef};
  header.created_ns = 1'700'000'000'000'000'000;
  header.model_identity = {0x1111, 0x2222};
  header.configuration_identity = {0x3333, 0x4444};
  header.tokens_per_block = 256;
  return header;
}

SessionTrailer sample_trailer() { return {8192, 4000, {0x77, 0x88}}; }

void reseal(SessionHeaderBytes& bytes) {
  const Digest digest = digest_bytes(std::span(bytes).first(80));
  std::memcpy(bytes.data() + 80, &digest.low, 8);
  std::memcpy(bytes.data() + 88, &digest.high, 8);
}

template <class T, class Array>
void set(Array& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

TEST(SessionHeader, GoldenBytes) {  // SES-7
  testing::expect_golden("session_header_v1.hex", testing::hex_dump(encode_session_header(sample_header())));
}

TEST(SessionTrailer, GoldenBytes) {  // SES-7
  testing::expect_golden("session_trailer_v1.hex",
                         testing::hex_dump(encode_session_trailer(sample_trailer())));
}

TEST(SessionHeader, RoundTrip) {
  const auto read = decode_session_header(encode_session_header(sample_header()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, sample_header());
}

TEST(SessionTrailer, RoundTrip) {
  const auto read = decode_session_trailer(encode_session_trailer(sample_trailer()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, sample_trailer());
}

TEST(SessionHeader, AnyFlippedBitIsFound) {
  for (size_t at = 0; at < limits::kSessionHeaderBytes; ++at) {
    SessionHeaderBytes bytes = encode_session_header(sample_header());
    bytes[at] ^= std::byte{0x20};
    EXPECT_FALSE(decode_session_header(bytes)) << "byte " << at;
  }
}

TEST(SessionHeader, AnyCutIsFound) {
  const SessionHeaderBytes bytes = encode_session_header(sample_header());
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto read = decode_session_header(std::span(bytes).first(length));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, length < 8 ? ErrorCode::invalid : ErrorCode::corrupt);
  }
}

struct BrokenRule {
  const char* name;
  std::function<void(SessionHeaderBytes&)> change;
  ErrorCode code;
  const char* message;
};
void PrintTo(const BrokenRule& rule, std::ostream* out) { *out << rule.name; }

class SessionHeaderRule : public ::testing::TestWithParam<BrokenRule> {};

TEST_P(SessionHeaderRule, IsEnforced) {
  SessionHeaderBytes bytes = encode_session_header(sample_header());
  GetParam().change(bytes);
  reseal(bytes);
  const auto read = decode_session_header(bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, GetParam().code);
  EXPECT_NE(read.error().message.find(GetParam().message), std::string::npos) << read.error().message;
}

template <class T>
std::function<void(SessionHeaderBytes&)> field(size_t at, T value) {
  return [=](SessionHeaderBytes& bytes) { set(bytes, at, value); };
}

const BrokenRule kRules[] = {
    {"Magic", field<uint8_t>(0, 'x'), ErrorCode::invalid, "not a Strata session file"},
    {"Version", field<uint32_t>(8, 2), ErrorCode::unsupported, "version 2"},
    {"HeaderSize", field<uint32_t>(12, 8192), ErrorCode::corrupt, "header size 8192"},
    {"Flags", field<uint32_t>(16, 8), ErrorCode::unsupported, "unknown flags"},
    {"NoStages", field<uint32_t>(20, 0), ErrorCode::corrupt, "stage count 0"},
    {"TooManyStages", field<uint32_t>(20, limits::kMaxStages + 1), ErrorCode::corrupt, "stage count"},
    {"IdZero", field<uint64_t>(24, 0), ErrorCode::corrupt, "conversation id 0"},
    {"TokensPerBlock", field<uint32_t>(72, limits::kMaxTokens + 1), ErrorCode::corrupt, "tokens per block"},
    {"Alignment", field<uint32_t>(76, 512), ErrorCode::unsupported, "alignment 512"},
    {"PaddingFirst", field<uint8_t>(96, 1), ErrorCode::corrupt, "after the header's fields"},
    {"PaddingLast", field<uint8_t>(4095, 1), ErrorCode::corrupt, "after the header's fields"},
};
INSTANTIATE_TEST_SUITE_P(Rules, SessionHeaderRule, ::testing::ValuesIn(kRules),
                         [](const auto& rule) { return std::string(rule.param.name); });

TEST(SessionTrailer, RulesAreEnforced) {
  const auto refused = [](auto change) {
    SessionTrailerBytes bytes = encode_session_trailer(sample_trailer());
    change(bytes);
    const auto read = decode_session_trailer(bytes);
    return read ? std::string("accepted") : read.error().message;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refused([](auto& b) { set(b, 32, 'x'); }), "not self-contained"));
  EXPECT_TRUE(has(refused([](auto& b) { set<uint8_t>(b, 40, 1); }), "after the trailer's fields"));
  EXPECT_TRUE(has(refused([](auto& b) { set<uint8_t>(b, 63, 1); }), "after the trailer's fields"));
  EXPECT_TRUE(has(refused([](auto& b) { set<uint64_t>(b, 0, 0); }), "manifest offset 0"));
  EXPECT_TRUE(has(refused([](auto& b) { set<uint64_t>(b, 0, 8193); }), "manifest offset 8193"));
  EXPECT_TRUE(has(refused([](auto& b) { set<uint64_t>(b, 0, uint64_t{1} << 60); }), "manifest offset"));
  EXPECT_TRUE(has(refused([](auto& b) { set<uint64_t>(b, 8, 0); }), "manifest length 0"));
  EXPECT_TRUE(
      has(refused([](auto& b) { set<uint64_t>(b, 8, limits::kMaxManifestBytes + 1); }), "manifest length"));
  const SessionTrailerBytes bytes = encode_session_trailer(sample_trailer());
  EXPECT_FALSE(decode_session_trailer(std::span(bytes).first(63)));
}

TEST(StrataMagic, OnlyOursIsOurs) {  // DISK-8: a file without our magic is never touched
  const auto ours = [](std::string_view text) { return has_strata_magic(std::as_bytes(std::span(text))); };
  EXPECT_TRUE(ours("STRASESS"));
  EXPECT_TRUE(ours("STRAINDX and more"));
  EXPECT_FALSE(ours("STRAINDY"));
  EXPECT_FALSE(ours("STRAIND"));
  EXPECT_FALSE(ours(""));
}

}  // namespace
}  // namespace strata
