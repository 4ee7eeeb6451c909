// Port: log lines, one event a line, without a newline. Thread-safe.
#pragma once
#include <cstdint>
#include <string_view>

namespace strata {

enum class LogLevel : uint8_t { debug, info, warning, error };

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view line) = 0;
};

}  // namespace strata
