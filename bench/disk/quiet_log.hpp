// Log lines of what is measured: only what went wrong is shown. Thread-safe.
#pragma once

#include <cstdio>

#include "core/log.hpp"

namespace strata::bench {

class QuietLog final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level != LogLevel::debug && level != LogLevel::info)
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  }
};

}  // namespace strata::bench
