// The index format (docs/session-format.md): golden bytes, and each rule a reader enforces broken alone
// (DISK-8, SES-7).
#include "core/manifest.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <ostream>

#include "core/byte_codec.hpp"
#include "core/digest.hpp"
#include "core/limits.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/sample_manifest.hpp"

namespace strata {
namespace {

using testing::sample_manifest;
using testing::sample_manifest_without_blocks;
using Bytes = std::vector<std::byte>;

constexpr size_t kDigestBytes = 16;

uint64_t u64_at(const Bytes& bytes, size_t at) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void set(Bytes& bytes, size_t at, T value) {
  ASSERT_LE(at + sizeof value, bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
void set_digest(Bytes& bytes, size_t at, const Digest& digest) {
  set(bytes, at, digest.low);
  set(bytes, at + 8, digest.high);
}
size_t head_length(const Bytes& bytes) { return u64_at(bytes, 16); }

// Makes both digests right again, so that only the rule under test is broken.
Bytes resealed(Bytes bytes) {
  const size_t head = head_length(bytes);
  const std::span<const std::byte> all(bytes);
  set_digest(bytes, head - kDigestBytes, digest_bytes(all.first(head - kDigestBytes)));
  DigestStream body;
  body.update(all.subspan(head - kDigestBytes, kDigestBytes));
  body.update(all.subspan(head, all.size() - head - kDigestBytes));
  set_digest(bytes, bytes.size() - kDigestBytes, body.finish());
  return bytes;
}

Result<Manifest> decode(const Bytes& bytes) { return decode_manifest(bytes, ManifestLimits{}); }

size_t body_at(const Bytes& bytes) { return head_length(bytes); }
size_t media_at(const Bytes& bytes, size_t i) { return body_at(bytes) + 4 * testing::kSampleTokens + 16 * i; }
size_t part_at(const Bytes& bytes, size_t i) { return media_at(bytes, 2) + 48 * i; }
constexpr size_t kFilesAt = kManifestFixedBytes;
constexpr size_t kChainAt = kFilesAt + 2 * 16;
constexpr size_t kPositionsAt = kChainAt + 3 * 8;
constexpr size_t kFieldsAt = kPositionsAt + 2 * 4;

TEST(Manifest, GoldenBytes) {  // SES-7
  testing::expect_golden("index_v1.hex", testing::hex_dump(encode_manifest(sample_manifest())));
}

TEST(Manifest, RoundTripKeepsEverything) {
  for (const Manifest& manifest : {sample_manifest(), sample_manifest_without_blocks()}) {
    const Bytes bytes = encode_manifest(manifest);
    const auto read = decode(bytes);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->head, manifest.head);
    EXPECT_EQ(read->tokens, manifest.tokens);
    EXPECT_EQ(read->media, manifest.media);
    EXPECT_EQ(read->parts, manifest.parts);
    EXPECT_EQ(encode_manifest(*read), bytes);
  }
}

TEST(Manifest, HeadIsReadableAlone) {  // DISK-6: intake reads heads only
  const Manifest manifest = sample_manifest();
  const Bytes bytes = encode_manifest(manifest);
  const auto sizes = peek_manifest(std::span(bytes).first(kManifestFixedBytes));
  ASSERT_TRUE(sizes) << sizes.error().message;
  EXPECT_EQ(sizes->total_bytes, bytes.size());
  const auto head = decode_manifest_head(std::span(bytes).first(sizes->head_bytes));
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(*head, manifest.head);
  EXPECT_EQ(head->prefix_chain.size(), 3u);
  EXPECT_EQ(head->resume_positions, (std::vector<uint32_t>{256, 600}));
}

TEST(Manifest, DerivedFieldsComeFromTheBody) {
  Manifest manifest = sample_manifest();
  const Bytes right = encode_manifest(manifest);
  manifest.head.token_count = 1;
  manifest.head.payload_bytes = 0;
  manifest.head.resume_positions = {3};
  manifest.head.prefix_chain.clear();
  EXPECT_EQ(encode_manifest(manifest), right);
}

TEST(Manifest, AnyFlippedBitIsFound) {  // B-6
  const Bytes bytes = encode_manifest(sample_manifest());
  for (size_t at = 0; at < bytes.size(); ++at) {
    Bytes damaged = bytes;
    damaged[at] ^= std::byte{0x10};
    EXPECT_FALSE(decode(damaged)) << "byte " << at;
  }
}

TEST(Manifest, AnyCutIsFound) {
  const Bytes bytes = encode_manifest(sample_manifest());
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_manifest(std::span(bytes).first(length), {})) << length;
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer));
}

