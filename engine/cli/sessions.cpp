#include "engine/cli/sessions.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <ostream>
#include <vector>

#include "core/folder_check.hpp"
#include "core/posix/clock.hpp"
#include "core/posix/file_system.hpp"
#include "engine/cli/sessions_text.hpp"

namespace strata::cli {

namespace {

constexpr int kDone = 0;
constexpr int kBad = 1;
constexpr int kWrongUse = 2;
constexpr uint64_t kProgressIntervalNs = 200'000'000;

int fail(std::ostream& err, int status, const std::string& message) {
  err << "strata: " << message << '\n';
  return status;
}

// ---- list

int list_sessions(const SessionsOptions& options, FileSystem& files, Clock& clock, std::ostream& out,
                  std::ostream& err) {
  const auto listing = list_folder(files, options.path);
  if (!listing) return fail(err, kBad, listing.error().message);
  out << (options.json ? list_json(*listing) : list_text(*listing, clock.wall_ns()));
  return kDone;
}

// ---- info

struct Target {
  std::string folder;
  std::string file_name;
};

// A conversation's data file stands for its index, unless it is self-contained.
Target with_index(FileSystem& files, Target target) {
  const auto id = parse_conversation_file_name(target.file_name, "sess");
  const bool indexed = id && files.info(target.folder + "/" + index_file_name(*id)).ok();
  if (indexed) target.file_name = index_file_name(*id);
  return target;
}

Result<Target> find_target(const SessionsOptions& options, FileSystem& files) {
  STRATA_ASSIGN(const FileInfo info, files.info(options.path));
  if (!info.directory) {
    if (!options.id.empty()) return make_error(ErrorCode::invalid, options.path + ": not a folder");
    const size_t slash = options.path.rfind('/');
    const std::string folder =
        slash == std::string::npos ? "." : options.path.substr(0, std::max<size_t>(slash, 1));
    return with_index(files, {folder, options.path.substr(slash + 1)});
  }
  if (options.id.find('/') != std::string::npos)
    return make_error(ErrorCode::invalid, options.id + ": not a conversation ID");
  const bool is_id = parse_conversation_file_name("conv-" + options.id + ".idx", "idx").ok();
  return with_index(files, {options.path, is_id ? "conv-" + options.id + ".idx" : options.id});
}

// Reads one conversation and writes it to `text`; false when something is wrong with it.
bool describe(const SessionsOptions& options, FileSystem& files, Clock& clock, const Target& target,
              std::string& text) {
  FolderConversation stored = read_stored_head(files, target.folder, target.file_name);
  const auto manifest = read_stored_manifest(files, target.folder, target.file_name);
  if (!manifest && !stored.problem)
    stored.problem = Problem{stored.file_name, SkipReason::corrupt, manifest.error().message};
  const ConversationDetail detail{stored, manifest ? &*manifest : nullptr};
  text += options.json ? info_json(detail) : info_text(detail, clock.wall_ns());
  return !stored.problem;
}

int show_folder(const SessionsOptions& options, FileSystem& files, Clock& clock, std::ostream& out,
                std::ostream& err) {
  const auto listing = list_folder(files, options.path);
  if (!listing) return fail(err, kBad, listing.error().message);
  int status = kDone;
  std::vector<std::string> texts;
  for (const FolderConversation& stored : listing->conversations)
    if (!describe(options, files, clock, {options.path, stored.file_name}, texts.emplace_back()))
      status = kBad;
  if (options.json)
    out << info_list_json(texts);
  else
    out << fmt::format("{}", fmt::join(texts, "\n"));
  return status;
}

int show_session(const SessionsOptions& options, FileSystem& files, Clock& clock, std::ostream& out,
                 std::ostream& err) {
  const auto info = files.info(options.path);
  if (info && info->directory && options.id.empty()) return show_folder(options, files, clock, out, err);
  const auto target = find_target(options, files);
  if (!target)
    return fail(err, target.error().code == ErrorCode::invalid ? kWrongUse : kBad, target.error().message);
  std::string text;
  const bool good = describe(options, files, clock, *target, text);
  out << text;
  return good ? kDone : kBad;
}

// ---- verify

// One line that is rewritten, at most a few times a second.
class ProgressLine {
 public:
  ProgressLine(const SessionsOptions& options, Clock& clock, std::ostream& err, uint64_t total_bytes)
      : show_(options.show_progress), clock_(clock), err_(err), total_bytes_(total_bytes) {}

