// Port: the engine's process as the supervisor sees it: lines in, lines out, an end. One thread at a time.
// on_line and on_end are called from the event loop, never from inside start, send or kill. After a start
// that succeeded exactly one on_end follows, and no on_line after it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace strata {

class EngineProcess {
 public:
  virtual ~EngineProcess() = default;
  virtual Status start() = 0;
  virtual void send(std::string line) = 0;  // without a newline; lost when the process has ended
  virtual void kill() = 0;                  // at once, whatever it is doing

  std::function<void(std::string_view line)> on_line;
  std::function<void(std::string how)> on_end;  // "exited with status 1", "ended by signal 9"
};

}  // namespace strata