TEST(Manifest, HalvesOfTwoGenerationsDoNotMix) {  // B-6: never a mix
  Manifest newer = sample_manifest();
  newer.head.generation = 8;
  for (ManifestPart& part : newer.parts) part.digest.low ^= 1;
  const Bytes old_bytes = encode_manifest(sample_manifest());
  Bytes mixed = encode_manifest(newer);
  ASSERT_EQ(mixed.size(), old_bytes.size());
  std::copy(old_bytes.begin() + static_cast<ptrdiff_t>(head_length(mixed)), old_bytes.end(),
            mixed.begin() + static_cast<ptrdiff_t>(head_length(mixed)));
  const auto read = decode(mixed);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("body does not match"), std::string::npos) << read.error().message;
}

TEST(Manifest, PayloadLimitOfTheSession) {  // SES-3
  const Bytes bytes = encode_manifest(sample_manifest());
  const uint64_t payload = sample_manifest().head.payload_bytes;
  EXPECT_TRUE(decode_manifest(bytes, ManifestLimits{payload}));
  EXPECT_FALSE(decode_manifest(bytes, ManifestLimits{payload - 1}));
}

TEST(Manifest, SeveralCheckpointsOfZeroBytesMayShareAPlace) {  // a stage without recurrent layers
  Manifest manifest = sample_manifest();
  for (ManifestPart& part : manifest.parts)
    if (part.kind == PartKind::checkpoint) part.length = 0, part.offset = 4096;
  const auto read = decode(encode_manifest(manifest));
  EXPECT_TRUE(read) << read.error().message;
}

TEST(Manifest, OwnFileMayBeUnused) {  // everything inherited
  Manifest manifest = sample_manifest();
  manifest.head.files[1].needed_length = 1 << 20;
  uint64_t offset = 4096;
  for (ManifestPart& part : manifest.parts) {
    part.file = 1;
    part.offset = offset;
    offset += align_up(part.length, limits::kAlignment);
  }
  manifest.head.files[0].needed_length = 0;
  const auto read = decode(encode_manifest(manifest));
  EXPECT_TRUE(read) << read.error().message;
}

// ---- each rule broken alone

struct BrokenRule {
  const char* name;
  std::function<Bytes()> make;
  ErrorCode code;
  const char* message;
};
void PrintTo(const BrokenRule& rule, std::ostream* out) { *out << rule.name; }

// Changes bytes of the sample and makes the digests right again.
std::function<Bytes()> patched(std::function<void(Bytes&)> change) {
  return [change = std::move(change)] {
    Bytes bytes = encode_manifest(sample_manifest());
    change(bytes);
    return resealed(std::move(bytes));
  };
}
// Changes the manifest before it is written.
std::function<Bytes()> built(std::function<void(Manifest&)> change) {
  return [change = std::move(change)] {
    Manifest manifest = sample_manifest();
    change(manifest);
    return encode_manifest(manifest);
  };
}
template <class T>
std::function<Bytes()> field(size_t at, T value) {
  return patched([=](Bytes& bytes) { set<T>(bytes, at, value); });
}
template <class T>
std::function<Bytes()> part_field(size_t part, size_t at, T value) {
  return patched([=](Bytes& bytes) { set<T>(bytes, part_at(bytes, part) + at, value); });
}

class ManifestRule : public ::testing::TestWithParam<BrokenRule> {};

TEST_P(ManifestRule, IsEnforced) {  // invariant 8, DISK-8
  const auto read = decode(GetParam().make());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, GetParam().code) << read.error().message;
  EXPECT_NE(read.error().message.find(GetParam().message), std::string::npos) << read.error().message;
}

constexpr ErrorCode kCorrupt = ErrorCode::corrupt;

