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
  // HELP text of a metric; without one it is made from the name.
  void describe(std::string_view name, std::string_view help);
  void add(std::string_view name, std::string_view labels = {}, double amount = 1);
  void set(std::string_view name, std::string_view labels, double value);
  void observe_seconds(std::string_view name, std::string_view labels, double seconds);
  [[nodiscard]] double value(std::string_view name, std::string_view labels = {})
      const;                                     // 0 when never touched; histogram: its count
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
  Family& family(std::string_view name, Kind kind);  // one name has one kind for ever
  static void render_histogram(std::string& out, std::string_view name, std::string_view labels,
                               const Histogram& histogram);

  std::map<std::string, Family, std::less<>> families_;
  std::map<std::string, std::string, std::less<>> help_;
};

}  // namespace strata
