#include "core/folder_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/pieces.hpp"
#include "core/session_file.hpp"
#include "core/stored_file.hpp"

namespace strata {

namespace {

constexpr int kLooks = 3;  // at a conversation that a server replaces while it is being read

bool is_index_name(std::string_view name) { return name.ends_with(".idx") || name.ends_with(".idx.bad"); }

SkipReason reason_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid:
      return SkipReason::foreign;
    case ErrorCode::unsupported:
      return SkipReason::version;
    case ErrorCode::not_found:
      return SkipReason::truncated;
    case ErrorCode::corrupt:
      return SkipReason::corrupt;
    default:
      return SkipReason::io_error;
  }
}

Problem problem_of(const std::string& file_name, const Error& error) {
  return Problem{file_name, reason_of(error.code), error.message};
}

Error corrupt(std::string message) { return make_error(ErrorCode::corrupt, std::move(message)); }

// ---- where a manifest lies

// An index as a whole, or the end of a self-contained session file.
struct Place {
  StoredFile file;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t file_bytes = 0;
  bool self_contained = false;
  std::optional<Digest> digest;  // of the whole manifest, in the trailer
  int64_t modified_ns = 0;       // of the file
};

Status find_in_session_file(Place& place, uint64_t size) {
  STRATA_ASSIGN(const auto header_bytes, place.file.read(0, std::min(size, limits::kSessionHeaderBytes)));
  STRATA_ASSIGN(const SessionHeader header, decode_session_header(header_bytes));
  if ((header.flags & kSessionSelfContained) == 0)
    return make_error(ErrorCode::invalid, "data of a conversation whose index is missing");
  STRATA_ASSIGN(const auto trailer_bytes,
                place.file.read(size - std::min<uint64_t>(size, kSessionTrailerBytes),
                                std::min<uint64_t>(size, kSessionTrailerBytes)));
  auto trailer = decode_session_trailer(trailer_bytes);
  if (!trailer) return corrupt(trailer.error().message);  // the header said that there is one
  if (trailer->manifest_offset + trailer->manifest_length + kSessionTrailerBytes != size)
    return corrupt("session file: the manifest does not reach to the trailer");
  place.offset = trailer->manifest_offset;
  place.length = trailer->manifest_length;
  place.digest = trailer->manifest_digest;
  place.self_contained = true;
  return {};
}

Result<Place> find_manifest(FileSystem& files, const std::string& path) {
  STRATA_ASSIGN(StoredFile file, StoredFile::open(files, path));
  STRATA_ASSIGN(const FileInfo info, file.info());
  Place place{std::move(file), 0, info.size_bytes, info.allocated_bytes, false, std::nullopt,
              info.modified_ns};
  if (is_index_name(path)) return place;
  STRATA_TRY(find_in_session_file(place, info.size_bytes));
  return place;
}

Result<ManifestHead> read_head(const Place& place) {
  const uint64_t fixed_bytes = std::min<uint64_t>(place.length, kManifestFixedBytes);
  STRATA_ASSIGN(const auto fixed, place.file.read(place.offset, fixed_bytes));
  STRATA_ASSIGN(const ManifestSizes sizes, peek_manifest(fixed));
  if (sizes.total_bytes != place.length)
    return make_error(ErrorCode::not_found,
                      fmt::format("index: {} bytes long, not {}", place.length, sizes.total_bytes));
  STRATA_ASSIGN(const auto bytes, place.file.read(place.offset, sizes.head_bytes));
  STRATA_ASSIGN(ManifestHead head, decode_manifest_head(bytes));
  if (!place.self_contained) head.last_used_ns = last_use_ns(head, place.modified_ns);
  return head;
}

Result<Manifest> read_whole(const Place& place) {
  if (place.length > limits::kMaxManifestBytes) return corrupt("index: larger than the format allows");
  STRATA_ASSIGN(const auto bytes, place.file.read(place.offset, place.length));
  if (place.digest && digest_bytes(bytes) != *place.digest)
    return corrupt("session file: the manifest does not match the trailer's digest");
  return decode_manifest(bytes, ManifestLimits{});
}

// The name of a conversation's index says whose it is.
Status check_name(const std::string& file_name, const ManifestHead& head) {
  const auto id = parse_conversation_file_name(file_name, "idx");
  if (id && *id != head.id) return corrupt("index: belongs to conversation " + to_hex(head.id));
  return {};
}

// ---- the files a conversation needs

