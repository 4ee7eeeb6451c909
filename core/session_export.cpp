#include "core/session_export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/digest.hpp"
#include "core/folder_check.hpp"
#include "core/limits.hpp"
#include "core/pieces.hpp"
#include "core/stored_file.hpp"
#include "core/temporary_file.hpp"

namespace strata {

namespace {

constexpr int kTries = 3;  // at a conversation that a server replaces while it is being copied

// Names that a conversation folder uses itself: a saved session of such a name would be taken for its own.
bool is_reserved(const std::string& name) {
  if (name == "LOCK") return true;
  return std::ranges::any_of(
             std::initializer_list<const char*>{"sess", "idx", "idx.tmp", "idx.bad"},
             [&](const char* extension) { return parse_conversation_file_name(name, extension).ok(); }) ||
         name.ends_with(".idx") || name.ends_with(".idx.bad");  // read as an index, whoever's it is
}

class Copy {
 public:
  Copy(FileSystem& files, const ExportRequest& request, const Manifest& stored,
       const std::function<void(uint64_t)>& progress)
      : files_(files),
        request_(request),
        stored_(stored),
        progress_(progress),
        layout_(lay_out_saved(stored)) {}

  Result<ExportReport> write(TemporaryFile& to) {
    const uint64_t manifest_bytes = layout_.manifest.head.total_bytes;
    const uint64_t file_bytes = layout_.manifest_offset + manifest_bytes + kSessionTrailerBytes;
    STRATA_TRY(to.create(file_bytes));
    STRATA_TRY(to.write(encode_session_header(layout_.header), 0));
    for (size_t file = 0; file < stored_.head.files.size(); ++file) STRATA_TRY(copy_parts_in(file, to));
    STRATA_TRY(write_saved_end(to, layout_.manifest, layout_.manifest_offset));
    return ExportReport{stored_.head.id, stored_.head.token_count, stored_.parts.size(), inherited_,
                        file_bytes};
  }

 private:
  Status copy_parts_in(size_t file, TemporaryFile& to) {
    const ManifestFile& named = stored_.head.files[file];
    if (named.needed_length == 0) return {};
    const std::string name = data_file_name(request_.file_name, named);
    STRATA_ASSIGN(const StoredFile from, StoredFile::open(files_, request_.folder + "/" + name));
    Status status = check_data_file(from, stored_.head, named.id);
    for (size_t i = 0; status.ok() && i < stored_.parts.size(); ++i)
      if (stored_.parts[i].file == file) status = copy_part(from, named.id, i, to);
    if (!status) return with_context(status.error(), name);
    return {};
  }

  // A part's digest speaks of the file in which it lies: one is checked, one is made.
  Status copy_part(const StoredFile& from, ConversationId owner, size_t index, TemporaryFile& to) {
    const ManifestPart& part = stored_.parts[index];
    ManifestPart& saved = layout_.manifest.parts[index];
    DigestStream found({owner, part.stage, part.first, part.kind});
    DigestStream made({stored_.head.id, part.stage, part.first, part.kind});
    const auto take = [&](std::span<std::byte> piece, uint64_t done) -> Status {
      STRATA_TRY(from.read(piece, part.offset + done));
      found.update(piece);
      made.update(piece);
      STRATA_TRY(to.write(piece, saved.offset + done));
      progress_(piece.size());
      return {};
    };
    STRATA_TRY(in_pieces(piece_, part.length, take));
    if (found.finish() != part.digest)
      return make_error(ErrorCode::corrupt,
                        fmt::format("{} of stage {} at token {} does not match its digest",
                                    to_string(part.kind), part.stage, part.first));
    saved.digest = made.finish();
    if (part.file != 0) ++inherited_;
    return {};
  }

