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
#include "core/posix/random.hpp"
#include "engine/cli/sessions_parts.hpp"
#include "engine/cli/sessions_text.hpp"

namespace strata::cli {

namespace {

// ---- list

int list_sessions(const SessionsOptions& options, const SessionsPorts& ports) {
  const auto listing = list_folder(ports.files, options.path);
  if (!listing) return fail(ports, kBad, listing.error().message);
  ports.out << (options.json ? list_json(*listing) : list_text(*listing, ports.clock.wall_ns()));
  return kDone;
}

// ---- info

// Reads one conversation and writes it to `text`; false when something is wrong with it.
bool describe(const SessionsOptions& options, const SessionsPorts& ports, const Target& target,
              std::string& text) {
  FolderConversation stored = read_stored_head(ports.files, target.folder, target.file_name);
  const auto manifest = read_stored_manifest(ports.files, target.folder, target.file_name);
  if (!manifest && !stored.problem)
    stored.problem = Problem{stored.file_name, SkipReason::corrupt, manifest.error().message};
  const ConversationDetail detail{stored, manifest ? &*manifest : nullptr};
  text += options.json ? info_json(detail) : info_text(detail, ports.clock.wall_ns());
  return !stored.problem;
}

int show_folder(const SessionsOptions& options, const SessionsPorts& ports) {
  const auto listing = list_folder(ports.files, options.path);
  if (!listing) return fail(ports, kBad, listing.error().message);
  int status = kDone;
  std::vector<std::string> texts;
  for (const FolderConversation& stored : listing->conversations)
    if (!describe(options, ports, {options.path, stored.file_name}, texts.emplace_back())) status = kBad;
  if (options.json)
    ports.out << info_list_json(texts);
  else
    ports.out << fmt::format("{}", fmt::join(texts, "\n"));
  return status;
}

int show_session(const SessionsOptions& options, const SessionsPorts& ports) {
  const auto info = ports.files.info(options.path);
  if (info && info->directory && options.id.empty()) return show_folder(options, ports);
  const auto target = find_target(options, ports.files);
  if (!target) return fail(ports, target.error());
  std::string text;
  const bool good = describe(options, ports, *target, text);
  ports.out << text;
  return good ? kDone : kBad;
}

// ---- verify

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

// What verify looks at: a folder, or one index or session file.
Result<FolderListing> listing_to_verify(const SessionsOptions& options, FileSystem& files,
                                        std::string& folder) {
  STRATA_ASSIGN(const FileInfo info, files.info(options.path));
  if (info.directory) return list_folder(files, folder = options.path);
  STRATA_ASSIGN(const Target target, find_target(options, files));
  FolderListing listing;
  listing.conversations.push_back(read_stored_head(files, folder = target.folder, target.file_name));
  return listing;
}

int verify_sessions(const SessionsOptions& options, const SessionsPorts& ports) {
  std::string folder;
  auto listing = listing_to_verify(options, ports.files, folder);
  if (!listing) return fail(ports, kBad, listing.error().message);
  ProgressLine progress(options, ports, "verified", payload_bytes(*listing));
  FolderVerdict verdict;
  verdict.leftovers = std::move(listing->leftovers);
  for (const FolderConversation& stored : listing->conversations) {
    const Verification found =
        verify_stored(ports.files, folder, stored.file_name, [&](uint64_t bytes) { progress.add(bytes); });
    if (found.gone) continue;
    ++verdict.conversations;
    if (!found.problems.empty()) ++verdict.bad_conversations;
    verdict.checked_bytes += found.checked_bytes;
    for (const Problem& problem : found.problems) add_finding(verdict, problem, stored.file_name);
  }
  progress.clear();
  ports.out << (options.json ? verify_json(verdict) : verify_text(verdict));
  return verdict.bad_conversations == 0 ? kDone : kBad;
}

// ---- command line

CLI::App* add_action(CLI::App& command, int& exit_status, const std::shared_ptr<SessionsOptions>& options,
                     const char* name, const char* what) {
  CLI::App* sub = command.add_subcommand(name, what);
  const bool one_file = options->action == SessionsAction::info || options->action == SessionsAction::verify;
  sub->add_option(one_file ? "PATH" : "DIR", options->path,
                  one_file ? "folder of stored conversations, or one index or session file"
                           : "folder of stored conversations")
      ->required()
      ->type_name("");
  sub->add_flag("--json", options->json, "print one JSON object");
  sub->callback([options, &exit_status] {
    PosixFileSystem files;
    PosixClock clock;
    PosixRandom random;
    options->show_progress = ::isatty(STDERR_FILENO) == 1;
    exit_status = run_sessions(*options, {files, clock, random, std::cout, std::cerr});
  });
  return sub;
}

std::shared_ptr<SessionsOptions> options_of(SessionsAction action) {
  auto options = std::make_shared<SessionsOptions>();
  options->action = action;
  return options;
}

void add_info(CLI::App& command, int& exit_status) {
  const auto options = options_of(SessionsAction::info);
  CLI::App* sub = add_action(command, exit_status, options, "info",
                             "everything about one conversation, or about each of a folder");
  sub->add_option("ID", options->id,
                  "one conversation of the folder: 16 hex digits or a file name; all without it")
      ->type_name("");
}

std::string check_age(std::string& text) {
  const auto age = parse_age(text);
  return age.ok() ? std::string() : age.error().message;
}

void add_gc(CLI::App& command, int& exit_status) {
  const auto options = options_of(SessionsAction::gc);
  CLI::App* sub =
      add_action(command, exit_status, options, "gc",
                 "removes what nobody can use any more, and on demand what is old or too much; no "
                 "server may use the folder meanwhile");
  sub->add_flag("--dry-run", options->dry_run, "name what would be removed and why; change nothing");
  sub->add_option("--older-than", options->older_than,
                  "also conversations last used longer ago: days, or with a unit (30d, 12h, 90m)")
      ->check(CLI::Validator(check_age, ""))
      ->type_name("AGE");
  sub->add_option("--budget-mib", options->budget_mib,
                  "also the least recently used ones, until the rest takes no more MiB of disk")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 30))
      ->type_name("MIB");
}

void add_export(CLI::App& command, int& exit_status) {
  const auto options = options_of(SessionsAction::export_one);
  CLI::App* sub =
      add_action(command, exit_status, options, "export",
                 "copies one conversation into a file of its own that holds everything, each byte checked");
  sub->add_option("CONVERSATION", options->id, "16 hex digits or a file name")->required()->type_name("");
  sub->add_option("FILE", options->target, "file to write")->required()->type_name("");
  sub->add_flag("--force", options->force, "replace FILE if it is there");
}

}  // namespace

int run_sessions(const SessionsOptions& options, const SessionsPorts& ports) {
  switch (options.action) {
    case SessionsAction::list:
      return list_sessions(options, ports);
    case SessionsAction::info:
      return show_session(options, ports);
    case SessionsAction::verify:
      return verify_sessions(options, ports);
    case SessionsAction::gc:
      return gc_sessions(options, ports);
    case SessionsAction::export_one:
      return export_session(options, ports);
  }
  return kWrongUse;
}

void add_sessions_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("sessions", "stored conversations, offline");
  command->require_subcommand(1);
  add_action(*command, exit_status, options_of(SessionsAction::list), "list",
             "what is stored: reads the heads of the indexes only");
  add_info(*command, exit_status);
  add_action(*command, exit_status, options_of(SessionsAction::verify), "verify",
             "reads every byte and names each bad file with its reason; exit status 1 if there is one");
  add_gc(*command, exit_status);
  add_export(*command, exit_status);
}

}  // namespace strata::cli
