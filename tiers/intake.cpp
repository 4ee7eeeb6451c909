#include "tiers/intake.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/limits.hpp"
#include "core/session_file.hpp"

namespace strata {
namespace {

constexpr size_t kMaxLoggedRefusals = 20;  // a line each; the rest is in the counters and the summary
constexpr std::string_view kTemporaryExtension = "idx.tmp";
constexpr std::string_view kBadExtension = "idx.bad";

std::string mib(uint64_t bytes) { return std::to_string(bytes / limits::kMiB) + " MiB"; }

// What the folder holds under names of our form.
struct Names {
  std::vector<std::string> indexes;
  std::vector<std::string> sessions;
  std::vector<std::string> temporaries;
  std::vector<std::string> quarantined;
};

Names names_of(std::vector<std::string> all) {
  std::sort(all.begin(), all.end());  // the same folder gives the same report
  Names names;
  for (std::string& name : all) {
    const auto is = [&](std::string_view extension) {
      return parse_conversation_file_name(name, extension).ok();
    };
    if (is("idx")) {
      names.indexes.push_back(std::move(name));
    } else if (is("sess")) {
      names.sessions.push_back(std::move(name));
    } else if (is(kTemporaryExtension)) {
      names.temporaries.push_back(std::move(name));
    } else if (is(kBadExtension)) {
      names.quarantined.push_back(std::move(name));
    }
  }
  return names;
}

// A power cut may leave a name of ours, and space, without the bytes that were written there: zeros where the
// magic should be. Nobody else's file looks like that under such a name. An empty file that takes no space
// may be anybody's.
bool is_torn(std::span<const std::byte> first_bytes, uint64_t allocated_bytes) {
  if (allocated_bytes == 0) return false;
  const auto magic = first_bytes.first(std::min(first_bytes.size(), sizeof(uint64_t)));
  return std::all_of(magic.begin(), magic.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

bool is_ours(std::span<const std::byte> first_bytes, uint64_t allocated_bytes) {
  return has_strata_magic(first_bytes) || is_torn(first_bytes, allocated_bytes);
}

enum class Fate : uint8_t { candidate, taken, kept, removed };

struct Index {
  std::string name;
  ConversationId id;
  uint64_t allocated_bytes = 0;
  std::optional<ManifestHead> head;  // null: could not be read
  Fate fate = Fate::candidate;
  std::optional<size_t> refusal;  // in the report
};

struct Refusal {
  SkipReason reason;
  std::string detail;
};

// The file is longer than what came: that is the disk's failure and says nothing of the content.
Refusal short_read() { return {SkipReason::io_error, "fewer bytes were read than the file has"}; }

SkipReason reason_for(const Error& error) {
  if (error.code == ErrorCode::unsupported) return SkipReason::version;
  return error.code == ErrorCode::corrupt || error.code == ErrorCode::invalid ? SkipReason::corrupt
                                                                              : SkipReason::io_error;
}

// Foreign state: another model's, another version's or damaged. The owner of the folder decides about it.
bool is_foreign(SkipReason reason) {
  return reason == SkipReason::identity || reason == SkipReason::version || reason == SkipReason::corrupt ||
         reason == SkipReason::truncated;
}

class Intake {
 public:
  Intake(FileSystem& files, Log& log, Metrics& metrics, const IntakeRules& rules)
      : files_(files), log_(log), metrics_(metrics), rules_(rules) {}

  Result<IntakeReport> run() {
    STRATA_ASSIGN(std::vector<std::string> all, files_.list(rules_.folder));
    const Names names = names_of(std::move(all));
    find_sessions(names.sessions);
    for (const std::string& name : names.quarantined) count_kept_file(name);
    for (const std::string& name : names.indexes) read_index(name);
    for (Index& index : indexes_) judge(index);
    count_what_stays();
    if (rules_.persist) admit();
    remove_indexes(names.temporaries);
    remove_sessions();
    finish_report();
    return std::move(report_);
  }

 private:
  [[nodiscard]] std::string path(const std::string& name) const { return rules_.folder + "/" + name; }

  void find_sessions(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const ConversationId id = *parse_conversation_file_name(name, "sess");
      const auto info = files_.info(path(name));
      if (!info.ok() && info.error().code != ErrorCode::not_found)
        unreadable_sessions_[id] = info.error().message;
      if (!info.ok() || !info->regular || info->links != 1) continue;
      sessions_[id] = {id, info->size_bytes, info->allocated_bytes};
    }
  }

  void count_kept_file(const std::string& name) {
    const auto info = files_.info(path(name));
    if (info.ok() && info->regular) report_.kept_bytes += info->allocated_bytes;
  }

  // ---- reading heads

  // An index that cannot be read is tried once more: what it shares with others is not known without it.
  void read_index(const std::string& name) {
    Index index{name, *parse_conversation_file_name(name, "idx")};
    std::optional<Refusal> refusal;
    for (int tries = 0; tries < 2; ++tries) {
      refusal.reset();
      if (!read_index_once(index, refusal)) return;
      if (!refusal || refusal->reason != SkipReason::io_error) break;
    }
    if (refusal) return add_refused(std::move(index), std::move(*refusal));
    indexes_.push_back(std::move(index));
  }

  // False when the file is not ours.
  bool read_index_once(Index& index, std::optional<Refusal>& refusal) {
    const auto file = files_.open(path(index.name), OpenMode::read, Caching::buffered);
    if (!file.ok()) {
      const ErrorCode code = file.error().code;
      if (code == ErrorCode::invalid || code == ErrorCode::not_found) return false;  // a link, a folder, gone
      refusal = {SkipReason::io_error, file.error().message};
      return true;
    }
    const bool ours = read_head(*file, index, refusal);
    files_.close(*file);
    return ours;
  }

  // False when the file does not carry our magic. Two reads: the fixed part and the rest of the head.
  bool read_head(FileHandle file, Index& index, std::optional<Refusal>& refusal) {
    const auto info = files_.info(file);
    std::vector<std::byte> bytes(kManifestFixedBytes);
    const auto got = info.ok() ? files_.read_at(file, bytes, 0) : Result<size_t>(info.error());
    if (!got.ok()) {
      refusal = {SkipReason::io_error, got.error().message};
      return true;
    }
    if (*got < std::min<uint64_t>(bytes.size(), info->size_bytes)) {
      refusal = short_read();
      return true;
    }
    bytes.resize(*got);
    if (!has_strata_magic(bytes)) return false;
    index.allocated_bytes = info->allocated_bytes;
    auto head = read_rest_of_head(file, std::move(bytes), info->size_bytes);
    if (!head.has_value()) {
      refusal = std::move(head).error();
    } else if (head->id != index.id) {
      refusal = {SkipReason::corrupt, "the index is of conversation " + to_hex(head->id)};
    } else {
      index.head = std::move(*head);
      index.head->last_used_ns = last_use_ns(*index.head, info->modified_ns);
    }
    return true;
  }

  tl::expected<ManifestHead, Refusal> read_rest_of_head(FileHandle file, std::vector<std::byte> bytes,
                                                        uint64_t size_bytes) {
    const auto refuse = [](SkipReason reason, std::string detail) {
      return tl::unexpected<Refusal>(Refusal{reason, std::move(detail)});
    };
    const auto sizes = peek_manifest(bytes);
    if (!sizes.ok()) return refuse(reason_for(sizes.error()), sizes.error().message);
    if (size_bytes != sizes->total_bytes) {
      const SkipReason reason = size_bytes < sizes->total_bytes ? SkipReason::truncated : SkipReason::corrupt;
      return refuse(reason, "the index has " + std::to_string(size_bytes) + " of " +
                                std::to_string(sizes->total_bytes) + " bytes");
    }
    const size_t have = bytes.size();
    bytes.resize(sizes->head_bytes);
    const auto got = files_.read_at(file, std::span(bytes).subspan(have), have);
    if (!got.ok()) return refuse(SkipReason::io_error, got.error().message);
    if (have + *got < bytes.size()) return tl::unexpected<Refusal>(short_read());
    auto head = decode_manifest_head(bytes);
    if (!head.ok()) return refuse(reason_for(head.error()), head.error().message);
    return std::move(*head);
  }

  // ---- judging

  void judge(Index& index) {
    if (!index.head) return;  // refused already
    if (rules_.remove_all) return refuse(index, {SkipReason::expired, "the folder is emptied at start"});
    const bool ephemeral = (index.head->flags & kManifestEphemeral) != 0;
    if (ephemeral) return refuse(index, {SkipReason::orphan, "left by a run without persistence"});
    if (!rules_.persist) {
      index.fate = Fate::kept;
      return;
    }
    if (auto refusal = reason_against(*index.head)) refuse(index, std::move(*refusal));
  }

  [[nodiscard]] std::optional<Refusal> reason_against(const ManifestHead& head) const {
    const Identity stored{head.model_identity, head.configuration_identity, head.identity_fields};
    if (const auto difference = compare(stored, rules_.identity)) {
      return Refusal{SkipReason::identity,
                     difference->field + ": stored " + difference->stored + ", now " + difference->wanted};
    }
    const bool old =
        rules_.now_wall_ns > head.last_used_ns && rules_.now_wall_ns - head.last_used_ns > rules_.ttl_ns;
    if (rules_.ttl_ns != 0 && old) return Refusal{SkipReason::expired, {}};
    for (const ManifestFile& file : head.files) {
      if (file.needed_length == 0) continue;  // its own file, before it had a block of its own
      const auto unreadable = unreadable_sessions_.find(file.id);
      if (unreadable != unreadable_sessions_.end()) return Refusal{SkipReason::io_error, unreadable->second};
      const auto session = sessions_.find(file.id);
      const std::string name = session_file_name(file.id);
      if (session == sessions_.end()) return Refusal{SkipReason::truncated, name + " is missing"};
      if (session->second.size_bytes < file.needed_length) {
        return Refusal{SkipReason::truncated, name + " has " + std::to_string(session->second.size_bytes) +
                                                  " of " + std::to_string(file.needed_length) + " bytes"};
      }
    }
    return std::nullopt;
  }

  void add_refused(Index index, Refusal refusal) {
    indexes_.push_back(std::move(index));
    refuse(indexes_.back(), std::move(refusal));
  }

  void refuse(Index& index, Refusal refusal) {
    const bool readable = refusal.reason != SkipReason::io_error;
    const bool ephemeral = refusal.reason == SkipReason::orphan;
    const bool unwanted = rules_.persist && (rules_.remove_foreign || !is_foreign(refusal.reason));
    const bool remove = ephemeral || (readable && (unwanted || rules_.remove_all));
    index.fate = remove ? Fate::removed : Fate::kept;
    if (!rules_.persist && !ephemeral && !rules_.remove_all)
      return;  // another run's business: kept, not refused
    index.refusal = report_.refused.size();
    Refused refused{index.name, refusal.reason, std::move(refusal.detail)};
    if (index.head && !ephemeral) {
      refused.prefix_chain = index.head->prefix_chain;
      refused.token_count = index.head->token_count;
    }
    report_.refused.push_back(std::move(refused));
  }

  // ---- what stays, and what fits beside it

  void refer(const Index& index, uint64_t& bytes) {
    if (!index.head) {
      unknown_references_ = true;
      return refer(index.id, bytes);
    }
    for (const ManifestFile& file : index.head->files) refer(file.id, bytes);
  }
  void refer(ConversationId file, uint64_t& bytes) {
    const auto session = sessions_.find(file);
    if (session != sessions_.end() && referred_.insert(file).second) bytes += session->second.allocated_bytes;
  }

  void count_what_stays() {
    for (const Index& index : indexes_) {
      if (index.fate == Fate::kept) keep(index);
    }
    if (!unknown_references_ && rules_.persist) return;
    // Nobody's session files stay, too; candidates count theirs when they are taken.
    std::unordered_set<ConversationId> candidates;
    for (const Index& index : indexes_) {
      if (index.fate != Fate::candidate) continue;
      for (const ManifestFile& file : index.head->files) candidates.insert(file.id);
    }
    for (const auto& [id, session] : sessions_) {
      if (!candidates.contains(id) && stays_unreferred(id)) refer(id, report_.kept_bytes);
    }
  }

  void keep(const Index& index) {
    report_.kept_bytes += index.allocated_bytes;
    refer(index, report_.kept_bytes);
    if (!index.head) return;
    for (const ManifestFile& file : index.head->files) kept_files_.insert(file.id);
  }

  void admit() {
    std::vector<Index*> candidates;
    for (Index& index : indexes_) {
      if (index.fate == Fate::candidate) candidates.push_back(&index);
    }
    // A time in the future, of a clock that jumped, is not more recent than now.
    const auto used = [this](const Index* index) {
      return std::min(index->head->last_used_ns, rules_.now_wall_ns);
    };
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const Index* a, const Index* b) { return used(a) > used(b); });
    for (Index* index : candidates) {
      const uint64_t cost = cost_of(*index);
      if (report_.taken_bytes + report_.kept_bytes + cost > rules_.budget_bytes) {
        refuse(*index,
               {SkipReason::budget, mib(cost) + " do not fit the budget of " + mib(rules_.budget_bytes)});
        continue;
      }
      take(*index);
    }
  }

