// What one conversation's publication consists of: which of its parts, where they lie, and the manifest and
// header that say so. Pure functions, thread-safe. Units: bytes.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/identity.hpp"
#include "core/image.hpp"
#include "core/manifest.hpp"
#include "core/session_file.hpp"

namespace strata {

struct PublicationRules {
  bool ephemeral = false;  // bound to one run
  Identity identity;
  uint32_t stage_count = 1;
  uint32_t tokens_per_block = 0;
};

// What of an image is written: a checkpoint of which a stage's only copy is gone is left out, with all its
// stages, and the conversation goes on without it. The state at its end always counts as there.
[[nodiscard]] std::vector<PartRef> parts_to_publish(const Image& image, uint32_t stages);
// What a part occupies in a session file.
[[nodiscard]] uint64_t extent_bytes(const Part& part);
// Upper bound of the index file of an image.
[[nodiscard]] uint64_t index_bytes_bound(const Image& image, const Identity& identity);

[[nodiscard]] SessionHeader session_header_of(const Image& image, const PublicationRules& rules);
// Complete but for the digests of parts in `written`; its parts are in the order of `parts`. Parts that are
// not in `written` lie where Part::disk says. `own_bytes`: how long the own file must be at least, whatever
// lies in it; 0: there may be none.
[[nodiscard]] Manifest manifest_of(const Image& image, const std::vector<PartRef>& parts,
                                   const std::unordered_map<const Part*, Extent>& written, uint64_t own_bytes,
                                   const PublicationRules& rules);

}  // namespace strata
