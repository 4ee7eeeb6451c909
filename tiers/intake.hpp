// Intake: what a start finds in the conversation folder and decides about it (DISK-5, DISK-6, DISK-8). Reads
// only the heads of index files. Nothing is removed that does not carry our magic. One thread; system calls
// only through the port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/identity.hpp"
#include "core/log.hpp"
#include "core/manifest.hpp"
#include "core/metrics.hpp"
#include "core/reasons.hpp"
#include "core/result.hpp"

namespace strata {

struct IntakeRules {
  std::string folder;
  Identity identity;
  // false: take nothing in, remove what runs without persistence left, keep and count the rest.
  bool persist = true;
  // Refusals for identity, version, corrupt, truncated: removed, or kept and counted against the budget. What
  // is ours and only old (expired, budget) or worthless (ephemeral, interrupted, orphan) is removed in either
  // case.
  bool remove_foreign = true;
  bool remove_all = false;    // everything is older than allowed (--conversation-cache-days 0)
  uint64_t budget_bytes = 0;  // physical bytes, of everything of ours in the folder
  uint64_t ttl_ns = 0;        // since the last use; 0: no limit
  uint64_t now_wall_ns = 0;
};

struct TakenIn {
  ManifestHead head;
  uint64_t index_allocated_bytes = 0;
};

struct IntakeFile {  // a session file that a taken-in conversation refers to
  ConversationId id;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;
  bool kept_for_others = false;  // an index that stays, but is not taken in, refers to it, too
};

struct Refused {
  std::string file_name;  // an index; or a session file or temporary file without one
  SkipReason reason = SkipReason::corrupt;
  std::string detail;  // identity: the field that differs
  bool removed = false;
  // Of an index whose head could be read, so that a request for it learns why it is read again (OBS-1).
  std::vector<uint64_t> prefix_chain;
  uint32_t token_count = 0;
};

struct IntakeReport {
  std::vector<TakenIn> taken;     // most recently used first
  std::vector<IntakeFile> files;  // referred to by `taken`
  std::vector<Refused> refused;
  uint64_t taken_bytes = 0;  // physical, files and indexes, each once
  uint64_t kept_bytes =
      0;  // physical, ours but not taken in: foreign = keep, other runs', what could not be removed
};

// Order: index files by last use, most recent first, up to the budget (each file's bytes counted once,
// whoever shares it; one that does not fit does not keep smaller older ones out). Refusals: version, corrupt,
// identity, expired, truncated, budget, io_error (kept: a read that failed today may work tomorrow); then
// orphans (session files and temporary indexes nobody refers to), unless an index that stays could not be
// read: they may be its own. Removal is indexes → directory sync → session files, so that at no moment an
// index lacks its bytes. Not touched and not reported: names that are not ours, links, files without our
// magic (empty ones, too), and self-contained session files, which somebody saved by name. *.bad files
// (quarantined) are kept and counted. Errors: the folder cannot be listed. Everything else ends in the
// report.
Result<IntakeReport> take_in(FileSystem& files, Log& log, Metrics& metrics, const IntakeRules& rules);

}  // namespace strata