std::optional<Problem> missing_file(FileSystem& files, const std::string& folder,
                                    const FolderConversation& stored) {
  for (const ManifestFile& file : stored.head->files) {
    if (file.needed_length == 0) continue;
    const std::string name = data_file_name(stored.file_name, file);
    const auto info = files.info(folder + "/" + name);
    if (!info) return problem_of(name, info.error());
    if (!info->regular) return Problem{name, SkipReason::foreign, "not a regular file"};
    if (info->size_bytes < file.needed_length)
      return Problem{name, SkipReason::truncated,
                     fmt::format("{} bytes long, {} needed", info->size_bytes, file.needed_length)};
  }
  return std::nullopt;
}

class PartCheck {
 public:
  PartCheck(const std::function<void(uint64_t)>& progress, Verification& verification)
      : progress_(progress), verification_(verification) {}

  Status check(const StoredFile& file, ConversationId id, const ManifestPart& part) {
    DigestStream digest(PartPlace{id, part.stage, part.first, part.kind});
    const auto take = [&](std::span<std::byte> piece, uint64_t done) -> Status {
      STRATA_TRY(file.read(piece, part.offset + done));
      digest.update(piece);
      verification_.checked_bytes += piece.size();
      progress_(piece.size());
      return {};
    };
    STRATA_TRY(in_pieces(piece_, part.length, take));
    if (digest.finish() == part.digest) return {};
    return corrupt(fmt::format("{} of stage {} at token {} ({} bytes at {}) does not match its digest",
                               to_string(part.kind), part.stage, part.first, part.length, part.offset));
  }

  void report(const std::string& file_name, const Error& error) {
    if (verification_.problems.size() < kMaxReportedProblems)
      verification_.problems.push_back(problem_of(file_name, error));
  }

 private:
  const std::function<void(uint64_t)>& progress_;
  Verification& verification_;
  std::vector<std::byte> piece_;
};

void check_file(FileSystem& files, const std::string& folder, const std::string& name,
                const Manifest& manifest, size_t index, PartCheck& check) {
  const ConversationId id = manifest.head.files[index].id;
  const auto file = StoredFile::open(files, folder + "/" + name);
  if (!file) return check.report(name, file.error());
  if (const Status header = check_data_file(*file, manifest.head, id); !header)
    return check.report(name, header.error());
  for (const ManifestPart& part : manifest.parts) {
    if (part.file != index) continue;
    if (const Status status = check.check(*file, id, part); !status) check.report(name, status.error());
  }
}

struct Look {
  Verification verification;
  std::optional<uint64_t> generation;  // of the index that was checked
};

Look look_once(FileSystem& files, const std::string& folder, const std::string& file_name,
               const std::function<void(uint64_t)>& progress) {
  Look look;
  PartCheck check(progress, look.verification);
  const auto manifest = read_stored_manifest(files, folder, file_name);
  if (!manifest) {
    check.report(file_name, manifest.error());
    return look;
  }
  look.generation = manifest->head.generation;
  for (size_t i = 0; i < manifest->head.files.size(); ++i)
    if (manifest->head.files[i].needed_length != 0)
      check_file(files, folder, data_file_name(file_name, manifest->head.files[i]), *manifest, i, check);
  return look;
}

// ---- listing

bool is_last_used_first(const FolderConversation& a, const FolderConversation& b) {
  if (a.head.has_value() != b.head.has_value()) return a.head.has_value();
  if (a.head && a.head->last_used_ns != b.head->last_used_ns)
    return a.head->last_used_ns > b.head->last_used_ns;
  return a.file_name < b.file_name;
}

bool is_ours(FileSystem& files, const std::string& path) {
  const auto file = StoredFile::open(files, path);
  if (!file) return false;
  const auto magic = file->read(0, 8);
  return magic && has_strata_magic(*magic);
}

class Lister {
 public:
  Lister(FileSystem& files, const std::string& folder) : files_(files), folder_(folder) {}

  void add_index(const std::string& name) {
    FolderConversation stored = read_stored_head(files_, folder_, name);
    if (stored.head)
      for (const ManifestFile& file : stored.head->files) referred_.insert(session_file_name(file.id));
    listing_.conversations.push_back(std::move(stored));
  }

  // Data of an index, a saved session, or data that nobody refers to.
  void add_session_file(const std::string& name) {
    if (referred_.contains(name)) return;
    FolderConversation stored = read_stored_head(files_, folder_, name);
    const bool no_conversation = stored.problem && stored.problem->reason == SkipReason::foreign;
    if (!no_conversation) {
      listing_.conversations.push_back(std::move(stored));
    } else if (parse_conversation_file_name(name, "sess") || is_ours(files_, folder_ + "/" + name)) {
      add_leftover(name, "data that no index refers to");
    }
  }