  [[nodiscard]] uint64_t cost_of(const Index& index) const {
    uint64_t bytes = index.allocated_bytes;
    for (const ManifestFile& file : index.head->files) {
      const auto session = sessions_.find(file.id);
      if (session != sessions_.end() && !referred_.contains(file.id))
        bytes += session->second.allocated_bytes;
    }
    return bytes;
  }

  void take(Index& index) {
    index.fate = Fate::taken;
    report_.taken_bytes += index.allocated_bytes;
    refer(index, report_.taken_bytes);
    for (const ManifestFile& file : index.head->files) taken_files_.insert(file.id);
    report_.taken.push_back({std::move(*index.head), index.allocated_bytes});
  }

  // ---- removal

  void remove_indexes(const std::vector<std::string>& temporaries) {
    bool any = false;
    for (Index& index : indexes_) {
      if (index.fate != Fate::removed) continue;
      if (remove(index.name)) {
        report_.refused[*index.refusal].removed = true;
        any = true;
        continue;
      }
      index.fate = Fate::kept;
      keep(index);
    }
    for (const std::string& name : temporaries) any |= remove_temporary(name);
    if (any && !sync_folder()) unknown_references_ = true;  // an index may come back: it must find its bytes
  }

  bool remove_temporary(const std::string& name) {
    const auto first = first_bytes(name, sizeof(uint64_t));
    const auto info = files_.info(path(name));
    if (!first || !is_ours(*first, info.ok() ? info->allocated_bytes : 0)) return false;
    Refused refused{name, SkipReason::orphan, "an interrupted write"};
    refused.removed = remove(name);
    if (!refused.removed && info.ok()) report_.kept_bytes += info->allocated_bytes;
    report_.refused.push_back(refused);
    return refused.removed;
  }

