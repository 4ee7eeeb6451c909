#include "tiers/publication.hpp"

#include <algorithm>
#include <map>

#include "core/limits.hpp"

namespace strata {

std::vector<PartRef> parts_to_publish(const Image& image, uint32_t stages) {
  std::map<uint32_t, uint32_t> at_hand;  // position → stages
  for (const PartRef& part : image.parts) {
    const bool there = part->ram || part->disk || part->first == image.length();
    if (!part->is_block() && there) ++at_hand[part->first];
  }
  std::vector<PartRef> parts;
  for (const PartRef& part : image.parts) {
    if (part->is_block() || at_hand[part->first] == stages) parts.push_back(part);
  }
  return parts;
}

uint64_t extent_bytes(const Part& part) { return align_up(part.bytes, limits::kAlignment); }

uint64_t index_bytes_bound(const Image& image, const Identity& identity) {
  uint64_t bytes = 2 * limits::kAlignment + image.tokens.size() * sizeof(Token) + image.label.size();
  bytes += (image.tokens.size() / limits::kPrefixChunkTokens + 1) * 8 + image.media.size() * 16;
  bytes += image.parts.size() * 80;  // the part, a file and a resume position at most
  for (const IdentityField& field : identity.fields) bytes += field.name.size() + field.value.size() + 16;
  return align_up(bytes, limits::kAlignment);
}

SessionHeader session_header_of(const Image& image, const PublicationRules& rules) {
  SessionHeader header;
  header.flags = rules.ephemeral ? static_cast<uint32_t>(kSessionEphemeral) : 0u;
  header.stage_count = rules.stage_count;
  header.id = image.id;
  header.created_ns = image.created_ns;
  header.model_identity = rules.identity.model;
  header.configuration_identity = rules.identity.configuration;
  header.tokens_per_block = rules.tokens_per_block;
  return header;
}

namespace {

ManifestHead head_of(const Image& image, const PublicationRules& rules) {
  ManifestHead head;
  head.flags = rules.ephemeral ? static_cast<uint32_t>(kManifestEphemeral) : 0u;
  head.id = image.id;
  head.generation = image.generation;
  head.model_identity = rules.identity.model;
  head.configuration_identity = rules.identity.configuration;
  head.identity_fields = rules.identity.fields;
  head.created_ns = image.created_ns;
  head.last_used_ns = image.last_used_ns;
  head.salt = image.salt;
  head.label = image.label;
  head.tokens_per_block = rules.tokens_per_block;
  head.stage_count = rules.stage_count;
  return head;
}

// Which of the manifest's files the extent lies in; that file must be long enough for it.
uint16_t file_of(const Extent& extent, std::vector<ManifestFile>& files) {
  auto file = std::find_if(files.begin(), files.end(),
                           [&](const ManifestFile& known) { return known.id == extent.file; });
  if (file == files.end()) file = files.insert(files.end(), ManifestFile{extent.file, 0});
  file->needed_length =
      std::max(file->needed_length, extent.offset + align_up(extent.length, limits::kAlignment));
  return static_cast<uint16_t>(file - files.begin());
}

}  // namespace

Manifest manifest_of(const Image& image, const std::vector<PartRef>& parts,
                     const std::unordered_map<const Part*, Extent>& written, uint64_t own_bytes,
                     const PublicationRules& rules) {
  Manifest manifest;
  manifest.head = head_of(image, rules);
  manifest.head.files.push_back({image.id, own_bytes});
  manifest.tokens = image.tokens;
  manifest.media = image.media;
  for (const PartRef& part : parts) {
    const auto new_one = written.find(part.get());
    const Extent& extent = new_one != written.end() ? new_one->second : *part->disk;
    const bool live = !part->is_block() && part->first == image.length();
    manifest.parts.push_back(ManifestPart{live ? PartKind::live : part->kind, part->stage,
                                          file_of(extent, manifest.head.files), part->first, part->count,
                                          extent.offset, extent.length, extent.digest});
  }
  complete_head(manifest);
  return manifest;
}

}  // namespace strata
