// Conversations for tests of what lies on disk: jobs that publish them, and the check that what an index
// refers to is really there. Their bytes follow from (id, generation, place), so that a mix shows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/image.hpp"
#include "core/manifest.hpp"
#include "tiers/disk_writer.hpp"

namespace strata::testing {

// A buffer of its own, page-aligned.
HostBufferRef make_buffer(uint64_t payload_bytes);

struct ConversationShape {
  ConversationId id{1};
  uint64_t generation = 1;
  uint32_t tokens = 600;
  uint32_t stages = 1;
  uint32_t tokens_per_block = 256;
  uint64_t block_bytes = 5000;  // of a full block
  uint64_t live_bytes = 3 * 4096 + 17;
  uint64_t salt = 0;
  Digest model_identity{1, 2};
  Digest configuration_identity{3, 4};
  std::vector<IdentityField> identity_fields{{"kv_type", "f16"}};
  uint64_t created_ns = 1'700'000'000'000'000'000;
  uint64_t last_used_ns = 1'700'000'000'000'000'000;
  bool ephemeral = false;
};

// The whole conversation into a new file.
PublishJob first_publication(const ConversationShape& shape);
// `shape` is the conversation later: full blocks of `before` stay, the rest is written behind the old file's
// end.
PublishJob next_publication(const ConversationShape& shape, const Manifest& before);

WriteJobRef make_job(JobId id, const std::string& folder, WriteWork work);

// Reads the index and everything it refers to. not_found: no index; corrupt: anything that does not fit.
// Its bytes are there and match its digest.
Status check_stored_part(FileSystem& files, const std::string& folder, const Manifest& manifest,
                         const ManifestPart& part);
Result<Manifest> read_published(FileSystem& files, const std::string& folder, ConversationId id);
// The whole content of a small file.
Result<std::vector<std::byte>> read_whole(FileSystem& files, const std::string& path);

}  // namespace strata::testing
