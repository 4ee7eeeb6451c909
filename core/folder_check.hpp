// Looks at a folder of stored conversations from outside: lists them by the heads of their indexes, and
// checks them byte by byte (ID-3, B-10). Nothing is ever changed, no lock is needed, and any file content
// yields a verdict, never a crash. A server may be at work in the folder meanwhile: what it replaced or
// removed during a check is looked at again. Self-contained session files (saved by name) are conversations
// as well. Ownership: results are values. Thread-safety: none needed, one call at a time per FileSystem's
// rules. Errors: not_found, io when the folder itself cannot be read; everything about a file is a Problem of
// its entry.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/manifest.hpp"
#include "core/reasons.hpp"
#include "core/result.hpp"
#include "core/stored_file.hpp"

namespace strata {

struct Problem {
  std::string file_name;
  SkipReason reason = SkipReason::corrupt;  // version, corrupt, truncated, foreign, io_error
  std::string detail;
};

struct FolderConversation {
  std::string file_name;  // the index, or the self-contained session file
  bool self_contained = false;
  std::optional<ManifestHead> head;  // empty when it cannot be read
  uint64_t file_bytes = 0;           // physical, of file_name alone
  std::optional<Problem> problem;    // the first one
};

// Files of ours that are no conversation: interrupted writes, data that no index refers to, quarantined
// indexes.
struct Leftover {
  std::string file_name;
  std::string what;
  uint64_t file_bytes = 0;
};

struct FolderListing {
  std::vector<FolderConversation> conversations;  // most recently used first, those without a head last
  std::vector<Leftover> leftovers;
};

// Reads the heads only.
Result<FolderListing> list_folder(FileSystem& files, const std::string& folder);

// The head of one file, and whether the files it needs are there and long enough. Not a Strata file: reason
// foreign.
[[nodiscard]] FolderConversation read_stored_head(FileSystem& files, const std::string& folder,
                                                  const std::string& file_name);
// The whole manifest, checked.
Result<Manifest> read_stored_manifest(FileSystem& files, const std::string& folder,
                                      const std::string& file_name);

// Where a file that a conversation names lies: a self-contained session holds everything itself, whatever it
// is called.
[[nodiscard]] std::string data_file_name(const std::string& stored_as, const ManifestFile& file);
// Whether the header of a data file is the one that the manifest's head speaks of. Errors: corrupt and what
// decode_session_header says.
[[nodiscard]] Status check_data_file(const StoredFile& file, const ManifestHead& head, ConversationId id);

struct Verification {
  std::vector<Problem> problems;  // every part that is wrong, at most kMaxReportedProblems
  uint64_t checked_bytes = 0;
  bool gone = false;  // removed while it was being looked at: nothing to report
};
inline constexpr size_t kMaxReportedProblems = 64;  // of one conversation

// Reads every byte of one conversation. progress(bytes) is called after each piece with the bytes read since
// the last.
[[nodiscard]] Verification verify_stored(FileSystem& files, const std::string& folder,
                                         const std::string& file_name,
                                         const std::function<void(uint64_t)>& progress);

}  // namespace strata
