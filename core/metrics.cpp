#include "core/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/check.hpp"

namespace strata {

namespace {
// Upper bounds in seconds; from a copy of one block to the restore of a long conversation from a slow disk.
constexpr double kBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
constexpr size_t kBoundCount = std::size(kBounds);

template <class Map>
auto& entry(Map& map, std::string_view key) {
  auto at = map.find(key);
  if (at == map.end()) at = map.emplace(std::string(key), typename Map::mapped_type{}).first;
  return at->second;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 9007199254740992.0)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

// HELP text runs to the end of its line: only these two need escaping.
std::string escaped_help(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string help_from_name(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  std::replace(text.begin(), text.end(), ':', ' ');
  return text;
}

void line(std::string& out, std::string_view name, std::string_view labels, std::string_view value) {
  if (labels.empty())
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
  else
    fmt::format_to(std::back_inserter(out), "{}{{{}}} {}\n", name, labels, value);
}

std::string with_bound(std::string_view labels, std::string_view bound) {
  return fmt::format("{}{}le=\"{}\"", labels, labels.empty() ? "" : ",", bound);
}
}  // namespace

Metrics::Family& Metrics::family(std::string_view name, Kind kind) {
  const auto at = families_.find(name);
  if (at == families_.end()) {
    Family& made = families_.emplace(std::string(name), Family{}).first->second;
    made.kind = kind;
    return made;
  }
  STRATA_CHECK(at->second.kind == kind);
  return at->second;
}

void Metrics::describe(std::string_view name, std::string_view help) {
  entry(help_, name) = std::string(help);
}

void Metrics::add(std::string_view name, std::string_view labels, double amount) {
  STRATA_CHECK(amount >= 0);
  entry(family(name, Kind::counter).values, labels) += amount;
}

void Metrics::set(std::string_view name, std::string_view labels, double value) {
  entry(family(name, Kind::gauge).values, labels) = value;
}

void Metrics::observe_seconds(std::string_view name, std::string_view labels, double seconds) {
  Histogram& histogram = entry(family(name, Kind::histogram).histograms, labels);
  histogram.buckets.resize(kBoundCount);
  const size_t bucket =
      static_cast<size_t>(std::lower_bound(kBounds, kBounds + kBoundCount, seconds) - kBounds);
  if (bucket < kBoundCount) ++histogram.buckets[bucket];
  histogram.sum += seconds;
  ++histogram.count;
}

double Metrics::value(std::string_view name, std::string_view labels) const {
  const auto found = families_.find(name);
  if (found == families_.end()) return 0;
  const Family& family = found->second;
  if (family.kind == Kind::histogram) {
    const auto at = family.histograms.find(labels);
    return at == family.histograms.end() ? 0 : static_cast<double>(at->second.count);
  }
  const auto at = family.values.find(labels);
  return at == family.values.end() ? 0 : at->second;
}

void Metrics::render_histogram(std::string& out, std::string_view name, std::string_view labels,
                               const Histogram& histogram) {
  uint64_t up_to = 0;
  const std::string bucket = fmt::format("{}_bucket", name);
  for (size_t i = 0; i < kBoundCount; ++i) {
    up_to += histogram.buckets[i];
    line(out, bucket, with_bound(labels, number(kBounds[i])), std::to_string(up_to));
  }
  line(out, bucket, with_bound(labels, "+Inf"), std::to_string(histogram.count));
  line(out, fmt::format("{}_sum", name), labels, number(histogram.sum));
  line(out, fmt::format("{}_count", name), labels, std::to_string(histogram.count));
}

std::string Metrics::prometheus() const {
  static constexpr const char* kTypes[] = {"counter", "gauge", "histogram"};
  std::string out;
  for (const auto& [name, family] : families_) {
    const auto help = help_.find(name);
    fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name,
                   help == help_.end() ? help_from_name(name) : escaped_help(help->second), name,
                   kTypes[static_cast<size_t>(family.kind)]);
    for (const auto& [labels, value] : family.values) line(out, name, labels, number(value));
    for (const auto& [labels, histogram] : family.histograms) render_histogram(out, name, labels, histogram);
  }
  return out;
}

}  // namespace strata
