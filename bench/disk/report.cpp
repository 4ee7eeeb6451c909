#include "bench/disk/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/json_writer.hpp"

namespace strata::bench {
namespace {

std::string target_text(const Row& row) {
  if (row.target == Row::Target::none) return "";
  return fmt::format("{} {:g}", row.target == Row::Target::at_least ? ">=" : "<=", row.bound);
}

const char* verdict(const Row& row) {
  if (row.target == Row::Target::none) return "";
  return holds(row) ? "yes" : "NO";
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool holds(const Row& row) {
  switch (row.target) {
    case Row::Target::at_least:
      return row.value >= row.bound;
    case Row::Target::at_most:
      return row.value <= row.bound;
    case Row::Target::none:
      break;
  }
  return true;
}

void Report::check(bool truth, const std::string& what) {
  ++checks_;
  if (!truth) ++failed_[what];
}

std::string Report::table() const {
  std::string text = fmt::format("{:<5}{:<46}{:>22}  {:<34}{:>8}  {:<9}{}\n", "id", "what", "measured",
                                 "beside", "value", "target", "met");
  for (const Row& row : rows_)
    text += fmt::format("{:<5}{:<46}{:>22}  {:<34}{:>8.3f}  {:<9}{}\n", row.id, row.what, row.measured,
                        row.beside, row.value, target_text(row), verdict(row));
  for (const std::string& line : notes_) text += line + "\n";
  for (const auto& [what, times] : failed_) text += fmt::format("CHECK FAILED, {} times: {}\n", times, what);
  text += fmt::format("bytes and controls: {} checks, {}\n", checks_,
                      failed_.empty() ? "all held" : "not all held");
  return text;
}

std::string Report::json(bool quick) const {
  JsonWriter json;
  json.begin_object().member("quick", quick).key("rows").begin_array();
  for (const Row& row : rows_) {
    json.begin_object().member("id", row.id).member("what", row.what).member("measured", row.measured);
    json.member("beside", row.beside).member("value", row.value).key("runs").begin_array();
    for (const double run : row.runs) json.value(run);
    json.end_array();
    if (row.target != Row::Target::none)
      json.member(row.target == Row::Target::at_least ? "at_least" : "at_most", row.bound)
          .member("met", holds(row));
    json.end_object();
  }
  json.end_array().key("notes").begin_array();
  for (const std::string& line : notes_) json.value(line);
  json.end_array().member("checks", checks_).key("failed").begin_array();
  for (const auto& [what, times] : failed_) json.value(what);
  json.end_array().end_object();
  return json.take();
}

}  // namespace strata::bench
