// One conversation as stored, with everything a manifest can hold: two stages, an inherited file, media,
// checkpoints, live state, identity fields and a label. Used by the format tests and to make seeds for the
// fuzz targets.
#pragma once

#include <algorithm>

#include "core/manifest.hpp"

namespace strata::testing {

inline constexpr uint32_t kSampleTokens = 600;
inline constexpr uint32_t kSampleBlockTokens = 256;
inline constexpr uint32_t kSampleStages = 2;
inline constexpr ConversationId kSampleId{0x0123456789abcdef};
inline constexpr ConversationId kSampleParent{0x00000000000000aa};

inline ManifestPart sample_part(PartKind kind, StageId stage, uint16_t file, uint32_t first, uint32_t count,
                                uint64_t offset, uint64_t length) {
  return ManifestPart{kind, stage, file, first, count, offset, length, Digest{offset + stage, offset * 3}};
}

inline Manifest sample_manifest() {
  Manifest manifest;
  ManifestHead& head = manifest.head;
  head.id = kSampleId;
  head.generation = 7;
  head.model_identity = {0x1111, 0x2222};
  head.configuration_identity = {0x3333, 0x4444};
  head.created_ns = 1'700'000'000'000'000'000;
  head.last_used_ns = 1'700'000'100'000'000'000;
  head.salt = 0x5a17;
  head.tokens_per_block = kSampleBlockTokens;
  head.stage_count = kSampleStages;
  head.files = {{kSampleId, 65536}, {kSampleParent, 32768}};
  head.identity_fields = {{"state_version", "reference-1"}, {"kv_type", "f32"}};
  head.label = "main agent";
  for (uint32_t i = 0; i < kSampleTokens; ++i) manifest.tokens.push_back(static_cast<Token>(i * 7 % 251));
  manifest.media = {{10, 0xabc}, {300, 0xdef}};
  for (StageId stage = 0; stage < kSampleStages; ++stage) {
    const uint64_t own = 4096 + stage * 8192ULL;
    manifest.parts.push_back(sample_part(PartKind::block, stage, 1, 0, 256, 4096 + stage * 4096ULL, 4096));
    manifest.parts.push_back(sample_part(PartKind::block, stage, 0, 256, 256, own, 4096));
    manifest.parts.push_back(sample_part(PartKind::block, stage, 0, 512, 88, own + 4096, 1408));
  }
  for (StageId stage = 0; stage < kSampleStages; ++stage)
    manifest.parts.push_back(
        sample_part(PartKind::checkpoint, stage, 1, 256, 0, 16384 + stage * 4096ULL, 100));
  for (StageId stage = 0; stage < kSampleStages; ++stage)
    manifest.parts.push_back(sample_part(PartKind::live, stage, 0, 600, 0, 32768 + stage * 8192ULL, 5000));
  complete_head(manifest);
  return manifest;
}

// State that is not cut into blocks: one live state per stage.
inline Manifest sample_manifest_without_blocks() {
  Manifest manifest = sample_manifest();
  manifest.head.tokens_per_block = 0;
  std::erase_if(manifest.parts, [](const ManifestPart& part) { return part.kind != PartKind::live; });
  complete_head(manifest);
  return manifest;
}

}  // namespace strata::testing
