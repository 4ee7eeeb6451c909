#include "engine/cli/sessions_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

#include "core/json_writer.hpp"
#include "core/limits.hpp"

namespace strata::cli {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

std::string age_text(uint64_t then_ns, uint64_t now_ns) {
  const uint64_t seconds = (now_ns - std::min(now_ns, then_ns)) / kSecondNs;
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 120 * 60) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

std::string time_text(uint64_t wall_ns) {
  const auto seconds = static_cast<time_t>(wall_ns / kSecondNs);
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "unknown";
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

std::string state_text(const FolderConversation& stored) {
  if (!stored.problem) return stored.self_contained ? "ok, saved" : "ok";
  return printable(fmt::format("{}: {}: {}", label(stored.problem->reason), stored.problem->file_name,
                               stored.problem->detail));
}

struct Total {
  uint64_t count = 0;
  uint64_t bytes = 0;
};

Total total_of(const Manifest& manifest, PartKind kind) {
  Total total;
  for (const ManifestPart& part : manifest.parts) {
    if (part.kind != kind) continue;
    ++total.count;
    total.bytes += part.length;
  }
  return total;
}

Total total_in_file(const Manifest& manifest, size_t file) {
  Total total;
  for (const ManifestPart& part : manifest.parts) {
    if (part.file != file) continue;
    ++total.count;
    total.bytes += part.length;
  }
  return total;
}

constexpr std::array kKinds = {PartKind::block, PartKind::checkpoint, PartKind::live};

class Rows {
 public:
  template <class... Args>
  void add(std::string_view name, fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), "{:<24} {}\n", name,
                   printable(fmt::format(text, std::forward<Args>(args)...)));
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_parts(Rows& rows, const Manifest& manifest) {
  for (const PartKind kind : kKinds) {
    const Total total = total_of(manifest, kind);
    rows.add(fmt::format("parts: {}", to_string(kind)), "{}, {}", total.count, size_text(total.bytes));
  }
}

void add_files(Rows& rows, const ManifestHead& head, const Manifest* manifest) {
  for (size_t i = 0; i < head.files.size(); ++i) {
    const ManifestFile& file = head.files[i];
    std::string text = fmt::format("{}, at least {} bytes", session_file_name(file.id), file.needed_length);
    if (manifest != nullptr) {
      const Total total = total_in_file(*manifest, i);
      text += fmt::format(", {} parts of {}", total.count, size_text(total.bytes));
    }
    rows.add(i == 0 ? "file: own" : "file: inherited", "{}", text);
  }
}

void write_problem_fields(JsonWriter& json, const Problem& problem) {
  json.member("file", problem.file_name)
      .member("reason", label(problem.reason))
      .member("detail", problem.detail);
}

void write_leftovers(JsonWriter& json, const std::vector<Leftover>& leftovers) {
  json.key("leftovers").begin_array();
  for (const Leftover& leftover : leftovers)
    json.begin_object()
        .member("file", leftover.file_name)
        .member("what", leftover.what)
        .member("bytes", leftover.file_bytes)
        .end_object();
  json.end_array();
}

// The fields of `list`; `info` adds to them.
void write_summary(JsonWriter& json, const FolderConversation& stored) {
  json.member("file", stored.file_name).member("file_bytes", stored.file_bytes);
  json.member("self_contained", stored.self_contained).member("ok", !stored.problem);
  if (stored.problem) {
    json.key("problem").begin_object();
    write_problem_fields(json, *stored.problem);
    json.end_object();
  }
  if (!stored.head) return;
  const ManifestHead& head = *stored.head;
  json.member("id", to_hex(head.id))
      .member("tokens", head.token_count)
      .member("payload_bytes", head.payload_bytes);
  json.member("created_ns", head.created_ns)
      .member("last_used_ns", head.last_used_ns)
      .member("label", head.label);
}

void write_head(JsonWriter& json, const ManifestHead& head) {
  json.member("generation", head.generation).member("ephemeral", (head.flags & kManifestEphemeral) != 0);
  json.member("model_identity", to_hex(head.model_identity));
  json.member("configuration_identity", to_hex(head.configuration_identity));
  json.key("identity_fields").begin_array();
  for (const IdentityField& field : head.identity_fields)
    json.begin_object().member("name", field.name).member("value", field.value).end_object();
  json.end_array();
  json.member("salt", fmt::format("{:016x}", head.salt)).member("stages", head.stage_count);
  json.member("tokens_per_block", head.tokens_per_block).member("media_marks", head.media_count);
  json.member("blocks", head.block_count).member("checkpoints", head.checkpoint_count);
  json.key("resume_positions").begin_array();
  for (const uint32_t position : head.resume_positions) json.value(position);
  json.end_array();
  json.member("head_bytes", head.head_bytes).member("index_bytes", head.total_bytes);
}

void write_files(JsonWriter& json, const ManifestHead& head, const Manifest* manifest) {
  json.key("files").begin_array();
  for (size_t i = 0; i < head.files.size(); ++i) {
    json.begin_object().member("file", session_file_name(head.files[i].id)).member("own", i == 0);
    json.member("needed_bytes", head.files[i].needed_length);
    if (manifest != nullptr) {
      const Total total = total_in_file(*manifest, i);
      json.member("parts", total.count).member("payload_bytes", total.bytes);
    }
    json.end_object();
  }
  json.end_array();
}

void write_parts(JsonWriter& json, const Manifest& manifest) {
  json.key("parts").begin_object();
  for (const PartKind kind : kKinds) {
    const Total total = total_of(manifest, kind);
    json.key(to_string(kind))
        .begin_object()
        .member("count", total.count)
        .member("bytes", total.bytes)
        .end_object();
  }
  json.end_object();
}

std::string finding_text(const Finding& finding) {
  const Problem& problem = finding.problem;
  std::string text = fmt::format("{}: {}: {}", problem.file_name, label(problem.reason), problem.detail);
  const bool own_file =
      finding.conversations.size() == 1 && finding.conversations.front() == problem.file_name;
  if (!own_file) text += fmt::format("; needed by {}", fmt::join(finding.conversations, ", "));
  return printable(text) + "\n";
}

std::string leftovers_text(const std::vector<Leftover>& leftovers) {
  std::string text;
  for (const Leftover& leftover : leftovers)
    text += fmt::format("{}: {}, {}\n", printable(leftover.file_name), leftover.what,
                        size_text(leftover.file_bytes));
  return text;
}

}  // namespace

// A label comes from a file: it must not be able to steer the terminal.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; },
      '?');
  return text;
}

