#include "core/folder_gc.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/folder_check.hpp"
#include "core/limits.hpp"
#include "core/session_file.hpp"
#include "core/stored_file.hpp"

namespace strata {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

struct StoredIndex {
  FolderConversation stored;
  ConversationId id;
};

// A regular file with one link that begins with our magic; anything else is not ours to remove. An error:
// cannot be told.
Result<bool> carries_magic(FileSystem& files, const std::string& path) {
  const auto file = StoredFile::open(files, path);
  const auto magic = file ? file->read(0, 8) : Result<std::vector<std::byte>>(file.error());
  if (magic.ok()) return has_strata_magic(*magic);
  const ErrorCode code = magic.error().code;
  const bool something_else =
      code == ErrorCode::invalid || code == ErrorCode::not_found;  // a link; gone, or shorter
  if (something_else) return false;
  return magic.error();
}

bool is_ours(FileSystem& files, const std::string& path) {
  const auto ours = carries_magic(files, path);
  return ours.ok() && *ours;
}

// What an unfinished export leaves: .strata-<16 hex>.tmp
bool is_export_temporary(std::string_view name) {
  constexpr std::string_view kFront = ".strata-";
  constexpr std::string_view kEnd = ".tmp";
  return name.size() == kFront.size() + 16 + kEnd.size() && name.starts_with(kFront) && name.ends_with(kEnd);
}

std::string days_text(uint64_t ns) {
  return fmt::format("last used {:.1f} days ago", static_cast<double>(ns) / (86400.0 * kSecondNs));
}

class Planner {
 public:
  Planner(FileSystem& files, const std::string& folder, const GcRules& rules)
      : files_(files), folder_(folder), rules_(rules) {}

  Result<GcPlan> run() {
    STRATA_ASSIGN(std::vector<std::string> names, files_.list(folder_));
    std::sort(names.begin(), names.end());  // the same folder gives the same plan
    for (const std::string& name : names) look_at(name);
    for (StoredIndex& index : indexes_) judge(index);
    admit();
    plan_data();
    for (const auto* part : {&plan_.indexes, &plan_.data})
      for (const GcItem& item : *part) plan_.removed_bytes += item.file_bytes;
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

  void look_at(const std::string& name) {
    if (const auto id = parse_conversation_file_name(name, "idx")) {
      add_index(name, *id);
    } else if (parse_conversation_file_name(name, "idx.tmp") || is_export_temporary(name)) {
      remove_alone(name, SkipReason::orphan, "an interrupted write");
    } else if (parse_conversation_file_name(name, "idx.bad")) {
      remove_alone(name, SkipReason::corrupt, "set aside when its use failed");
    } else if (const auto data = parse_conversation_file_name(name, "sess")) {
      add_data(name, *data);
    }
  }

  // One that cannot even be opened may refer to any data.
  void add_index(const std::string& name, ConversationId id) {
    const auto ours = carries_magic(files_, path(name));
    if (!ours.ok()) {
      unknown_references_ = true;
      plan_.kept.push_back({name, SkipReason::io_error, ours.error().message, 0});
    } else if (*ours) {
      indexes_.push_back({read_stored_head(files_, folder_, name), id});
    }
  }

  void remove_alone(const std::string& name, SkipReason reason, const char* detail) {
    if (is_ours(files_, path(name))) plan_.indexes.push_back({name, reason, detail, bytes_of(name)});
  }

  void add_data(const std::string& name, ConversationId id) {
    if (!is_ours(files_, path(name))) return;
    const auto file = StoredFile::open(files_, path(name));
    const auto bytes =
        file ? file->read(0, limits::kSessionHeaderBytes) : Result<std::vector<std::byte>>(file.error());
    const auto header = bytes ? decode_session_header(*bytes) : Result<SessionHeader>(bytes.error());
    if (header && (header->flags & kSessionSelfContained) != 0) return;  // saved by name
    data_[id] = bytes_of(name);
  }

  [[nodiscard]] uint64_t bytes_of(const std::string& name) {
    const auto info = files_.info(path(name));
    return info ? info->allocated_bytes : 0;
  }

  // ---- indexes

  void judge(StoredIndex& index) {
    const FolderConversation& stored = index.stored;
    if (stored.head && (stored.head->flags & kManifestEphemeral) != 0)
      return remove(index, SkipReason::orphan, "left by a run without persistence");
    if (stored.problem) return judge_problem(index);
    const uint64_t age_ns = rules_.now_wall_ns - std::min(rules_.now_wall_ns, stored.head->last_used_ns);
    if (rules_.older_than_ns != 0 && age_ns > rules_.older_than_ns)
      return remove(index, SkipReason::expired, days_text(age_ns));
    candidates_.push_back(&index);
  }

  void judge_problem(const StoredIndex& index) {
    const Problem& problem = *index.stored.problem;
    const std::string detail = problem.file_name == index.stored.file_name
                                   ? problem.detail
                                   : fmt::format("{}: {}", problem.file_name, problem.detail);
    const bool may_work_elsewhere =
        problem.reason == SkipReason::version || problem.reason == SkipReason::io_error;
    if (!may_work_elsewhere) {
      // Data that is a link or a folder is none.
      return remove(index, problem.reason == SkipReason::foreign ? SkipReason::truncated : problem.reason,
                    detail);
    }
    plan_.kept.push_back({index.stored.file_name, problem.reason, detail, index.stored.file_bytes});
    plan_.staying_bytes += index.stored.file_bytes;
    if (index.stored.head)
      refer(*index.stored.head);
    else
      unknown_references_ = true;
  }

  void remove(const StoredIndex& index, SkipReason reason, const std::string& detail) {
    plan_.indexes.push_back({index.stored.file_name, reason, detail, index.stored.file_bytes});
    removed_[index.id] = reason;
  }

  // ---- what fits the budget, most recently used first; one that does not fit keeps no smaller older one out

  void admit() {
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const StoredIndex* a, const StoredIndex* b) {
      return a->stored.head->last_used_ns > b->stored.head->last_used_ns;
    });
    for (const StoredIndex* index : candidates_) {
      const uint64_t cost = cost_of(*index);
      if (rules_.budget_bytes && plan_.staying_bytes + cost > *rules_.budget_bytes) {
        remove(*index, SkipReason::budget, fmt::format("{} bytes do not fit the budget", cost));
        continue;
      }
      ++plan_.staying_conversations;
      plan_.staying_bytes += index->stored.file_bytes;
      refer(*index->stored.head);
    }
  }