const BrokenRule kHeadRules[] = {
    {"Magic",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       b[0] = std::byte{'x'};
       return b;
     },
     ErrorCode::invalid, "not a Strata index"},
    {"Version", field<uint32_t>(8, 2), ErrorCode::unsupported, "version 2"},
    {"Flags", field<uint32_t>(12, 2), ErrorCode::unsupported, "unknown flags"},
    {"HeadBytesTooSmall",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       set<uint64_t>(b, 16, 200);
       return b;
     },
     kCorrupt, "head of 200 bytes"},
    {"HeadBytesTooLarge",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       set<uint64_t>(b, 16, limits::kMaxIndexHeadBytes + 8);
       return b;
     },
     kCorrupt, "head of"},
    {"HeadBytesOdd",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       set<uint64_t>(b, 16, head_length(b) + 4);
       return b;
     },
     kCorrupt, "head of"},
    {"TotalBytesTooLarge",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       set<uint64_t>(b, 24, limits::kMaxManifestBytes + 1);
       return b;
     },
     kCorrupt, "bytes in all"},
    {"TotalBytesNotOfHead",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       set<uint64_t>(b, 24, head_length(b));
       return b;
     },
     kCorrupt, "bytes in all"},
    {"SomethingAfterTheEnd",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       b.resize(b.size() + 8);
       set<uint64_t>(b, 24, b.size());
       return resealed(b);
     },
     kCorrupt, "does not follow from its counts"},
    {"HeadDigest",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       b[40] ^= std::byte{1};
       return b;
     },
     kCorrupt, "head does not match"},
    {"IdZero", field<uint64_t>(32, 0), kCorrupt, "conversation id 0"},
    {"PayloadAboveLimit", field<uint64_t>(104, limits::kMaxSessionBytes + 1), kCorrupt, "payload of"},
    {"NoTokens", field<uint32_t>(112, 0), kCorrupt, "token count 0"},
    {"TooManyTokens", field<uint32_t>(112, limits::kMaxTokens + 1), kCorrupt, "token count"},
    {"TokensPerBlockAboveLimit", field<uint32_t>(116, limits::kMaxTokens + 1), kCorrupt, "tokens per block"},
    {"TokensPerBlockZeroWithBlocks", field<uint32_t>(116, 0), kCorrupt, "blocks of 0 tokens"},
    {"NoStages", field<uint32_t>(120, 0), kCorrupt, "stage count 0"},
    {"TooManyStages", field<uint32_t>(120, limits::kMaxStages + 1), kCorrupt, "stage count"},
    {"TooManyMedia", field<uint32_t>(124, limits::kMaxMediaMarks + 1), kCorrupt, "media count"},
    {"NoFiles", field<uint32_t>(128, 0), kCorrupt, "file count 0"},
    {"TooManyFiles", field<uint32_t>(128, limits::kMaxFilesPerImage + 1), kCorrupt, "file count"},
    {"MoreFilesThanBytes", field<uint32_t>(128, 4000), kCorrupt, "do not fit the head"},
    {"BlockCount", field<uint32_t>(132, 5), kCorrupt, "5 blocks, 6 expected"},
    {"NothingStored",
     patched([](Bytes& b) { set<uint32_t>(b, 132, 0), set<uint32_t>(b, 136, 0), set<uint32_t>(b, 140, 0); }),
     kCorrupt, "neither blocks nor"},
    {"CheckpointCountAboveLimit", field<uint32_t>(136, limits::kMaxCheckpointsPerImage + 1), kCorrupt,
     "checkpoint count"},
    {"CheckpointsNotOfAllStages", field<uint32_t>(136, 3), kCorrupt, "3 checkpoints, 4 expected"},
    {"PositionCount", field<uint32_t>(140, 3), kCorrupt, "4 checkpoints, 6 expected"},
    {"ChainLength", field<uint32_t>(144, 2), kCorrupt, "prefix chain of 2 links, 3 expected"},
    {"TooManyIdentityFields", field<uint32_t>(148, limits::kMaxIdentityFields + 1), kCorrupt,
     "identity field count"},
    {"FewerIdentityFields", field<uint32_t>(148, 1), kCorrupt, "padding of the head"},
    {"LabelTooLong", field<uint32_t>(152, limits::kMaxLabelBytes + 1), kCorrupt, "label length"},
    {"LabelShorter", field<uint32_t>(152, 1), kCorrupt, "padding of the head"},
    {"ReservedOfHead", field<uint8_t>(191, 1), kCorrupt, "reserved bytes of the head"},
    {"FileIdZero", field<uint64_t>(kFilesAt + 16, 0), kCorrupt, "conversation id 0"},
    {"FileTwice", field<uint64_t>(kFilesAt + 16, testing::kSampleId.value), kCorrupt, "listed twice"},
    {"FileZeroNotOwn", field<uint64_t>(kFilesAt, 99), kCorrupt, "not the conversation's own"},
    {"FileShorterThanAHeader", field<uint64_t>(kFilesAt + 8, 4095), kCorrupt, "needs 4095 bytes"},
    {"InheritedFileUnused", field<uint64_t>(kFilesAt + 24, 0), kCorrupt, "needs 0 bytes"},
    {"FileAboveLimit", field<uint64_t>(kFilesAt + 8, limits::kMaxSessionBytes + 1), kCorrupt, "needs"},
    {"PositionZero", field<uint32_t>(kPositionsAt, 0), kCorrupt, "resume position 0"},
    {"PositionsDescend", field<uint32_t>(kPositionsAt, 600), kCorrupt, "resume position 600 after 600"},
    {"PositionPastTheEnd", field<uint32_t>(kPositionsAt + 4, 601), kCorrupt, "resume position 601"},
    {"IdentityNameEmpty", field<uint32_t>(kFieldsAt, 0), kCorrupt, "identity field 0"},
    {"IdentityNameAboveLimit", field<uint32_t>(kFieldsAt, limits::kMaxIdentityTextBytes + 1), kCorrupt,
     "identity field 0"},
    {"IdentityValueBeyondTheHead", field<uint32_t>(kFieldsAt + 4, 60000), kCorrupt, "identity field 0"},
};

