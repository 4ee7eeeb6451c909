// How stored conversations are shown: as text for people, as JSON for programs. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/folder_check.hpp"
#include "core/folder_gc.hpp"
#include "core/manifest.hpp"
#include "core/session_export.hpp"

namespace strata::cli {

// Shared data that is bad is one finding, with every conversation that needs it.
struct Finding {
  Problem problem;
  std::vector<std::string> conversations;  // their files
};

// What `verify` found in a whole folder.
struct FolderVerdict {
  uint64_t conversations = 0;
  uint64_t bad_conversations = 0;
  uint64_t checked_bytes = 0;
  std::vector<Finding> findings;
  std::vector<Leftover> leftovers;
};

// One conversation in full; `manifest` is null when its body cannot be read.
struct ConversationDetail {
  const FolderConversation& stored;
  const Manifest* manifest = nullptr;
};

[[nodiscard]] std::string list_text(const FolderListing& listing, uint64_t now_wall_ns);
[[nodiscard]] std::string list_json(const FolderListing& listing);
[[nodiscard]] std::string info_text(const ConversationDetail& detail, uint64_t now_wall_ns);
[[nodiscard]] std::string info_json(const ConversationDetail& detail);
[[nodiscard]] std::string info_list_json(const std::vector<std::string>& infos);  // of info_json
[[nodiscard]] std::string verify_text(const FolderVerdict& verdict);
[[nodiscard]] std::string verify_json(const FolderVerdict& verdict);

// `outcome` is null when nothing was removed, but only shown.
[[nodiscard]] std::string gc_text(const GcPlan& plan, const GcOutcome* outcome);
[[nodiscard]] std::string gc_json(const GcPlan& plan, const GcOutcome* outcome);
[[nodiscard]] std::string export_text(const ExportReport& report, const std::string& target);
[[nodiscard]] std::string export_json(const ExportReport& report, const std::string& target);

[[nodiscard]] std::string printable(std::string text);  // cannot steer a terminal
[[nodiscard]] std::string size_text(uint64_t bytes);    // "12.3 MiB"

}  // namespace strata::cli
