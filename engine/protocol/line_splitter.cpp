#include "engine/protocol/line_splitter.hpp"

#include <algorithm>

namespace strata {

void LineSplitter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    take(bytes.substr(0, newline));
    if (newline == std::string_view::npos) return;
    deliver();
    bytes.remove_prefix(newline + 1);
  }
}

void LineSplitter::take(std::string_view bytes) {
  if (skipping_) return;
  const size_t room = max_line_bytes_ - line_.size();
  line_.append(bytes.substr(0, room));
  if (bytes.size() <= room) return;
  handle_(line_, true);
  line_ = {};
  skipping_ = true;
}

void LineSplitter::deliver() {
  if (!skipping_) {
    if (!line_.empty() && line_.back() == '\r') line_.pop_back();
    handle_(line_, false);
  }
  line_.clear();
  skipping_ = false;
}

void LineSplitter::end() {
  if (!line_.empty()) deliver();
}

}  // namespace strata
