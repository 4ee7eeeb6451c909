#include "tests/support/stored_conversation.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/digest.hpp"
#include "core/limits.hpp"

namespace strata::testing {
namespace {

constexpr auto kPage = std::align_val_t{limits::kAlignment};

class OwnBuffer final : public HostBuffer {
 public:
  explicit OwnBuffer(uint64_t size) : memory_(static_cast<std::byte*>(::operator new(size, kPage)), size) {
    std::memset(memory_.data(), 0, size);
  }
  ~OwnBuffer() override { ::operator delete(memory_.data(), kPage); }
  OwnBuffer(const OwnBuffer&) = delete;
  OwnBuffer& operator=(const OwnBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const override { return memory_; }

 private:
  std::span<std::byte> memory_;
};

HostBufferRef filled_buffer(const ConversationShape& shape, const ManifestPart& part) {
  HostBufferRef buffer = make_buffer(part.length);
  const uint64_t seed = shape.id.value * 1'000'003 + shape.generation * 7919 + part.stage * 131 + part.first +
                        static_cast<uint64_t>(part.kind);
  for (uint64_t i = 0; i < part.length; ++i) {
    buffer->bytes()[i] = static_cast<std::byte>((seed * 31 + i * 0x9E3779B9u) >> 8);
  }
  return buffer;
}

std::vector<Token> tokens_of(const ConversationShape& shape) {
  std::vector<Token> tokens(shape.tokens);
  for (uint32_t i = 0; i < shape.tokens; ++i)
    tokens[i] = static_cast<Token>(shape.id.value * 17 + i * i % 1009);
  return tokens;
}

// All parts in the manifest's order, without places.
std::vector<ManifestPart> parts_of(const ConversationShape& shape) {
  std::vector<ManifestPart> parts;
  for (StageId stage = 0; stage < shape.stages; ++stage) {
    for (uint32_t first = 0; first < shape.tokens; first += shape.tokens_per_block) {
      const uint32_t count = std::min(shape.tokens_per_block, shape.tokens - first);
      const uint64_t length = std::max<uint64_t>(1, shape.block_bytes * count / shape.tokens_per_block);
      parts.push_back({PartKind::block, stage, 0, first, count, 0, length, {}});
    }
  }
  for (StageId stage = 0; stage < shape.stages; ++stage) {
    parts.push_back({PartKind::live, stage, 0, shape.tokens, 0, 0, shape.live_bytes, {}});
  }
  return parts;
}

ManifestHead head_of(const ConversationShape& shape) {
  ManifestHead head;
  head.flags = shape.ephemeral ? static_cast<uint32_t>(kManifestEphemeral) : 0u;
  head.id = shape.id;
  head.generation = shape.generation;
  head.model_identity = shape.model_identity;
  head.configuration_identity = shape.configuration_identity;
  head.identity_fields = shape.identity_fields;
  head.created_ns = shape.created_ns;
  head.last_used_ns = shape.last_used_ns;
  head.salt = shape.salt;
  head.tokens_per_block = shape.tokens_per_block;
  head.stage_count = shape.stages;
  return head;
}

// Gives every part that `before` does not hold a place from `offset` on, and writes it.
PublishJob publication(const ConversationShape& shape, uint64_t offset,
                       const std::vector<ManifestPart>& before) {
  PublishJob job;
  job.id = shape.id;
  job.header.flags = shape.ephemeral ? static_cast<uint32_t>(kSessionEphemeral) : 0u;
  job.header.stage_count = shape.stages;
  job.header.id = shape.id;
  job.header.created_ns = shape.created_ns;
  job.header.model_identity = shape.model_identity;
  job.header.configuration_identity = shape.configuration_identity;
  job.header.tokens_per_block = shape.tokens_per_block;
  job.manifest.head = head_of(shape);
  job.manifest.tokens = tokens_of(shape);
  job.manifest.parts = parts_of(shape);
  for (size_t i = 0; i < job.manifest.parts.size(); ++i) {
    ManifestPart& part = job.manifest.parts[i];
    const auto same = std::find_if(before.begin(), before.end(), [&](const ManifestPart& old) {
      return old.kind == PartKind::block && part.kind == PartKind::block && old.stage == part.stage &&
             old.first == part.first && old.count == part.count;
    });
    if (same != before.end()) {
      part = *same;
      continue;
    }
    part.offset = offset;
    offset += align_up(part.length, limits::kAlignment);
    job.writes.push_back({filled_buffer(shape, part),
                          {shape.id, part.stage, part.first, part.kind},
                          part.length,
                          part.offset,
                          i});
  }
  job.file_length = offset;
  job.manifest.head.files = {{shape.id, offset}};
  return job;
}

Status check_part(FileSystem& files, const std::string& folder, const Manifest& manifest,
                  const ManifestPart& part) {
  const ConversationId file = manifest.head.files[part.file].id;
  STRATA_ASSIGN(const std::vector<std::byte> bytes,
                read_whole(files, folder + "/" + session_file_name(file)));
  if (part.offset + part.length > bytes.size()) return make_error(ErrorCode::corrupt, "part behind the end");
  const auto payload = std::span(bytes).subspan(part.offset, part.length);
  if (digest_part({file, part.stage, part.first, part.kind}, payload) != part.digest) {
    return make_error(ErrorCode::corrupt, "digest of the part at " + std::to_string(part.offset));
  }
  return {};
}

}  // namespace

HostBufferRef make_buffer(uint64_t payload_bytes) {
  return std::make_shared<OwnBuffer>(
      std::max(limits::kAlignment, align_up(payload_bytes, limits::kAlignment)));
}

PublishJob first_publication(const ConversationShape& shape) {
  PublishJob job = publication(shape, limits::kSessionHeaderBytes, {});
  job.create_file = true;
  return job;
}

PublishJob next_publication(const ConversationShape& shape, const Manifest& before) {
  return publication(shape, before.head.files[0].needed_length, before.parts);
}

WriteJobRef make_job(JobId id, const std::string& folder, WriteWork work) {
  return std::make_shared<const WriteJob>(WriteJob{id, folder, std::move(work)});
}

Result<std::vector<std::byte>> read_whole(FileSystem& files, const std::string& path) {
  STRATA_ASSIGN(const FileHandle file, files.open(path, OpenMode::read, Caching::buffered));
  const auto info = files.info(file);
  std::vector<std::byte> bytes(info.ok() ? info->size_bytes : 0);
  const auto got = files.read_at(file, bytes, 0);
  files.close(file);
  if (!info.ok()) return info.error();
  if (!got.ok()) return got.error();
  bytes.resize(*got);
  return bytes;
}

Status check_stored_part(FileSystem& files, const std::string& folder, const Manifest& manifest,
                         const ManifestPart& part) {
  return check_part(files, folder, manifest, part);
}

Result<Manifest> read_published(FileSystem& files, const std::string& folder, ConversationId id) {
  STRATA_ASSIGN(const std::vector<std::byte> bytes, read_whole(files, folder + "/" + index_file_name(id)));
  STRATA_ASSIGN(Manifest manifest, decode_manifest(bytes, {}));
  for (const ManifestPart& part : manifest.parts) STRATA_TRY(check_part(files, folder, manifest, part));
  return manifest;
}

}  // namespace strata::testing
