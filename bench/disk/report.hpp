// What the benchmark found: rows of ratios with their targets, and checks of the bytes that moved. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace strata::bench {

struct Row {
  enum class Target : uint8_t { none, at_least, at_most };
  std::string id;  // of the requirement: P-1 … P-10; empty: a limit that others stand beside
  std::string what;
  std::string measured;  // with its unit
  std::string beside;    // the limit of the same run
  double value = 0;      // the ratio, or what is compared with the target
  Target target = Target::none;
  double bound = 0;
  std::vector<double> runs;  // of which value is the median
};

[[nodiscard]] double median(std::vector<double> values);
[[nodiscard]] bool holds(const Row& row);

class Report {
 public:
  void add(Row row) { rows_.push_back(std::move(row)); }
  void note(std::string line) { notes_.push_back(std::move(line)); }
  // Bytes came back equal, a control did not: said when it is not so.
  void check(bool truth, const std::string& what);
  [[nodiscard]] bool checks_hold() const { return failed_.empty() && checks_ > 0; }
  [[nodiscard]] std::string table() const;
  [[nodiscard]] std::string json(bool quick) const;

 private:
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
  std::map<std::string, uint64_t> failed_;  // how often
  uint64_t checks_ = 0;
};

}  // namespace strata::bench
