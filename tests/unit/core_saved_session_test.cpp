// The file of a session saved by name (SES-7): the same bytes as an exported one, and limits before
// allocations.
#include "core/saved_session.hpp"

#include <gtest/gtest.h>

#include "core/digest.hpp"
#include "core/session_export.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/stored_builder.hpp"

namespace strata {
namespace {

using testing::FakeFileSystem;

const std::string kTarget = "/out/chat.sess";

class SavedFile : public ::testing::Test {
 protected:
  SavedFile() {
    EXPECT_TRUE(files_.create_directory("/out"));
    EXPECT_TRUE(files_.create_directory(testing::kStoreFolder));
    testing::write_small_pair(files_);
    EXPECT_TRUE(export_stored(files_, random_,
                              {testing::kStoreFolder, "conv-00000000000000b2.idx", "/out/exported", false},
                              [](uint64_t) {}));
  }

  // What the exported file holds, written again piece by piece.
  Status write_again() {
    const std::vector<std::byte> exported = files_.get("/out/exported");
    const auto header = decode_session_header(std::span(exported).first(limits::kSessionHeaderBytes));
    const auto trailer = decode_session_trailer(std::span(exported).last(kSessionTrailerBytes));
    const auto manifest = decode_manifest(
        std::span(exported).subspan(trailer->manifest_offset, trailer->manifest_length), ManifestLimits{});
    SavedFileWriter writer(files_, {kTarget, "/out/.strata-1.tmp", *header, exported.size() + 10'000, 0});
    STRATA_TRY(writer.prepare());
    for (const ManifestPart& part : manifest->parts)
      STRATA_TRY(writer.write(std::span(exported).subspan(part.offset, part.length), part.offset));
    STRATA_TRY(writer.finish(*manifest, trailer->manifest_offset));
    STRATA_TRY(writer.flush());
    STRATA_TRY(writer.publish());
    EXPECT_EQ(writer.file_bytes(), exported.size());
    return {};
  }
  SavedLimits limits_of_sample() {
    const auto exported = files_.get("/out/exported");
    const auto header = decode_session_header(std::span(exported).first(limits::kSessionHeaderBytes));
    SavedLimits limits;
    limits.identity = {header->model_identity, header->configuration_identity, {}};
    limits.stage_count = header->stage_count;
    limits.tokens_per_block = header->tokens_per_block;
    limits.max_tokens = 120;
    limits.max_payload_bytes = 90;
    limits.max_parts = 3;
    return limits;
  }

  FakeFileSystem files_;
  testing::FakeRandom random_;
};

TEST_F(SavedFile, SES7_GoldenBytes) {
  const Status written = write_again();
  ASSERT_TRUE(written.ok()) << written.error().message;
  testing::expect_golden("session_saved_v1.hex", testing::hex_dump(files_.get(kTarget)));
}

TEST_F(SavedFile, SES3_WhatFitsIsReadAndVerified) {
  SavedFileReader reader(files_, "/out/exported", limits_of_sample());
  const Status opened = reader.open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(reader.manifest().tokens.size(), 120u);
  std::atomic<bool> stop{false};
  EXPECT_TRUE(reader.verify(stop).ok());
  stop = true;
  EXPECT_EQ(reader.verify(stop).error().code, ErrorCode::cancelled);
}

TEST_F(SavedFile, SES3_EachLimitAndEachDifferenceRefuses) {
  const std::vector<void (*)(SavedLimits&)> changes = {
      [](SavedLimits& limits) { limits.max_tokens = 119; },
      [](SavedLimits& limits) { limits.max_payload_bytes = 89; },
      [](SavedLimits& limits) { limits.stage_count = 2; },
      [](SavedLimits& limits) { limits.tokens_per_block += 1; },
      [](SavedLimits& limits) { limits.identity.model.low ^= 1; },
      [](SavedLimits& limits) { limits.identity.configuration.high ^= 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SavedLimits limits = limits_of_sample();
    changes[i](limits);
    SavedFileReader reader(files_, "/out/exported", limits);
    EXPECT_FALSE(reader.open().ok()) << i;
  }
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(SavedFile, SES3_AFileLongerThanTheSessionCanHoldIsNotEvenRead) {
  testing::FaultyFileSystem counting(files_);
  std::vector<std::byte> huge(1);
  files_.put("/out/huge.sess", huge);
  const auto handle = files_.open("/out/huge.sess", OpenMode::read_write, Caching::buffered);
  ASSERT_TRUE(files_.write_at(*handle, huge, limits::kMaxSessionBytes));
  files_.close(*handle);
  SavedFileReader reader(counting, "/out/huge.sess", limits_of_sample());
  EXPECT_EQ(reader.open().error().code, ErrorCode::invalid);
  EXPECT_EQ(counting.calls(testing::FileCall::read), 0u);
}

}  // namespace
}  // namespace strata
