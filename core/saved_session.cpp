#include "core/saved_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/pieces.hpp"
#include "core/session_export.hpp"

namespace strata {

namespace {

Error invalid(std::string message) { return make_error(ErrorCode::invalid, std::move(message)); }
Error corrupt(std::string message) { return make_error(ErrorCode::corrupt, std::move(message)); }

}  // namespace

// ---- writing

Status SavedFileWriter::prepare() {
  constexpr bool kReplaces = true;
  STRATA_TRY(check_export_target(files_, plan_.target, kReplaces));
  STRATA_TRY(make_folder());
  STRATA_TRY(check_room());
  STRATA_TRY(file_.create(plan_.bound_bytes));
  return file_.write(encode_session_header(plan_.header), 0);
}

// Its name must outlive a power loss, too.
Status SavedFileWriter::make_folder() {
  const std::string folder = folder_of(plan_.target);
  if (const auto there = files_.info(folder); there.ok() || there.error().code != ErrorCode::not_found)
    return there.ok() ? Status() : Status(there.error());
  STRATA_TRY(files_.create_directory(folder));
  const Status synced = files_.sync_directory(folder_of(folder));
  if (!synced && synced.error().code != ErrorCode::unsupported) return synced;
  return {};
}

// Also when a file is replaced: until the rename both are there.
Status SavedFileWriter::check_room() {
  if (plan_.min_free_bytes == 0) return {};
  STRATA_ASSIGN(const SpaceInfo space, files_.space(folder_of(plan_.target)));
  const uint64_t needed = plan_.bound_bytes + plan_.min_free_bytes;
  if (space.free_bytes >= needed) return {};
  return make_error(ErrorCode::exhausted,
                    fmt::format("{}: {} bytes are free, {} are needed with --session-min-free-mib",
                                plan_.target, space.free_bytes, needed));
}

Status SavedFileWriter::finish(const Manifest& manifest, uint64_t manifest_offset) {
  STRATA_ASSIGN(file_bytes_, write_saved_end(file_, manifest, manifest_offset));
  return file_.cut(file_bytes_);  // a state may be smaller than its place
}

Status SavedFileWriter::publish() {
  constexpr bool kReplaces = true;
  STRATA_TRY(check_export_target(files_, plan_.target, kReplaces));  // it took a while
  STRATA_TRY(file_.rename_to(plan_.target));
  published_ = true;
  STRATA_ASSIGN(note_, flush_name(files_, plan_.target));
  return {};
}

// ---- reading

SavedFileReader::~SavedFileReader() {
  if (file_) files_.close(file_);
}

FileHandle SavedFileReader::release() { return std::exchange(file_, FileHandle{}); }

Status SavedFileReader::read(std::span<std::byte> to, uint64_t offset) {
  STRATA_ASSIGN(const size_t got, files_.read_at(file_, to, offset));
  if (got == to.size()) return {};
  return corrupt(
      fmt::format("session file: ends at {}, {} bytes expected", offset + got, offset + to.size()));
}

// Tokens, marks and parts as many as the session can hold, and a head of any size the format allows.
uint64_t SavedFileReader::max_manifest_bytes() const {
  constexpr uint64_t kPerPart = 48;
  constexpr uint64_t kPerMark = 16;
  const uint64_t body = uint64_t{limits_.max_tokens} * sizeof(Token) + limits::kMaxMediaMarks * kPerMark +
                        limits_.max_parts * kPerPart + limits::kAlignment;
  return std::min(limits::kMaxManifestBytes, limits::kMaxIndexHeadBytes + body);
}

uint64_t SavedFileReader::max_file_bytes() const {
  return limits::kSessionHeaderBytes + limits_.max_payload_bytes + limits_.max_parts * limits::kAlignment +
         max_manifest_bytes() + kSessionTrailerBytes;
}

Status SavedFileReader::open() {
  STRATA_ASSIGN(file_, files_.open(path_, OpenMode::read, Caching::buffered));
  STRATA_ASSIGN(const FileInfo info, files_.info(file_));
  file_bytes_ = info.size_bytes;
  if (file_bytes_ > max_file_bytes())
    return invalid(fmt::format("{}: {} bytes, more than this session can hold ({})", path_, file_bytes_,
                               max_file_bytes()));
  STRATA_TRY(check_header());
  STRATA_ASSIGN(const SessionTrailer trailer, read_trailer());
  STRATA_TRY(check_identity(header_));
  STRATA_TRY(read_manifest(trailer));
  return check_manifest(trailer);
}

Status SavedFileReader::check_header() {
  std::vector<std::byte> bytes(std::min(file_bytes_, limits::kSessionHeaderBytes));
  STRATA_TRY(read(bytes, 0));
  STRATA_ASSIGN(header_, decode_session_header(bytes));
  if ((header_.flags & kSessionSelfContained) == 0) return invalid("session file: not self-contained");
  if (header_.flags != kSessionSelfContained)
    return invalid(fmt::format("session file: flags {:#x}, encrypted or bound to one run", header_.flags));
  return {};
}

Result<SessionTrailer> SavedFileReader::read_trailer() {
  std::array<std::byte, kSessionTrailerBytes> bytes{};
  if (file_bytes_ < limits::kSessionHeaderBytes + bytes.size()) return corrupt("session file: is cut");
  STRATA_TRY(read(bytes, file_bytes_ - bytes.size()));
  auto trailer = decode_session_trailer(bytes);
  if (!trailer) return corrupt(trailer.error().message);  // the header said that there is one
  if (trailer->manifest_offset + trailer->manifest_length + kSessionTrailerBytes != file_bytes_)
    return corrupt("session file: the manifest does not reach to the trailer");
  if (trailer->manifest_length > max_manifest_bytes())
    return invalid("session file: the manifest is longer than this session's can be");
  return trailer;
}

// The header says whether they differ; which field differs stands in the manifest's head, if that can be
// read.
Status SavedFileReader::check_identity(const SessionHeader& header) {
  Identity stored{header.model_identity, header.configuration_identity, {}};
  if (stored == limits_.identity) return {};
  STRATA_ASSIGN(const SessionTrailer trailer, read_trailer());
  std::vector<std::byte> fixed(std::min<uint64_t>(trailer.manifest_length, kManifestFixedBytes));
  STRATA_TRY(read(fixed, trailer.manifest_offset));
  if (const auto sizes = peek_manifest(fixed); sizes && sizes->head_bytes <= trailer.manifest_length) {
    std::vector<std::byte> bytes(sizes->head_bytes);
    STRATA_TRY(read(bytes, trailer.manifest_offset));
    if (auto head = decode_manifest_head(bytes)) stored.fields = std::move(head->identity_fields);
  }
  const auto difference = compare(stored, limits_.identity);
  if (!difference) return invalid("session file: saved by another model or configuration");
  return invalid(fmt::format("session file: saved by another model or configuration: {} was {}, is {}",
                             difference->field, difference->stored, difference->wanted));
}

Status SavedFileReader::read_manifest(const SessionTrailer& trailer) {
  std::vector<std::byte> bytes(trailer.manifest_length);
  STRATA_TRY(read(bytes, trailer.manifest_offset));
  if (digest_bytes(bytes) != trailer.manifest_digest)
    return corrupt("session file: the manifest does not match the trailer's digest");
  STRATA_ASSIGN(manifest_, decode_manifest(bytes, ManifestLimits{limits_.max_payload_bytes}));
  return {};
}

// That header and manifest speak of the same thing, and of something this session can hold.
Status SavedFileReader::check_manifest(const SessionTrailer& trailer) {
  const ManifestHead& head = manifest_.head;
  const bool same = head.id == header_.id && head.model_identity == header_.model_identity &&
                    head.configuration_identity == header_.configuration_identity &&
                    head.stage_count == header_.stage_count &&
                    head.tokens_per_block == header_.tokens_per_block;
  if (!same) return corrupt("session file: header and manifest differ");
  if (head.files.size() != 1 || head.flags != 0) return invalid("session file: not self-contained");
  if (head.stage_count != limits_.stage_count || head.tokens_per_block != limits_.tokens_per_block)
    return invalid("session file: cut into stages and blocks as this model is not");
  if (head.token_count > limits_.max_tokens)
    return invalid(
        fmt::format("session file: {} tokens, a slot holds {}", head.token_count, limits_.max_tokens));
  for (const ManifestPart& part : manifest_.parts)
    if (part.offset + align_up(part.length, limits::kAlignment) > trailer.manifest_offset)
      return corrupt("session file: a part reaches into the manifest");
  return {};
}

Status SavedFileReader::verify(const std::atomic<bool>& stop) {
  std::vector<std::byte> buffer;
  for (const ManifestPart& part : manifest_.parts) STRATA_TRY(verify_part(part, buffer, stop));
  return {};
}

Status SavedFileReader::verify_part(const ManifestPart& part, std::vector<std::byte>& buffer,
                                    const std::atomic<bool>& stop) {
  DigestStream digest({manifest_.head.id, part.stage, part.first, part.kind});
  const auto take = [&](std::span<std::byte> piece, uint64_t done) -> Status {
    if (stop.load(std::memory_order_relaxed)) return make_error(ErrorCode::cancelled, "cancelled");
    STRATA_TRY(read(piece, part.offset + done));
    digest.update(piece);
    return {};
  };
  STRATA_TRY(in_pieces(buffer, part.length, take));
  if (digest.finish() == part.digest) return {};
  return corrupt(fmt::format("session file: {} of stage {} at token {} does not match its digest",
                             to_string(part.kind), part.stage, part.first));
}

}  // namespace strata