  void add_leftover(const std::string& name, const char* what) {
    const auto info = files_.info(folder_ + "/" + name);
    if (info && info->regular) listing_.leftovers.push_back({name, what, info->allocated_bytes});
  }

  FolderListing take() {
    std::sort(listing_.conversations.begin(), listing_.conversations.end(), is_last_used_first);
    return std::move(listing_);
  }

 private:
  FileSystem& files_;
  const std::string& folder_;
  FolderListing listing_;
  std::unordered_set<std::string> referred_;
};

}  // namespace

std::string data_file_name(const std::string& stored_as, const ManifestFile& file) {
  return is_index_name(stored_as) ? session_file_name(file.id) : stored_as;
}

Status check_data_file(const StoredFile& file, const ManifestHead& head, ConversationId id) {
  STRATA_ASSIGN(const auto bytes, file.read(0, limits::kSessionHeaderBytes));
  STRATA_ASSIGN(const SessionHeader header, decode_session_header(bytes));
  if (header.id != id) return corrupt("session file: belongs to conversation " + to_hex(header.id));
  if (header.model_identity != head.model_identity ||
      header.configuration_identity != head.configuration_identity)
    return corrupt("session file: written under another identity than its index");
  if (header.stage_count != head.stage_count || header.tokens_per_block != head.tokens_per_block)
    return corrupt("session file: cut into other stages or blocks than its index says");
  return {};
}

FolderConversation read_stored_head(FileSystem& files, const std::string& folder,
                                    const std::string& file_name) {
  FolderConversation stored;
  stored.file_name = file_name;
  const auto place = find_manifest(files, folder + "/" + file_name);
  if (!place) {
    stored.problem = problem_of(file_name, place.error());
    return stored;
  }
  stored.self_contained = place->self_contained;
  stored.file_bytes = place->file_bytes;
  auto head = read_head(*place);
  const Status named = head ? check_name(file_name, *head) : Status(head.error());
  if (!named) {
    stored.problem = problem_of(file_name, named.error());
    return stored;
  }
  stored.head = std::move(*head);
  stored.problem = missing_file(files, folder, stored);
  return stored;
}

Result<Manifest> read_stored_manifest(FileSystem& files, const std::string& folder,
                                      const std::string& file_name) {
  STRATA_ASSIGN(const Place place, find_manifest(files, folder + "/" + file_name));
  STRATA_TRY(read_head(place));  // says more precisely what is wrong with a head
  STRATA_ASSIGN(Manifest manifest, read_whole(place));
  STRATA_TRY(check_name(file_name, manifest.head));
  if (place.self_contained && manifest.head.files.size() != 1)
    return corrupt("session file: self-contained, yet it refers to other files");
  return manifest;
}

Verification verify_stored(FileSystem& files, const std::string& folder, const std::string& file_name,
                           const std::function<void(uint64_t)>& progress) {
  Look look;
  for (int i = 0; i < kLooks; ++i) {
    look = look_once(files, folder, file_name, progress);
    if (look.verification.problems.empty()) return look.verification;
    // A server rewrites an extent only after it published an index without it, so the index tells.
    const auto now = read_stored_manifest(files, folder, file_name);
    const auto still_there = files.info(folder + "/" + file_name);
    if (!still_there && still_there.error().code == ErrorCode::not_found) {
      look.verification.gone = true;
      look.verification.problems.clear();
      return look.verification;
    }
    const std::optional<uint64_t> generation = now ? std::optional(now->head.generation) : std::nullopt;
    if (generation == look.generation) break;  // the same index: the problems are real
  }
  return look.verification;
}

Result<FolderListing> list_folder(FileSystem& files, const std::string& folder) {
  STRATA_ASSIGN(const std::vector<std::string> names, files.list(folder));
  Lister lister(files, folder);
  for (const std::string& name : names)
    if (parse_conversation_file_name(name, "idx")) lister.add_index(name);
  for (const std::string& name : names) {
    if (name.ends_with(".sess"))
      lister.add_session_file(name);
    else if (parse_conversation_file_name(name, "idx.tmp"))
      lister.add_leftover(name, "interrupted write");
    else if (parse_conversation_file_name(name, "idx.bad"))
      lister.add_leftover(name, "quarantined");
  }
  return lister.take();
}

}  // namespace strata
