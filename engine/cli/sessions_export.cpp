// strata sessions export: one conversation as a file of its own.
#include <ostream>

#include "core/session_export.hpp"
#include "engine/cli/sessions_parts.hpp"
#include "engine/cli/sessions_text.hpp"

namespace strata::cli {

int export_session(const SessionsOptions& options, const SessionsPorts& ports) {
  const auto target = find_target(options, ports.files);
  if (!target) return fail(ports, target.error());
  if (const Status free = check_export_target(ports.files, options.target, options.force); !free)
    return fail(ports, free.error());
  const FolderConversation stored = read_stored_head(ports.files, target->folder, target->file_name);
  ProgressLine progress(options, ports, "copied", stored.head ? stored.head->payload_bytes : 0);
  const ExportRequest request{target->folder, target->file_name, options.target, options.force};
  const auto report =
      export_stored(ports.files, ports.random, request, [&](uint64_t bytes) { progress.add(bytes); });
  progress.clear();
  if (!report) return fail(ports, kBad, report.error().message);
  ports.out << (options.json ? export_json(*report, options.target) : export_text(*report, options.target));
  return kDone;
}

}  // namespace strata::cli