std::string size_text(uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < limits::kKiB) return fmt::format("{} bytes", bytes);
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string list_text(const FolderListing& listing, uint64_t now_wall_ns) {
  constexpr const char* kRow = "{:<17} {:>9} {:>11} {:>8} {:>9}  {:<24} {}\n";
  std::string text =
      fmt::format(kRow, "conversation", "tokens", "bytes", "age", "last used", "label", "state");
  for (const FolderConversation& stored : listing.conversations) {
    if (!stored.head) {
      text += fmt::format(kRow, "-", "-", "-", "-", "-", "", state_text(stored));
      continue;
    }
    const ManifestHead& head = *stored.head;
    text += fmt::format(kRow, to_hex(head.id), head.token_count, size_text(head.payload_bytes),
                        age_text(head.created_ns, now_wall_ns), age_text(head.last_used_ns, now_wall_ns),
                        printable(head.label), state_text(stored));
  }
  return text + leftovers_text(listing.leftovers);
}

std::string list_json(const FolderListing& listing) {
  JsonWriter json;
  json.begin_object().key("conversations").begin_array();
  for (const FolderConversation& stored : listing.conversations) {
    json.begin_object();
    write_summary(json, stored);
    json.end_object();
  }
  json.end_array();
  write_leftovers(json, listing.leftovers);
  json.end_object();
  return json.take() + "\n";
}

