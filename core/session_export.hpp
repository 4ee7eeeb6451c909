// Copies one stored conversation into a self-contained session file (docs/session-format.md), which holds
// every part itself, also those that the conversation shares with others, and can be checked, kept and
// restored without the folder it came from. Every digest is checked while the bytes are copied; nothing
// appears under the target's name unless it is whole: an exclusive hidden temporary file (0600) is written,
// flushed and renamed. A server may be at work in the folder meanwhile: what it replaced during the copy is
// read again. Ownership: results are values. Thread-safety: none needed, one call at a time per FileSystem's
// rules. Errors: not_found, corrupt, unsupported (version) and io of what is read, exhausted (full disk) and
// io of what is written; nothing is left behind then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/file_system.hpp"
#include "core/manifest.hpp"
#include "core/random.hpp"
#include "core/result.hpp"
#include "core/session_file.hpp"

namespace strata {

class TemporaryFile;  // core/temporary_file.hpp

// Where everything lies in a self-contained file.
struct SavedLayout {
  SessionHeader header;
  Manifest manifest;  // one file, itself; offsets filled in, digests as they were
  uint64_t manifest_offset = 0;
};

// Parts in the manifest's order, each on the next multiple of the alignment. What binds a conversation to one
// run is taken away: a saved file is somebody's.
[[nodiscard]] SavedLayout lay_out_saved(const Manifest& stored);

// Manifest and trailer behind the last extent of a self-contained file; returns how long the file is then.
Result<uint64_t> write_saved_end(TemporaryFile& to, const Manifest& manifest, uint64_t offset);

struct ExportRequest {
  std::string folder;
  std::string file_name;  // the index, or a self-contained session file
  std::string target;
  bool force = false;  // replaces a file that is there
};

struct ExportReport {
  ConversationId id;
  uint64_t tokens = 0;
  uint64_t parts = 0;
  uint64_t inherited_parts = 0;  // copied from other conversations' files
  uint64_t file_bytes = 0;
};

// Whether the target may be written: not there, or a regular file and `force`, and no name that a
// conversation folder gives its own files. Errors: invalid, and io when it cannot be looked at.
[[nodiscard]] Status check_export_target(FileSystem& files, const std::string& target, bool force);

// progress(bytes) is called after each piece with the bytes read since the last.
Result<ExportReport> export_stored(FileSystem& files, Random& random, const ExportRequest& request,
                                   const std::function<void(uint64_t)>& progress);

}  // namespace strata
