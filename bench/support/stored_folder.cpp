#include "bench/support/stored_folder.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"

namespace strata::bench {
namespace {

constexpr uint32_t kTokens = 200'000;
constexpr uint64_t kSessionBytes = limits::kGiB;

// One conversation's index and session file; only what intake reads is written.
uint64_t store(FileSystem& files, const std::string& folder, ConversationId id, Manifest& manifest) {
  manifest.head.id = id;
  manifest.head.files = {{id, kSessionBytes}};
  manifest.head.last_used_ns = id.value;
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  const auto sizes = peek_manifest(bytes);
  const auto index =
      files.open(folder + "/" + index_file_name(id), OpenMode::create_exclusive, Caching::buffered);
  STRATA_CHECK(sizes.ok() && index.ok());
  STRATA_CHECK(files.write_at(*index, std::span(bytes).first(sizes->head_bytes), 0).ok());
  STRATA_CHECK(files.truncate(*index, sizes->total_bytes).ok());
  files.close(*index);
  STRATA_CHECK(files.set_modified(folder + "/" + index_file_name(id), static_cast<int64_t>(id.value)).ok());
  const auto session =
      files.open(folder + "/" + session_file_name(id), OpenMode::create_exclusive, Caching::buffered);
  STRATA_CHECK(session.ok() && files.truncate(*session, kSessionBytes).ok());
  files.close(*session);
  return sizes->head_bytes;
}

Manifest sample() {
  Manifest manifest;
  manifest.head.stage_count = 1;
  manifest.head.tokens_per_block = 1024;
  std::mt19937 random(1);
  for (uint32_t i = 0; i < kTokens; ++i) manifest.tokens.push_back(static_cast<Token>(random() % 150'000));
  for (uint32_t first = 0; first < kTokens; first += 1024) {
    const uint32_t count = std::min(1024u, kTokens - first);
    manifest.parts.push_back(
        {PartKind::block, 0, 0, first, count, limits::kSessionHeaderBytes + first * 4096ull, 4096, {}});
  }
  return manifest;
}

}  // namespace

StoredFolder::StoredFolder(const std::string& parent, uint32_t conversations)
    : path_(parent + "/strata-intake-bench-XXXXXX") {
  STRATA_CHECK(::mkdtemp(path_.data()) != nullptr);
  Manifest manifest = sample();
  for (uint32_t i = 1; i <= conversations; ++i)
    head_bytes_ = store(files_, path_, ConversationId{i}, manifest);
}

StoredFolder::~StoredFolder() {
  const auto names = files_.list(path_);
  for (const std::string& name : *names) (void)files_.unlink(path_ + "/" + name);
  ::rmdir(path_.c_str());
}

double proc_value(const char* file, const char* format) {
  std::FILE* stream = std::fopen(file, "r");
  if (stream == nullptr) return 0;
  char line[256];
  double value = 0;
  while (std::fgets(line, sizeof line, stream) != nullptr && std::sscanf(line, format, &value) != 1) {
  }
  std::fclose(stream);
  return value;
}

}  // namespace strata::bench
