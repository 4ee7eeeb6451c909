// Garbage of a conversation folder: what the next start would remove anyway, what nobody can use any more,
// and what the owner says is too old or too much. A plan is made first and can be shown; carrying it out is a
// second step. Whoever carries it out holds the folder's lock. Nothing without our magic is ever in a plan,
// nor are links, sessions that somebody saved by name, or anything that could not be read: a read that failed
// today may work tomorrow. Ownership: results are values. Thread-safety: one call at a time per FileSystem's
// rules. Units: bytes on disk (st_blocks), nanoseconds since 1970. Errors: the folder cannot be listed; all
// else is in the plan or the outcome.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/reasons.hpp"
#include "core/result.hpp"

namespace strata {

struct GcRules {
  uint64_t older_than_ns = 0;  // since the last use; 0: age does not matter
  std::optional<uint64_t> budget_bytes;
  uint64_t now_wall_ns = 0;
};

struct GcItem {
  std::string file_name;
  SkipReason reason = SkipReason::orphan;
  std::string detail;
  uint64_t file_bytes = 0;
};

struct GcPlan {
  std::vector<GcItem> indexes;  // and temporary and quarantined ones: removed first
  std::vector<GcItem> data;     // session files that no index refers to then
  std::vector<GcItem> kept;     // cannot be used here and now, yet stays: another version's, unreadable
  uint64_t removed_bytes = 0;   // of indexes and data
  uint64_t staying_conversations = 0;
  uint64_t staying_bytes = 0;  // of everything of ours but sessions saved by name
};

Result<GcPlan> plan_gc(FileSystem& files, const std::string& folder, const GcRules& rules);

struct GcOutcome {
  std::vector<std::string> failures;  // one line each; what is named there is still in the folder
  uint64_t removed_files = 0;
  uint64_t removed_bytes = 0;
};

// Indexes, directory sync, session files: at no moment an index lacks its bytes. Data stays when an index
// could not be removed for good.
[[nodiscard]] GcOutcome carry_out_gc(FileSystem& files, const std::string& folder, const GcPlan& plan);

}  // namespace strata
