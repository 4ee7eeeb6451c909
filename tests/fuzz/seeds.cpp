// Writes the hand-made seeds of the corpora: strata_fuzz_seeds tests/fuzz/corpus
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/digest.hpp"
#include "core/session_file.hpp"
#include "tests/support/sample_manifest.hpp"

namespace {

using strata::Manifest;
using Bytes = std::vector<std::byte>;

void write(const std::filesystem::path& path, const Bytes& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Small, so that a fuzzer changes something that matters.
Manifest small_manifest() {
  Manifest manifest = strata::testing::sample_manifest();
  manifest.tokens.resize(20);
  manifest.media = {{3, 0xabc}};
  manifest.head.tokens_per_block = 16;
  for (strata::ManifestPart& part : manifest.parts) {
    if (part.kind == strata::PartKind::block && part.first == 256) part.first = 16, part.count = 4;
    if (part.kind == strata::PartKind::checkpoint) part.first = 16;
    if (part.kind == strata::PartKind::live) part.first = 20;
    if (part.kind == strata::PartKind::block && part.first == 0) part.count = 16;
  }
  std::erase_if(manifest.parts, [](const strata::ManifestPart& part) { return part.first == 512; });
  return manifest;
}

// One stage, one block and a live state, self-contained.
Bytes saved_session() {
  Manifest manifest;
  manifest.head.id = strata::testing::kSampleId;
  manifest.head.tokens_per_block = 16;
  manifest.head.stage_count = 1;
  manifest.head.files = {{strata::testing::kSampleId, 12288}};
  manifest.tokens = {1, 2, 3};
  strata::SessionHeader header;
  header.flags = strata::kSessionSelfContained;
  header.stage_count = 1;
  header.id = manifest.head.id;
  header.tokens_per_block = 16;
  const auto header_bytes = strata::encode_session_header(header);
  Bytes bytes(header_bytes.begin(), header_bytes.end());
  bytes.resize(12288);
  const std::span<const std::byte> all(bytes);
  for (const auto& [kind, first, count, offset] : {std::tuple{strata::PartKind::block, 0u, 3u, 4096u},
                                                   std::tuple{strata::PartKind::live, 3u, 0u, 8192u}}) {
    strata::ManifestPart part{kind, 0, 0, first, count, offset, 10, {}};
    part.digest = strata::digest_part({manifest.head.id, 0, first, kind}, all.subspan(offset, 10));
    manifest.parts.push_back(part);
  }
  const Bytes index = strata::encode_manifest(manifest);
  const auto trailer =
      strata::encode_session_trailer({bytes.size(), index.size(), strata::digest_bytes(index)});
  bytes.insert(bytes.end(), index.begin(), index.end());
  bytes.insert(bytes.end(), trailer.begin(), trailer.end());
  return bytes;
}

// The golden lines of the protocol, one seed each.
void write_lines(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::ifstream file(from);
  std::string line;
  for (int i = 0; std::getline(file, line); ++i) {
    const auto bytes = std::as_bytes(std::span(line));
    write(to / (from.stem().string() + "-" + std::to_string(i)), Bytes(bytes.begin(), bytes.end()));
  }
}

Bytes changed(Bytes bytes, size_t at) {
  bytes[at] ^= std::byte{0x55};
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: strata_fuzz_seeds DIR\n");
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  const Bytes index = strata::encode_manifest(small_manifest());
  write(corpus / "index/small", index);
  write(corpus / "index/sample", strata::encode_manifest(strata::testing::sample_manifest()));
  write(corpus / "index/without_blocks",
        strata::encode_manifest(strata::testing::sample_manifest_without_blocks()));
  for (const size_t at : {0u, 8u, 16u, 24u, 112u, 116u, 120u, 128u, 132u, 136u, 144u, 148u, 152u})
    write(corpus / ("index/field_" + std::to_string(at)), changed(index, at));
  write(corpus / "index/cut", Bytes(index.begin(), index.begin() + 300));

  const Bytes saved = saved_session();
  write(corpus / "session/saved", saved);
  write(corpus / "session/header_alone", Bytes(saved.begin(), saved.begin() + 4096));
  write(corpus / "session/trailer_alone", Bytes(saved.end() - 64, saved.end()));
  write(corpus / "session/cut", Bytes(saved.begin(), saved.end() - 1));
  for (const size_t at : {8u, 12u, 16u, 20u, 24u, 72u, 76u, 100u, 5000u, 4096u, 12288u, 12400u})
    write(corpus / ("session/byte_" + std::to_string(at)), changed(saved, at));
  for (const size_t back : {64u, 56u, 48u, 32u, 1u, 80u})
    write(corpus / ("session/from_end_" + std::to_string(back)), changed(saved, saved.size() - back));

  const std::filesystem::path golden = corpus.parent_path().parent_path() / "golden";
  write_lines(golden / "commands.txt", corpus / "lines");
  write_lines(golden / "events.txt", corpus / "lines");
  return 0;
}
