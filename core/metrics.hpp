// Counters, gauges and histograms of one process, by name and label text. Names follow docs/http-api.md.
// One thread at a time (the engine loop). Rendered as Prometheus text 0.0.4.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class Metrics {
 public:
  // labels: `tier="ram",reason="evicted"` or empty.
  void add(std::string_view name, std::string_view labels = {}, double amount = 1);
  void set(std::string_view name, std::string_view labels, double value);
  void observe_seconds(std::string_view name, std::string_view labels, double seconds);
  [[nodiscard]] double value(std::string_view name, std::string_view labels = {}) const;  // 0 when never touched
  [[nodiscard]] std::string prometheus() const;  // HELP/TYPE lines, sorted by name

 private:
  enum class Kind : uint8_t { counter, gauge, histogram };
  struct Histogram {
    std::vector<uint64_t> buckets;
    double sum = 0;
    uint64_t count = 0;
  };
  struct Family {
    Kind kind = Kind::counter;
    std::map<std::string, double, std::less<>> values;
    std::map<std::string, Histogram, std::less<>> histograms;
  };
  std::map<std::string, Family, std::less<>> families_;
};

}  // namespace strata
