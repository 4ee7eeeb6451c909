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
  bool persist =
      true;  // false: only remove leftovers of runs without persistence; take nothing in, keep the rest
  bool remove_foreign = true;  // what is refused is removed; otherwise kept and counted
  uint64_t budget_bytes = 0;   // physical bytes, of everything of ours in the folder
  uint64_t ttl_ns = 0;         // 0: no limit
  uint64_t now_wall_ns = 0;
};

struct TakenIn {
  ManifestHead head;
  uint64_t index_allocated_bytes = 0;
};

struct IntakeFile {  // a session file that a taken-in conversation refers to, or a kept one
  ConversationId id;
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;
};

struct Refused {
  std::string file_name;
  SkipReason reason = SkipReason::corrupt;
  std::string detail;  // identity: the field that differs
  bool removed = false;
};

struct IntakeReport {
  std::vector<TakenIn> taken;     // most recently used first
  std::vector<IntakeFile> files;  // referred to by `taken`
  std::vector<Refused> refused;
  uint64_t taken_bytes = 0;  // physical, files and indexes, each once
  uint64_t kept_bytes = 0;   // physical, ours but not taken in (foreign = keep, other runs)
};

// Order: index files by last use, most recent first, up to the budget (each file's bytes counted once,
// whoever shares it). Refusals: version, corrupt, identity, expired, truncated, budget; then orphans (session
// files and temporary files nobody refers to). Unknown names and files without our magic are not touched and
// not reported.
// *.bad files (quarantined) are kept and counted.
Result<IntakeReport> take_in(FileSystem& files, Log& log, Metrics& metrics, const IntakeRules& rules);

}  // namespace strata