  FileSystem& files_;
  const ExportRequest& request_;
  const Manifest& stored_;
  const std::function<void(uint64_t)>& progress_;
  SavedLayout layout_;
  std::vector<std::byte> piece_;
  uint64_t inherited_ = 0;
};

// The data files must be long enough before as much space is taken for the copy.
Status check_lengths(FileSystem& files, const ExportRequest& request) {
  const FolderConversation stored = read_stored_head(files, request.folder, request.file_name);
  if (!stored.problem) return {};
  return make_error(ErrorCode::corrupt,
                    fmt::format("{}: {}", stored.problem->file_name, stored.problem->detail));
}

Result<ExportReport> export_once(FileSystem& files, Random& random, const ExportRequest& request,
                                 const Manifest& stored, const std::function<void(uint64_t)>& progress) {
  STRATA_TRY(check_lengths(files, request));
  TemporaryFile to(files, fmt::format("{}/.strata-{:016x}.tmp", folder_of(request.target), random.next()));
  STRATA_ASSIGN(const ExportReport report, Copy(files, request, stored, progress).write(to));
  STRATA_TRY(check_export_target(files, request.target, request.force));  // it took a while
  STRATA_TRY(to.sync());
  STRATA_TRY(to.rename_to(request.target));
  STRATA_TRY(flush_name(files, request.target));
  return report;
}

// The generation that is published now; empty when none can be read.
std::optional<uint64_t> generation_now(FileSystem& files, const ExportRequest& request) {
  const FolderConversation stored = read_stored_head(files, request.folder, request.file_name);
  return stored.head ? std::optional(stored.head->generation) : std::nullopt;
}

}  // namespace

SavedLayout lay_out_saved(const Manifest& stored) {
  SavedLayout layout;
  layout.manifest = stored;
  ManifestHead& head = layout.manifest.head;
  head.flags &= ~static_cast<uint32_t>(kManifestEphemeral);
  uint64_t end = limits::kSessionHeaderBytes;
  for (ManifestPart& part : layout.manifest.parts) {
    part.file = 0;
    part.offset = end;
    end = align_up(end + part.length, limits::kAlignment);
  }
  head.files = {{head.id, end}};
  complete_head(layout.manifest);
  layout.manifest_offset = end;
  layout.header.flags = kSessionSelfContained;
  layout.header.stage_count = head.stage_count;
  layout.header.id = head.id;
  layout.header.created_ns = head.created_ns;
  layout.header.model_identity = head.model_identity;
  layout.header.configuration_identity = head.configuration_identity;
  layout.header.tokens_per_block = head.tokens_per_block;
  return layout;
}

Result<uint64_t> write_saved_end(TemporaryFile& to, const Manifest& manifest, uint64_t offset) {
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  STRATA_TRY(to.write(bytes, offset));
  const SessionTrailer trailer{offset, bytes.size(), digest_bytes(bytes)};
  STRATA_TRY(to.write(encode_session_trailer(trailer), offset + bytes.size()));
  return offset + bytes.size() + kSessionTrailerBytes;
}

Status check_export_target(FileSystem& files, const std::string& target, bool force) {
  const std::string name = target.substr(target.rfind('/') + 1);
  if (name.empty()) return make_error(ErrorCode::invalid, target + ": not a file name");
  if (is_reserved(name))
    return make_error(ErrorCode::invalid,
                      target + ": a conversation folder uses such names itself; take another");
  const auto there = files.info(target);
  if (!there && there.error().code == ErrorCode::not_found) return {};
  if (!there) return there.error();
  if (!there->regular) return make_error(ErrorCode::invalid, target + ": is there and not a regular file");
  if (!force) return make_error(ErrorCode::invalid, target + ": is there already; --force replaces it");
  return {};
}

Result<ExportReport> export_stored(FileSystem& files, Random& random, const ExportRequest& request,
                                   const std::function<void(uint64_t)>& progress) {
  STRATA_TRY(check_export_target(files, request.target, request.force));
  for (int tries = 1;; ++tries) {
    STRATA_ASSIGN(const Manifest stored, read_stored_manifest(files, request.folder, request.file_name));
    Result<ExportReport> report = export_once(files, random, request, stored, progress);
    const bool settled =
        report.ok() || tries == kTries || generation_now(files, request) == stored.head.generation;
    if (settled) return report;
  }
}

}  // namespace strata
