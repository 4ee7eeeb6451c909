// strata sessions gc: what a folder holds that nobody can use any more, and on demand what is old or too
// much.
#include <cerrno>
#include <charconv>
#include <optional>
#include <ostream>

#include "core/folder_gc.hpp"
#include "core/limits.hpp"
#include "engine/cli/sessions_parts.hpp"
#include "engine/cli/sessions_text.hpp"

namespace strata::cli {

namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;
constexpr uint64_t kDayNs = 24 * 60 * kMinuteNs;
constexpr uint64_t kMaxDays = 36'500;

// The folder's lock, as long as this lives. A folder that never had one is not given one: looking leaves
// nothing behind.
class FolderLock {
 public:
  static Result<FolderLock> take(FileSystem& files, const std::string& folder, bool create) {
    const std::string path = folder + "/LOCK";
    const auto there = files.info(path);
    const bool missing = !there.ok() && there.error().code == ErrorCode::not_found;
    if (missing && !create) return FolderLock(files, {});
    auto lock = files.lock(path);
    if (lock.ok()) return FolderLock(files, *lock);
    if (lock.error().os_errno == EWOULDBLOCK)
      return make_error(ErrorCode::unavailable, folder + " is in use by another process; end it first");
    return lock.error();
  }
  FolderLock(FolderLock&& other) noexcept : files_(other.files_), lock_(std::exchange(other.lock_, {})) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock() {
    if (lock_) files_.unlock(lock_);
  }

 private:
  FolderLock(FileSystem& files, FileHandle lock) : files_(files), lock_(lock) {}
  FileSystem& files_;
  FileHandle lock_;
};

Result<GcRules> rules_of(const SessionsOptions& options, Clock& clock) {
  GcRules rules;
  rules.now_wall_ns = clock.wall_ns();
  if (!options.older_than.empty()) {
    STRATA_ASSIGN(rules.older_than_ns, parse_age(options.older_than));
  }
  if (options.budget_mib) rules.budget_bytes = *options.budget_mib * limits::kMiB;
  return rules;
}

bool is_empty(const GcPlan& plan) { return plan.indexes.empty() && plan.data.empty(); }

}  // namespace

Result<uint64_t> parse_age(const std::string& text) {
  uint64_t count = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, count);
  const std::string unit(end, last);
  const uint64_t unit_ns = unit.empty() || unit == "d" ? kDayNs : unit == "h" ? 60 * kMinuteNs : kMinuteNs;
  const bool known = unit.empty() || unit == "d" || unit == "h" || unit == "m";
  if (error != std::errc() || !known || count == 0 || count > kMaxDays * kDayNs / unit_ns)
    return make_error(ErrorCode::invalid,
                      "'" + text + "' is not an age: 1 to 36500 days, as 30, 30d, 12h or 90m");
  return count * unit_ns;
}

int gc_sessions(const SessionsOptions& options, const SessionsPorts& ports) {
  const auto rules = rules_of(options, ports.clock);
  if (!rules) return fail(ports, rules.error());
  // A first look says whether there is anything of ours to lock for.
  auto plan = plan_gc(ports.files, options.path, *rules);
  if (!plan) return fail(ports, kBad, plan.error().message);
  const auto lock = FolderLock::take(ports.files, options.path, !options.dry_run && !is_empty(*plan));
  if (!lock) return fail(ports, kBad, lock.error().message);
  plan = plan_gc(ports.files, options.path, *rules);
  if (!plan) return fail(ports, kBad, plan.error().message);
  std::optional<GcOutcome> outcome;
  if (!options.dry_run) outcome = carry_out_gc(ports.files, options.path, *plan);
  const GcOutcome* done = outcome ? &*outcome : nullptr;
  ports.out << (options.json ? gc_json(*plan, done) : gc_text(*plan, done));
  return done == nullptr || done->failures.empty() ? kDone : kBad;
}

}  // namespace strata::cli