  void add(uint64_t bytes) {
    done_bytes_ += bytes;
    if (!show_ || clock_.monotonic_ns() < next_ns_) return;
    next_ns_ = clock_.monotonic_ns() + kProgressIntervalNs;
    err_ << fmt::format("\rverified {} of {}\x1b[K", size_text(done_bytes_), size_text(total_bytes_))
         << std::flush;
  }
  void clear() {
    if (show_) err_ << "\r\x1b[K" << std::flush;
  }

 private:
  bool show_;
  Clock& clock_;
  std::ostream& err_;
  uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
  uint64_t next_ns_ = 0;
};

uint64_t payload_bytes(const FolderListing& listing) {
  uint64_t bytes = 0;
  for (const FolderConversation& stored : listing.conversations)
    if (stored.head) bytes += stored.head->payload_bytes;
  return bytes;
}

void add_finding(FolderVerdict& verdict, const Problem& problem, const std::string& conversation) {
  const auto same =
      std::find_if(verdict.findings.begin(), verdict.findings.end(), [&](const Finding& finding) {
        return finding.problem.file_name == problem.file_name && finding.problem.detail == problem.detail;
      });
  if (same != verdict.findings.end())
    same->conversations.push_back(conversation);
  else
    verdict.findings.push_back({problem, {conversation}});
}

int verify_sessions(const SessionsOptions& options, FileSystem& files, Clock& clock, std::ostream& out,
                    std::ostream& err) {
  auto listing = list_folder(files, options.path);
  if (!listing) return fail(err, kBad, listing.error().message);
  ProgressLine progress(options, clock, err, payload_bytes(*listing));
  FolderVerdict verdict;
  verdict.leftovers = std::move(listing->leftovers);
  for (const FolderConversation& stored : listing->conversations) {
    const Verification found =
        verify_stored(files, options.path, stored.file_name, [&](uint64_t bytes) { progress.add(bytes); });
    if (found.gone) continue;
    ++verdict.conversations;
    if (!found.problems.empty()) ++verdict.bad_conversations;
    verdict.checked_bytes += found.checked_bytes;
    for (const Problem& problem : found.problems) add_finding(verdict, problem, stored.file_name);
  }
  progress.clear();
  out << (options.json ? verify_json(verdict) : verify_text(verdict));
  return verdict.bad_conversations == 0 ? kDone : kBad;
}

// ---- command line

void add_action(CLI::App& command, int& exit_status, SessionsAction action, const char* name,
                const char* what) {
  CLI::App* sub = command.add_subcommand(name, what);
  auto options = std::make_shared<SessionsOptions>();
  options->action = action;
  const bool info = action == SessionsAction::info;
  sub->add_option(info ? "PATH" : "DIR", options->path,
                  info ? "folder of stored conversations, or one index or session file"
                       : "folder of stored conversations")
      ->required()
      ->type_name("");
  if (info)
    sub->add_option("ID", options->id,
                    "one conversation of the folder: 16 hex digits or a file name; all without it")
        ->type_name("");
  sub->add_flag("--json", options->json, "print one JSON object");
  sub->callback([options, &exit_status] {
    PosixFileSystem files;
    PosixClock clock;
    options->show_progress = ::isatty(STDERR_FILENO) == 1;
    exit_status = run_sessions(*options, files, clock, std::cout, std::cerr);
  });
}

}  // namespace

int run_sessions(const SessionsOptions& options, FileSystem& files, Clock& clock, std::ostream& out,
                 std::ostream& err) {
  switch (options.action) {
    case SessionsAction::list:
      return list_sessions(options, files, clock, out, err);
    case SessionsAction::info:
      return show_session(options, files, clock, out, err);
    case SessionsAction::verify:
      return verify_sessions(options, files, clock, out, err);
  }
  return kWrongUse;
}

void add_sessions_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("sessions", "stored conversations, offline");
  command->require_subcommand(1);
  add_action(*command, exit_status, SessionsAction::list, "list",
             "what is stored: reads the heads of the indexes only");
  add_action(*command, exit_status, SessionsAction::info, "info",
             "everything about one conversation, or about each of a folder");
  add_action(*command, exit_status, SessionsAction::verify, "verify",
             "reads every byte and names each bad file with its reason; exit status 1 if there is one");
}

}  // namespace strata::cli