  void remove_sessions() {
    std::unordered_set<ConversationId> refused_owners;
    for (const Index& index : indexes_) {
      if (index.fate == Fate::removed) refused_owners.insert(index.id);
    }
    for (const auto& [id, session] : sessions_) {
      if (referred_.contains(id)) continue;
      const auto header = first_bytes(session_file_name(id), limits::kSessionHeaderBytes);
      if (!header || !is_ours(*header, session.allocated_bytes)) continue;
      const bool stays = stays_unreferred(*header);
      const bool removed = !stays && remove(session_file_name(id));
      if (!removed) report_.kept_bytes += session.allocated_bytes;
      if (stays || refused_owners.contains(id)) continue;  // its index tells the reason
      report_.refused.push_back(
          {session_file_name(id), SkipReason::orphan, "no index refers to it", removed});
    }
  }

  // Does a session file stay although nothing known refers to it?
  [[nodiscard]] bool stays_unreferred(ConversationId id) {
    const auto header = first_bytes(session_file_name(id), limits::kSessionHeaderBytes);
    return header && is_ours(*header, sessions_.at(id).allocated_bytes) && stays_unreferred(*header);
  }
  [[nodiscard]] bool stays_unreferred(std::span<const std::byte> header_bytes) const {
    const auto header = decode_session_header(header_bytes);
    if (header.ok() && (header->flags & kSessionSelfContained) != 0) return true;
    if (header.ok() && (header->flags & kSessionEphemeral) != 0) return false;
    return unknown_references_ || (!rules_.persist && !rules_.remove_all);
  }

