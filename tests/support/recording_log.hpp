// Keeps every log line for a test to look at. Thread-safe.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "core/log.hpp"

namespace strata::testing {

class RecordingLog final : public Log {
 public:
  struct Line {
    LogLevel level;
    std::string text;
  };
  void write(LogLevel level, std::string_view line) override {
    const std::lock_guard guard(mutex_);
    lines_.push_back({level, std::string(line)});
  }
  [[nodiscard]] std::vector<Line> lines() const {
    const std::lock_guard guard(mutex_);
    return lines_;
  }
  [[nodiscard]] size_t count(std::string_view part) const {
    const std::lock_guard guard(mutex_);
    return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const Line& line) {
      return line.text.find(part) != std::string::npos;
    }));
  }
  [[nodiscard]] bool contains(std::string_view part) const { return count(part) != 0; }

 private:
  mutable std::mutex mutex_;
  std::vector<Line> lines_;
};

}  // namespace strata::testing
