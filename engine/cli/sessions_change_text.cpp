// What `sessions gc` and `sessions export` print.
#include <fmt/format.h>

#include "core/json_writer.hpp"
#include "engine/cli/sessions_text.hpp"

namespace strata::cli {

namespace {

std::string item_text(const char* what, const GcItem& item) {
  return fmt::format("{} {}: {} ({}), {}\n", what, printable(item.file_name), label(item.reason),
                     printable(item.detail), size_text(item.file_bytes));
}

void write_items(JsonWriter& json, const std::vector<GcItem>& items) {
  for (const GcItem& item : items)
    json.begin_object()
        .member("file", item.file_name)
        .member("reason", label(item.reason))
        .member("detail", item.detail)
        .member("bytes", item.file_bytes)
        .end_object();
}

}  // namespace

std::string gc_text(const GcPlan& plan, const GcOutcome* outcome) {
  const char* const verb = outcome == nullptr ? "would remove" : "remove";
  std::string text;
  for (const GcItem& item : plan.indexes) text += item_text(verb, item);
  for (const GcItem& item : plan.data) text += item_text(verb, item);
  for (const GcItem& item : plan.kept) text += item_text("keep", item);
  if (outcome != nullptr)
    for (const std::string& failure : outcome->failures) text += printable(failure) + "\n";
  const uint64_t files = outcome == nullptr ? plan.indexes.size() + plan.data.size() : outcome->removed_files;
  const uint64_t bytes = outcome == nullptr ? plan.removed_bytes : outcome->removed_bytes;
  return text + fmt::format("{} {} files, {}; {} conversations stay\n",
                            outcome == nullptr ? "would remove" : "removed", files, size_text(bytes),
                            plan.staying_conversations);
}

std::string gc_json(const GcPlan& plan, const GcOutcome* outcome) {
  JsonWriter json;
  json.begin_object().member("dry_run", outcome == nullptr).key("remove").begin_array();
  write_items(json, plan.indexes);
  write_items(json, plan.data);
  json.end_array().key("kept").begin_array();
  write_items(json, plan.kept);
  json.end_array().key("failures").begin_array();
  if (outcome != nullptr)
    for (const std::string& failure : outcome->failures) json.value(failure);
  json.end_array()
      .member("removed_files", outcome == nullptr ? uint64_t{0} : outcome->removed_files)
      .member("removed_bytes", outcome == nullptr ? uint64_t{0} : outcome->removed_bytes)
      .member("planned_bytes", plan.removed_bytes)
      .member("staying_conversations", plan.staying_conversations)
      .member("staying_bytes", plan.staying_bytes)
      .end_object();
  return json.take() + "\n";
}

std::string export_text(const ExportReport& report, const std::string& target) {
  return fmt::format("{}: conversation {}, {} tokens, {} parts ({} of other conversations' files), {}\n",
                     printable(target), to_hex(report.id), report.tokens, report.parts,
                     report.inherited_parts, size_text(report.file_bytes));
}

std::string export_json(const ExportReport& report, const std::string& target) {
  JsonWriter json;
  json.begin_object()
      .member("file", target)
      .member("id", to_hex(report.id))
      .member("tokens", report.tokens)
      .member("parts", report.parts)
      .member("inherited_parts", report.inherited_parts)
      .member("bytes", report.file_bytes)
      .end_object();
  return json.take() + "\n";
}

}  // namespace strata::cli