  // Null when they cannot be read, all that there are up to `count`.
  [[nodiscard]] std::optional<std::vector<std::byte>> first_bytes(const std::string& name, size_t count) {
    const auto file = files_.open(path(name), OpenMode::read, Caching::buffered);
    if (!file.ok()) return std::nullopt;
    const auto info = files_.info(*file);
    std::vector<std::byte> bytes(count);
    const auto got = files_.read_at(*file, bytes, 0);
    files_.close(*file);
    if (!info.ok() || !got.ok() || *got < std::min<uint64_t>(count, info->size_bytes)) return std::nullopt;
    bytes.resize(*got);
    return bytes;
  }

  bool remove(const std::string& name) {
    const Status status = files_.unlink(path(name));
    if (status.ok() || status.error().code == ErrorCode::not_found) return true;
    log_.write(LogLevel::warning, "disk: " + name + " cannot be removed: " + status.error().message);
    return false;
  }

  bool sync_folder() {
    const Status status = files_.sync_directory(rules_.folder);
    if (status.ok() || status.error().code == ErrorCode::unsupported) return true;
    log_.write(LogLevel::warning, "disk: the folder cannot be flushed: " + status.error().message);
    return false;
  }

  // ---- report

  void finish_report() {
    for (const ConversationId id : taken_files_) {
      const auto session = sessions_.find(id);
      if (session == sessions_.end()) continue;
      report_.files.push_back(session->second);
      report_.files.back().kept_for_others = kept_files_.contains(id);
    }
    std::sort(report_.files.begin(), report_.files.end(),
              [](const IntakeFile& a, const IntakeFile& b) { return a.id < b.id; });
    std::map<SkipReason, size_t> reasons;
    for (size_t i = 0; i < report_.refused.size(); ++i) {
      const Refused& refused = report_.refused[i];
      ++reasons[refused.reason];
      if (i < kMaxLoggedRefusals) log_refusal(refused);
    }
    log_summary(reasons);
    for (const auto& [reason, count] : reasons) {
      metrics_.add("strata_skips_total", std::string("tier=\"disk\",reason=\"") + label(reason) + '"',
                   static_cast<double>(count));
    }
  }

