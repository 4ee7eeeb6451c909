// strata_folder_maker FOLDER COUNT: fills a folder that holds one stored conversation with COUNT others like
// it: other tokens, other ids, data of the same length that is a hole. Each verifies; none is of use to a
// model. For tests of folders with very many conversations.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/digest.hpp"
#include "core/folder_check.hpp"
#include "core/posix/file_system.hpp"
#include "core/session_file.hpp"

namespace strata {
namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "strata_folder_maker: %s\n", message.c_str());
  return 1;
}

Result<Manifest> the_one_stored(FileSystem& files, const std::string& folder) {
  STRATA_ASSIGN(const FolderListing listing, list_folder(files, folder));
  if (listing.conversations.size() != 1)
    return make_error(ErrorCode::invalid, folder + ": holds not one conversation");
  return read_stored_manifest(files, folder, listing.conversations.front().file_name);
}

// Everything of the original but its tokens, its id, and its bytes, which are zero.
Manifest copy_of(const Manifest& original, uint64_t number, const std::vector<std::byte>& zeros) {
  Manifest copy = original;
  copy.head.id = ConversationId{0x5a00'0000'0000'0000 + number};
  copy.head.last_used_ns -= number * 1'000'000;
  for (size_t i = 0; i < copy.tokens.size(); ++i)
    copy.tokens[i] = static_cast<Token>((number >> (i % 4 * 8)) & 0xff);
  for (ManifestPart& part : copy.parts) {
    part.file = 0;
    part.digest =
        digest_part({copy.head.id, part.stage, part.first, part.kind}, std::span(zeros).first(part.length));
  }
  copy.head.files = {{copy.head.id, original.head.files.front().needed_length}};
  complete_head(copy);
  return copy;
}

Status write_file(FileSystem& files, const std::string& path, std::span<const std::byte> bytes,
                  uint64_t length) {
  STRATA_ASSIGN(const FileHandle file, files.open(path, OpenMode::create_exclusive, Caching::buffered));
  Status status = files.write_at(file, bytes, 0);
  if (status.ok() && length > bytes.size()) status = files.truncate(file, length);
  files.close(file);
  return status;
}

Status store(FileSystem& files, const std::string& folder, const Manifest& manifest) {
  const ManifestHead& head = manifest.head;
  SessionHeader header;
  header.stage_count = head.stage_count;
  header.id = head.id;
  header.created_ns = head.created_ns;
  header.model_identity = head.model_identity;
  header.configuration_identity = head.configuration_identity;
  header.tokens_per_block = head.tokens_per_block;
  STRATA_TRY(write_file(files, folder + "/" + session_file_name(head.id), encode_session_header(header),
                        head.files.front().needed_length));
  const std::vector<std::byte> index = encode_manifest(manifest);
  return write_file(files, folder + "/" + index_file_name(head.id), index, index.size());
}

int run(const std::string& folder, uint64_t count) {
  PosixFileSystem files;
  const auto original = the_one_stored(files, folder);
  if (!original.ok()) return fail(original.error().message);
  if (original->head.files.size() != 1) return fail(folder + ": the conversation needs another's file");
  uint64_t longest = 0;
  for (const ManifestPart& part : original->parts) longest = std::max(longest, part.length);
  const std::vector<std::byte> zeros(longest);
  for (uint64_t number = 1; number <= count; ++number) {
    const Status stored = store(files, folder, copy_of(*original, number, zeros));
    if (!stored.ok()) return fail(stored.error().message);
  }
  return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc != 3) return strata::fail("usage: strata_folder_maker FOLDER COUNT");
  return strata::run(argv[1], std::strtoull(argv[2], nullptr, 10));
}
