// Two conversations as they lie in a folder, the second grown from the first (a block is shared), and a
// session saved by name. Small, but the parent's live state is larger than one piece of a reader.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"
#include "core/session_file.hpp"
#include "tests/support/fake_file_system.hpp"

namespace strata::testing {

using StoredBytes = std::vector<std::byte>;

inline constexpr ConversationId kStoredParent{0xa1};
inline constexpr ConversationId kStoredChild{0xb2};
inline const std::string kStoreFolder = "/store";

inline StoredBytes stored_payload(uint64_t length, uint64_t seed) {
  StoredBytes bytes(length);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + seed);
  return bytes;
}

// Builds .sess files and the indexes over them.
struct StoredBuilder {
  Manifest manifest;
  StoredBytes data;  // of the own file

  explicit StoredBuilder(ConversationId id, uint64_t last_used_ns) {
    ManifestHead& head = manifest.head;
    head.id = id;
    head.generation = 1;
    head.model_identity = {1, 2};
    head.configuration_identity = {3, 4};
    head.last_used_ns = last_used_ns;
    head.tokens_per_block = 100;
    head.stage_count = 1;
    head.files = {{id, 0}};
    SessionHeader header;
    header.id = id;
    header.stage_count = 1;
    header.model_identity = head.model_identity;
    header.configuration_identity = head.configuration_identity;
    header.tokens_per_block = 100;
    const auto bytes = encode_session_header(header);
    data.assign(bytes.begin(), bytes.end());
  }

  void add(PartKind kind, uint32_t first, uint32_t count, uint64_t length) {
    ManifestPart part{kind, 0, 0, first, count, data.size(), length, {}};
    const StoredBytes bytes = stored_payload(length, manifest.head.id.value + first);
    part.digest = digest_part({manifest.head.id, 0, first, kind}, bytes);
    data.insert(data.end(), bytes.begin(), bytes.end());
    data.resize(align_up(data.size(), limits::kAlignment));
    manifest.head.files[0].needed_length = data.size();
    manifest.parts.push_back(part);
  }
  void inherit(const StoredBuilder& parent, size_t part_index) {
    ManifestPart part = parent.manifest.parts[part_index];
    part.file = 1;
    manifest.head.files.resize(1);
    manifest.head.files.push_back(parent.manifest.head.files[0]);
    manifest.parts.push_back(part);
  }
  void tokens(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) manifest.tokens.push_back(static_cast<Token>(i));
  }
  [[nodiscard]] std::string index_path() const {
    return kStoreFolder + "/" + index_file_name(manifest.head.id);
  }
  [[nodiscard]] std::string data_path() const {
    return kStoreFolder + "/" + session_file_name(manifest.head.id);
  }
  void write(FakeFileSystem& files) const {
    files.put(data_path(), data);
    files.put(index_path(), encode_manifest(manifest));
  }
};

inline StoredBuilder stored_parent() {
  StoredBuilder builder(kStoredParent, 1000);
  builder.tokens(150);
  builder.manifest.head.label = "main";
  builder.add(PartKind::block, 0, 100, 9000);
  builder.add(PartKind::block, 100, 50, 4500);
  builder.add(PartKind::live, 150, 0, 5'000'000);  // more than one piece
  return builder;
}

inline StoredBuilder stored_child(const StoredBuilder& from) {
  StoredBuilder builder(kStoredChild, 2000);
  builder.tokens(120);
  builder.inherit(from, 0);
  builder.add(PartKind::block, 100, 20, 1800);
  builder.add(PartKind::live, 120, 0, 3000);
  return builder;
}

// Two conversations of a few bytes, one with a part of the other: what the golden files are made of.
inline void write_small_pair(FakeFileSystem& files) {
  StoredBuilder origin(kStoredParent, 1000);
  origin.tokens(100);
  origin.add(PartKind::block, 0, 100, 40);
  origin.write(files);
  StoredBuilder small(kStoredChild, 2000);
  small.tokens(120);
  small.manifest.head.label = "sub agent";
  small.inherit(origin, 0);
  small.add(PartKind::block, 100, 20, 30);
  small.add(PartKind::live, 120, 0, 20);
  small.write(files);
}

// A session saved by name.
inline StoredBytes self_contained_session() {
  StoredBuilder builder = stored_parent();
  SessionHeader header = *decode_session_header(builder.data);
  header.flags = kSessionSelfContained;
  const auto header_bytes = encode_session_header(header);
  std::copy(header_bytes.begin(), header_bytes.end(), builder.data.begin());
  const StoredBytes manifest = encode_manifest(builder.manifest);
  const SessionTrailer trailer{builder.data.size(), manifest.size(), digest_bytes(manifest)};
  builder.data.insert(builder.data.end(), manifest.begin(), manifest.end());
  const auto trailer_bytes = encode_session_trailer(trailer);
  builder.data.insert(builder.data.end(), trailer_bytes.begin(), trailer_bytes.end());
  return builder.data;
}

}  // namespace strata::testing
