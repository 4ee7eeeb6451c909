#include "engine/protocol/event_writer.hpp"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace strata {

void EventWriter::emit(lines::Event event) {
  if (closed_) return;
  pending_ += lines::encode(event);
  pending_ += '\n';
}

void EventWriter::flush() {
  std::string_view rest = pending_;
  while (!rest.empty() && !closed_) {
    const ssize_t count = write(output_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      closed_ = true;
    else
      rest.remove_prefix(static_cast<size_t>(count));
  }
  pending_.clear();
}

}  // namespace strata
