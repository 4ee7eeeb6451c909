// What the commands of `strata sessions` share: exit statuses, the conversation that is meant, a progress
// line.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.hpp"
#include "engine/cli/sessions.hpp"

namespace strata::cli {

inline constexpr int kDone = 0;
inline constexpr int kBad = 1;
inline constexpr int kWrongUse = 2;

// Says why on `err`; returns the status.
int fail(const SessionsPorts& ports, int status, const std::string& message);
// By the kind of error: what was asked for was wrong, or it could not be done.
int fail(const SessionsPorts& ports, const Error& error);

struct Target {
  std::string folder;
  std::string file_name;
};

// The conversation that path and id mean. Errors: invalid (wrong use), not_found, io.
Result<Target> find_target(const SessionsOptions& options, FileSystem& files);

// One line that is rewritten, at most a few times a second.
class ProgressLine {
 public:
  ProgressLine(const SessionsOptions& options, const SessionsPorts& ports, const char* verb,
               uint64_t total_bytes)
      : show_(options.show_progress), ports_(ports), verb_(verb), total_bytes_(total_bytes) {}
  void add(uint64_t bytes);
  void clear();

 private:
  bool show_;
  const SessionsPorts& ports_;
  const char* verb_;
  uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
  uint64_t next_ns_ = 0;
};

[[nodiscard]] int gc_sessions(const SessionsOptions& options, const SessionsPorts& ports);
[[nodiscard]] int export_session(const SessionsOptions& options, const SessionsPorts& ports);
// "30", "30d", "12h", "90m" as nanoseconds. Errors: invalid.
Result<uint64_t> parse_age(const std::string& text);

}  // namespace strata::cli
