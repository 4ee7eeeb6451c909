#include "tiers/cost_model.hpp"

#include <algorithm>

namespace strata {
namespace {

constexpr double kKeepOfThePast = 0.75;  // weight of what was measured before an observation
constexpr double kMargin = 1.25;         // a restore must be this much slower to be left out

}  // namespace

void CostModel::Rate::observe(double observed_amount, uint64_t duration_ns) {
  if (observed_amount <= 0 || duration_ns == 0) return;
  amount = amount * kKeepOfThePast + observed_amount;
  ns = ns * kKeepOfThePast + static_cast<double>(duration_ns);
}

double CostModel::Rate::predict_ns(double wanted) const { return known() ? wanted * ns / amount : 0; }

void CostModel::observe_disk_read(uint64_t bytes, uint64_t duration_ns) {
  disk_.observe(static_cast<double>(bytes), duration_ns);
}

void CostModel::observe_digest(uint64_t bytes, uint64_t duration_ns) {
  digest_.observe(static_cast<double>(bytes), duration_ns);
}

void CostModel::observe_copy(uint64_t bytes, uint64_t duration_ns) {
  copy_.observe(static_cast<double>(bytes), duration_ns);
}

void CostModel::observe_prompt(uint32_t tokens, uint64_t duration_ns) {
  prompt_.observe(tokens, duration_ns);
}

uint64_t CostModel::predict_restore_ns(uint64_t disk_bytes, uint64_t copy_bytes) const {
  if (disk_bytes > 0 && !disk_.known()) return 0;
  if (disk_bytes == 0 && copy_bytes > 0 && !copy_.known()) return 0;
  // Reading, checking and copying overlap: the slowest decides, of those that are known.
  const double ns = std::max({disk_.predict_ns(static_cast<double>(disk_bytes)),
                              digest_.predict_ns(static_cast<double>(disk_bytes)),
                              copy_.predict_ns(static_cast<double>(copy_bytes))});
  return static_cast<uint64_t>(ns);
}

uint64_t CostModel::predict_read_ns(uint32_t tokens) const {
  return static_cast<uint64_t>(prompt_.predict_ns(tokens));
}

bool CostModel::cheaper_to_read(uint64_t disk_bytes, uint64_t copy_bytes, uint32_t tokens) const {
  const auto restore = static_cast<double>(predict_restore_ns(disk_bytes, copy_bytes));
  const auto read = static_cast<double>(predict_read_ns(tokens));
  return restore > 0 && read > 0 && restore > kMargin * read;
}

}  // namespace strata