const BrokenRule kBodyRules[] = {
    {"BodyDigest",
     [] {
       Bytes b = encode_manifest(sample_manifest());
       b[body_at(b)] ^= std::byte{1};
       return b;
     },
     kCorrupt, "body does not match"},
    {"NegativeToken", patched([](Bytes& b) { set<int32_t>(b, body_at(b), -1); }), kCorrupt, "negative token"},
    {"ChainNotOfTokens", patched([](Bytes& b) { set<int32_t>(b, body_at(b), 250); }), kCorrupt,
     "chain does not match the tokens"},
    {"ChainNotOfMedia", patched([](Bytes& b) { set<uint64_t>(b, media_at(b, 1) + 8, 1); }), kCorrupt,
     "chain does not match the tokens"},
    {"ChainOfAnotherSalt", field<uint64_t>(96, 1), kCorrupt, "chain does not match the tokens"},
    {"LastLinkOfChain", field<uint64_t>(kChainAt + 16, 1), kCorrupt, "chain does not match the tokens"},
    {"MediaPastTheEnd", patched([](Bytes& b) { set<uint64_t>(b, media_at(b, 1), 600); }), kCorrupt,
     "media mark at 600"},
    {"MediaOutOfOrder", patched([](Bytes& b) { set<uint64_t>(b, media_at(b, 1), 10); }), kCorrupt,
     "out of order"},
    {"BlockOfAnotherStage", part_field<uint16_t>(1, 0, 1), kCorrupt, "expected stage 0 tokens 256+256"},
    {"BlockGap", part_field<uint32_t>(1, 4, 300), kCorrupt, "expected stage 0 tokens 256+256"},
    {"BlockShort", part_field<uint32_t>(0, 8, 255), kCorrupt, "expected stage 0 tokens 0+256"},
    {"LastBlockTooLong", part_field<uint32_t>(2, 8, 256), kCorrupt, "expected stage 0 tokens 512+88"},
    {"BlockEmpty", part_field<uint64_t>(0, 24, 0), kCorrupt, "block of 0 bytes"},
    {"BlockAboveLimit", built([](Manifest& m) {
       m.head.files[0].needed_length = uint64_t{1} << 30;
       m.parts[2].length = limits::kMaxPartBytes + 1;
     }),
     kCorrupt, "block of 16777217 bytes"},
    {"PartReserved", part_field<uint32_t>(3, 12, 1), kCorrupt, "reserved field of a part"},
    {"PartFileUnknown", part_field<uint16_t>(4, 2, 2), kCorrupt, "part in file 2 of 2"},
    {"PartUnaligned", part_field<uint64_t>(1, 16, 4097), kCorrupt, "part at offset 4097"},
    {"PartInHeader", part_field<uint64_t>(1, 16, 0), kCorrupt, "part at offset 0"},
    {"PartPastItsFile", part_field<uint64_t>(9, 16, 61440), kCorrupt, "reaches past"},
    {"PartOffsetOverflow", part_field<uint64_t>(9, 16, ~uint64_t{4095}), kCorrupt, "reaches past"},
    {"PartLengthOverflow", part_field<uint64_t>(9, 24, ~uint64_t{0}), kCorrupt, "reaches past"},
    {"PartsOverlap", part_field<uint64_t>(4, 16, 8192), kCorrupt, "overlap at offset 8192"},
    {"PartsOverlapByTheirPadding", part_field<uint64_t>(9, 16, 36864), kCorrupt, "overlap at offset 36864"},
    {"PayloadSum", field<uint64_t>(104, 1), kCorrupt, "the head says 1"},
    {"CheckpointOfAnotherStage", part_field<uint16_t>(6, 0, 1), kCorrupt, "expected stage 0 position 256"},
    {"CheckpointOfAnotherPosition", part_field<uint32_t>(7, 4, 257), kCorrupt,
     "expected stage 1 position 256"},
    {"CheckpointKindUnknown", part_field<uint32_t>(6, 8, 3), kCorrupt, "checkpoint of kind 3"},
    {"CheckpointKindBlock", part_field<uint32_t>(6, 8, 0), kCorrupt, "checkpoint of kind 0"},
    {"LiveStateBeforeTheEnd", part_field<uint32_t>(6, 8, 1), kCorrupt, "live state at 256"},
    {"StagesDisagree", part_field<uint32_t>(9, 8, 2), kCorrupt, "stages disagree"},
    {"CheckpointAboveLimit", built([](Manifest& m) {
       m.head.files[0].needed_length = uint64_t{1} << 40;
       m.parts[9].length = limits::kMaxCheckpointBytes + 1;
     }),
     kCorrupt, "checkpoint of 4294967297 bytes"},
    {"PaddingOfBody",
     [] {
       Manifest m = sample_manifest();
       m.tokens.pop_back();  // an odd number of tokens leaves four bytes of padding
       for (ManifestPart& part : m.parts) {
         if (part.first == 512) part.count = 87;
         if (part.kind == PartKind::live) part.first = 599;
       }
       Bytes b = encode_manifest(m);
       b[b.size() - kDigestBytes - 1] = std::byte{1};
       return resealed(b);
     },
     kCorrupt, "padding of the body"},
    {"WithoutBlocksNoStateAtTheEnd",
     [] {
       Manifest m = sample_manifest_without_blocks();
       for (ManifestPart& part : m.parts) part.first = 599;
       return encode_manifest(m);
     },
     kCorrupt, "no state at the end"},
    {"WithoutBlocksNoLiveState",
     [] {
       Manifest m = sample_manifest_without_blocks();
       for (ManifestPart& part : m.parts) part.kind = PartKind::checkpoint;
       return encode_manifest(m);
     },
     kCorrupt, "no live state"},
};

