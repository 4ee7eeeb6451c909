#include "core/posix/memory_probe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/limits.hpp"

namespace strata {

namespace {

constexpr size_t kMaxTextBytes = 256 * 1024;

std::optional<std::string> read_text(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::string text;
  std::array<char, 4096> buffer{};
  ssize_t got = 0;
  do {
    got = ::read(descriptor, buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<size_t>(got));
  } while ((got > 0 || (got < 0 && errno == EINTR)) && text.size() < kMaxTextBytes);
  ::close(descriptor);
  if (got < 0) return std::nullopt;
  return text;
}

std::optional<uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

// Calls visit(line) for each line until it returns true.
template <class Visit>
void each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (visit(text.substr(0, end)) || end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// "MemAvailable:   12345 kB" or, in memory.stat, "inactive_file 12345".
std::optional<uint64_t> number_after(std::string_view text, std::string_view label) {
  std::optional<uint64_t> value;
  each_line(text, [&](std::string_view line) {
    if (!line.starts_with(label)) return false;
    value = leading_number(line.substr(label.size()));
    return true;
  });
  return value;
}

struct Group {
  std::string folder;  // the deepest folder of the process's group
  std::string mount;   // where walking up ends
  bool version_2 = false;
};

// A line of /proc/self/cgroup: "0::/path" (version 2) or "7:memory:/path" (version 1).
std::optional<Group> memory_group(const std::string& root) {
  const auto text = read_text(root + "/proc/self/cgroup");
  if (!text) return std::nullopt;
  std::optional<Group> group;
  each_line(*text, [&](std::string_view line) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return false;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string path(line.substr(second + 1));
    const bool version_1 = controllers.find(",memory,") != std::string::npos;
    if (version_1)
      group = Group{root + "/sys/fs/cgroup/memory" + path, root + "/sys/fs/cgroup/memory", false};
    else if (controllers == ",," && !group)
      group = Group{root + "/sys/fs/cgroup" + path, root + "/sys/fs/cgroup", true};
    return version_1;  // with both mounted, the memory controller is where its hierarchy is
  });
  return group;
}

struct Limit {
  uint64_t limit_bytes = UINT64_MAX;
  uint64_t left_bytes = UINT64_MAX;
};

std::optional<uint64_t> number_in(const std::string& path) {
  const auto text = read_text(path);
  return text ? leading_number(*text) : std::nullopt;  // "max" is no number: no limit
}

// One level: what its limit leaves. File pages that can be dropped at once do not count as used.
void apply_level(const std::string& folder, bool version_2, Limit& limit) {
  const auto max = number_in(folder + (version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_in(folder + (version_2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!max || !used) return;
  const auto stat = read_text(folder + "/memory.stat");
  const uint64_t droppable =
      stat ? number_after(*stat, version_2 ? "inactive_file " : "total_inactive_file ").value_or(0) : 0;
  const uint64_t held = *used - std::min(*used, droppable);
  limit.limit_bytes = std::min(limit.limit_bytes, *max);
  limit.left_bytes = std::min(limit.left_bytes, *max - std::min(*max, held));
}

// A limit of any parent binds too. Inside a container the group's own path may not be mounted: the mount's
// root is then the container's group.
Limit group_limit(const Group& group) {
  Limit limit;
  std::string folder = group.folder;
  while (folder.size() > group.mount.size()) {
    apply_level(folder, group.version_2, limit);
    folder.resize(std::max(folder.rfind('/'), group.mount.size()));
  }
  apply_level(group.mount, group.version_2, limit);
  return limit;
}

}  // namespace

Result<MemoryState> PosixMemoryProbe::probe() {
  const auto text = read_text(root_ + "/proc/meminfo");
  if (!text) return make_error(ErrorCode::unavailable, "available memory: /proc/meminfo cannot be read");
  const auto available = number_after(*text, "MemAvailable:");
  const auto total = number_after(*text, "MemTotal:");
  if (!available || !total)
    return make_error(ErrorCode::unavailable, "available memory: /proc/meminfo has no MemAvailable");
  MemoryState state{*available * limits::kKiB, *total * limits::kKiB};
  if (const auto group = memory_group(root_)) {
    const Limit limit = group_limit(*group);
    state.available_bytes = std::min(state.available_bytes, limit.left_bytes);
    state.total_bytes = std::min(state.total_bytes, limit.limit_bytes);
  }
  return state;
}

}  // namespace strata