  void log_refusal(const Refused& refused) {
    log_.write(LogLevel::info, "conversation disk: refused " + refused.file_name + ": " +
                                   label(refused.reason) +
                                   (refused.detail.empty() ? "" : " (" + refused.detail + ")") +
                                   (refused.removed ? ", removed" : ", kept"));
  }

  // Its shape is in docs/engine-protocol.md: dashboards read it.
  void log_summary(const std::map<SkipReason, size_t>& reasons) {
    std::string counts;
    for (const auto& [reason, count] : reasons)
      counts += (counts.empty() ? "" : ", ") + std::string(label(reason)) + " " + std::to_string(count);
    std::string line = "conversation disk: took in " + std::to_string(report_.taken.size()) +
                       " conversations (" + mib(report_.taken_bytes) + "), refused " +
                       std::to_string(report_.refused.size());
    if (!counts.empty()) line += " (" + counts + ")";
    if (report_.kept_bytes > 0) line += ", " + mib(report_.kept_bytes) + " kept that are not in use";
    const bool crowded = report_.kept_bytes > rules_.budget_bytes / 2;
    log_.write(crowded ? LogLevel::warning : LogLevel::info, line);
  }

  FileSystem& files_;
  Log& log_;
  Metrics& metrics_;
  const IntakeRules& rules_;
  std::map<ConversationId, IntakeFile> sessions_;              // regular files of our name
  std::map<ConversationId, std::string> unreadable_sessions_;  // whose size cannot be had now, and why
  std::vector<Index> indexes_;                                 // with our magic
  std::unordered_set<ConversationId> referred_;                // session files that stay, counted
  std::unordered_set<ConversationId> taken_files_;
  std::unordered_set<ConversationId> kept_files_;  // of indexes that stay without being taken in
  bool unknown_references_ = false;                // an index stays whose files are not known
  IntakeReport report_;
};

}  // namespace

Result<IntakeReport> take_in(FileSystem& files, Log& log, Metrics& metrics, const IntakeRules& rules) {
  return Intake(files, log, metrics, rules).run();
}

}  // namespace strata