std::string rule_name(const ::testing::TestParamInfo<BrokenRule>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Head, ManifestRule, ::testing::ValuesIn(kHeadRules), rule_name);
INSTANTIATE_TEST_SUITE_P(Body, ManifestRule, ::testing::ValuesIn(kBodyRules), rule_name);

TEST(Manifest, FileNames) {
  EXPECT_EQ(index_file_name(testing::kSampleId), "conv-0123456789abcdef.idx");
  EXPECT_EQ(session_file_name(testing::kSampleId), "conv-0123456789abcdef.sess");
  EXPECT_EQ(parse_conversation_file_name("conv-0123456789abcdef.idx", "idx")->value,
            testing::kSampleId.value);
  EXPECT_EQ(parse_conversation_file_name("conv-0123456789abcdef.sess", "sess")->value,
            testing::kSampleId.value);
  for (const char* name :
       {"", "conv-0123456789abcdef", "conv-0123456789abcdef.sess", "conv-0123456789ABCDEF.idx",
        "conv-0123456789abcde.idx", "conv-0123456789abcdef0.idx", "conv-0123456789abcdef.idx.tmp",
        "conv-0000000000000000.idx", "xonv-0123456789abcdef.idx", "conv-0123456789abcdefxidx"})
    EXPECT_FALSE(parse_conversation_file_name(name, "idx")) << name;
}

}  // namespace
}  // namespace strata