  [[nodiscard]] uint64_t cost_of(const StoredIndex& index) const {
    uint64_t bytes = index.stored.file_bytes;
    for (const ManifestFile& file : index.stored.head->files) {
      const auto data = data_.find(file.id);
      if (data != data_.end() && !referred_.contains(file.id)) bytes += data->second;
    }
    return bytes;
  }

  void refer(const ManifestHead& head) {
    for (const ManifestFile& file : head.files) {
      const auto data = data_.find(file.id);
      if (data != data_.end() && referred_.insert(file.id).second) plan_.staying_bytes += data->second;
    }
  }

  // ---- data

  void plan_data() {
    for (const auto& [id, bytes] : data_) {
      if (referred_.contains(id)) continue;
      GcItem item{session_file_name(id), SkipReason::orphan, "no index refers to it", bytes};
      if (unknown_references_) {
        item.detail = "an index that cannot be read may refer to it";
        plan_.staying_bytes += bytes;
        plan_.kept.push_back(std::move(item));
        continue;
      }
      if (const auto owner = removed_.find(id); owner != removed_.end()) {
        item.reason = owner->second;
        item.detail = "its conversation is removed";
      }
      plan_.data.push_back(std::move(item));
    }
  }

  FileSystem& files_;
  const std::string& folder_;
  const GcRules& rules_;
  std::vector<StoredIndex> indexes_;
  std::vector<const StoredIndex*> candidates_;
  std::map<ConversationId, uint64_t> data_;  // data of conversations, and its bytes on disk
  std::unordered_set<ConversationId> referred_;
  std::unordered_map<ConversationId, SkipReason> removed_;
  bool unknown_references_ = false;
  GcPlan plan_;
};

// True when the file is gone.
bool remove_file(FileSystem& files, const std::string& folder, const GcItem& item, GcOutcome& outcome) {
  const Status status = files.unlink(folder + "/" + item.file_name);
  if (!status && status.error().code != ErrorCode::not_found) {
    outcome.failures.push_back(
        fmt::format("{} cannot be removed: {}", item.file_name, status.error().message));
    return false;
  }
  ++outcome.removed_files;
  outcome.removed_bytes += item.file_bytes;
  return true;
}

}  // namespace

Result<GcPlan> plan_gc(FileSystem& files, const std::string& folder, const GcRules& rules) {
  return Planner(files, folder, rules).run();
}

GcOutcome carry_out_gc(FileSystem& files, const std::string& folder, const GcPlan& plan) {
  GcOutcome outcome;
  bool indexes_gone = true;
  for (const GcItem& item : plan.indexes)
    if (!remove_file(files, folder, item, outcome)) indexes_gone = false;
  if (!plan.indexes.empty()) {
    const Status synced = files.sync_directory(folder);
    if (!synced && synced.error().code != ErrorCode::unsupported) {
      indexes_gone = false;
      outcome.failures.push_back(fmt::format("the folder cannot be flushed: {}", synced.error().message));
    }
  }
  if (!indexes_gone) {  // an index may still be there, or come back: it must find its bytes
    if (!plan.data.empty()) outcome.failures.emplace_back("data stays, as an index may still need it");
    return outcome;
  }
  for (const GcItem& item : plan.data) (void)remove_file(files, folder, item, outcome);
  return outcome;
}

}  // namespace strata
