#include "engine/server/stop_matcher.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"

namespace strata {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) STRATA_CHECK(!stop.empty());
}

std::string StopMatcher::feed(std::string_view text) {
  if (matched_) return {};
  pending_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = pending_.find(stop);
    if (found >= first) continue;
    first = found;
    match_ = stop;
  }
  if (first != std::string::npos) {
    matched_ = true;
    return std::exchange(pending_, {}).substr(0, first);
  }
  const size_t ready = pending_.size() - held_back();
  std::string out = pending_.substr(0, ready);
  pending_.erase(0, ready);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(pending_, {}); }

// The longest end of the pending text that is the beginning of a stop string.
size_t StopMatcher::held_back() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > longest; --n) {
      if (std::string_view(pending_).substr(pending_.size() - n) == std::string_view(stop).substr(0, n)) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

}  // namespace strata
