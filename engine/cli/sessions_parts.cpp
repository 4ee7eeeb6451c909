#include "engine/cli/sessions_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "core/manifest.hpp"
#include "engine/cli/sessions_text.hpp"

namespace strata::cli {

namespace {

constexpr uint64_t kProgressIntervalNs = 200'000'000;

// A conversation's data file stands for its index, unless it is self-contained.
Target with_index(FileSystem& files, Target target) {
  const auto id = parse_conversation_file_name(target.file_name, "sess");
  const bool indexed = id && files.info(target.folder + "/" + index_file_name(*id)).ok();
  if (indexed) target.file_name = index_file_name(*id);
  return target;
}

}  // namespace

int fail(const SessionsPorts& ports, int status, const std::string& message) {
  ports.err << "strata: " << message << '\n';
  return status;
}

int fail(const SessionsPorts& ports, const Error& error) {
  return fail(ports, error.code == ErrorCode::invalid ? kWrongUse : kBad, error.message);
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

void ProgressLine::add(uint64_t bytes) {
  done_bytes_ += bytes;
  if (!show_ || ports_.clock.monotonic_ns() < next_ns_) return;
  next_ns_ = ports_.clock.monotonic_ns() + kProgressIntervalNs;
  ports_.err << fmt::format("\r{} {} of {}\x1b[K", verb_, size_text(done_bytes_), size_text(total_bytes_))
             << std::flush;
}

void ProgressLine::clear() {
  if (show_) ports_.err << "\r\x1b[K" << std::flush;
}

}  // namespace strata::cli