std::string info_text(const ConversationDetail& detail, uint64_t now_wall_ns) {
  const FolderConversation& stored = detail.stored;
  Rows rows;
  rows.add("state", "{}", state_text(stored));
  rows.add("stored as", "{}, {} on disk", stored.file_name, size_text(stored.file_bytes));
  if (!stored.head) return rows.take();
  const ManifestHead& head = *stored.head;
  rows.add("conversation", "{}", to_hex(head.id));
  if (!head.label.empty()) rows.add("label", "{}", head.label);
  rows.add("tokens", "{}", head.token_count);
  rows.add("media marks", "{}", head.media_count);
  rows.add("payload", "{}", size_text(head.payload_bytes));
  rows.add("generation", "{}", head.generation);
  rows.add("created", "{} ({} ago)", time_text(head.created_ns), age_text(head.created_ns, now_wall_ns));
  rows.add("last used", "{} ({} ago)", time_text(head.last_used_ns),
           age_text(head.last_used_ns, now_wall_ns));
  rows.add("bound to one run", "{}", (head.flags & kManifestEphemeral) != 0 ? "yes" : "no");
  rows.add("stages", "{}", head.stage_count);
  rows.add("tokens a block", "{}", head.tokens_per_block);
  rows.add("resume positions", "{}", fmt::join(head.resume_positions, " "));
  rows.add("prefix links", "{}", head.prefix_chain.size());
  rows.add("salt", "{:016x}", head.salt);
  rows.add("model identity", "{}", to_hex(head.model_identity));
  rows.add("configuration identity", "{}", to_hex(head.configuration_identity));
  for (const IdentityField& field : head.identity_fields)
    rows.add("identity: " + printable(field.name), "{}", field.value);
  if (detail.manifest != nullptr) add_parts(rows, *detail.manifest);
  add_files(rows, head, detail.manifest);
  rows.add("index", "{} bytes, {} of them head", head.total_bytes, head.head_bytes);
  return rows.take();
}

std::string info_json(const ConversationDetail& detail) {
  JsonWriter json;
  json.begin_object();
  write_summary(json, detail.stored);
  if (detail.stored.head) {
    write_head(json, *detail.stored.head);
    write_files(json, *detail.stored.head, detail.manifest);
  }
  if (detail.manifest != nullptr) write_parts(json, *detail.manifest);
  json.end_object();
  return json.take() + "\n";
}

std::string info_list_json(const std::vector<std::string>& infos) {
  JsonWriter json;
  json.begin_object().key("conversations").begin_array();
  for (const std::string& info : infos)
    json.raw(std::string_view(info).substr(0, info.find_last_not_of('\n') + 1));
  json.end_array().end_object();
  return json.take() + "\n";
}

std::string verify_text(const FolderVerdict& verdict) {
  std::string text;
  for (const Finding& finding : verdict.findings) text += finding_text(finding);
  text += leftovers_text(verdict.leftovers);
  return text + fmt::format("{} conversations, {} read, {} bad\n", verdict.conversations,
                            size_text(verdict.checked_bytes), verdict.bad_conversations);
}

std::string verify_json(const FolderVerdict& verdict) {
  JsonWriter json;
  json.begin_object()
      .member("conversations", verdict.conversations)
      .member("bad", verdict.bad_conversations)
      .member("checked_bytes", verdict.checked_bytes);
  json.key("problems").begin_array();
  for (const Finding& finding : verdict.findings) {
    json.begin_object();
    write_problem_fields(json, finding.problem);
    json.key("conversations").begin_array();
    for (const std::string& conversation : finding.conversations) json.value(conversation);
    json.end_array().end_object();
  }
  json.end_array();
  write_leftovers(json, verdict.leftovers);
  json.end_object();
  return json.take() + "\n";
}

}  // namespace strata::cli
