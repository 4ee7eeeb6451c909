// How good a set of checkpoints is: an edit `e` tokens back from the end resumes at the nearest checkpoint at
// distance d ≥ e, and d − e tokens are read although they did not change. Edits are taken as equally likely
// in every octave of e (recorded agents rewrite history a few thousand to a few ten thousand tokens back),
// the cost as relative to e. Then the best sets have distances that grow geometrically, which is what RAM-6
// asks for.
#include "tiers/checkpoint_policy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata {
namespace {

constexpr uint32_t kNearestTokens = 1024;      // edits closer than this are as cheap as they get
constexpr uint32_t kNearestFloorTokens = 256;  // the same for short conversations
constexpr double kUsualReachTokens = 32768;    // edits deeper than this are rarer:
constexpr double kDeepWeight = 0.05;           // so much, per octave
constexpr double kCellRatio = 1.05;       // candidates closer to one another than this are as good as one
constexpr uint32_t kMaxMultiples = 4096;  // candidates by distance that are looked at for one prompt

uint32_t nearest_useful(uint32_t length) {
  return std::clamp(length / 64, kNearestFloorTokens, kNearestTokens);
}

// Relative waste of edits at distances [from, to] that resume at distance `at`, to ≤ at.
double waste(double from, double to, double at) {
  if (to <= from) return 0;
  return at * (1 / from - 1 / to) - std::log(to / from);
}

// A candidate for keeping, by its distance from the end.
struct Candidate {
  uint32_t distance = 0;
  bool forced = false;
};

// Chooses at most `count` candidates (sorted by distance) with the least waste over all edits in [1, length].
class Selection {
 public:
  Selection(const std::vector<Candidate>& candidates, uint32_t length)
      : candidates_(candidates), length_(length), nearest_(nearest_useful(length)) {}

  // Indices into the candidates, ascending.
  [[nodiscard]] std::vector<size_t> choose(size_t count) const {
    const size_t n = candidates_.size();
    // best[k][j]: least waste of edits up to candidate j's distance, k chosen, j the last of them.
    std::vector<std::vector<Step>> best(count + 1, std::vector<Step>(n));
    for (size_t j = 0; j < n && !forced_before(j, 0); ++j)
      best[1][j] = {gap(-1, candidates_[j].distance), kNone};
    for (size_t k = 2; k <= count; ++k) {
      for (size_t j = k - 1; j < n; ++j) best[k][j] = extend(best[k - 1], j);
    }
    return trace(best);
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  struct Step {
    double cost = std::numeric_limits<double>::infinity();
    size_t previous = kNone;
  };

  // Waste of edits between two neighbouring checkpoints; `nearer` is negative before the first one.
  [[nodiscard]] double gap(double nearer, double farther) const {
    double sum = 0;
    for (const double growth : {nearest_, 4 * nearest_}) {
      const double start = nearer < 0 ? 0 : nearer + growth;
      const double from =
          std::max({start, nearest_, growth / 2});  // nearer edits will find newer checkpoints
      const double to = std::max(farther + growth, from);
      const double middle = std::clamp(kUsualReachTokens, from, to);
      sum += waste(from, middle, to) + kDeepWeight * waste(middle, to, to);
    }
    return sum;
  }

  // Is there a forced candidate in [begin, end)?
  [[nodiscard]] bool forced_before(size_t end, size_t begin) const {
    return std::any_of(candidates_.begin() + static_cast<std::ptrdiff_t>(begin),
                       candidates_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Candidate& candidate) { return candidate.forced; });
  }

  [[nodiscard]] Step extend(const std::vector<Step>& shorter, size_t j) const {
    Step result;
    for (size_t i = j; i-- > 0;) {
      const double cost = shorter[i].cost + gap(candidates_[i].distance, candidates_[j].distance);
      if (cost < result.cost) result = {cost, i};
      if (candidates_[i].forced) break;
    }
    return result;
  }

  [[nodiscard]] std::vector<size_t> trace(const std::vector<std::vector<Step>>& best) const {
    double least = std::numeric_limits<double>::infinity();
    size_t last = kNone;
    size_t chosen = 0;
    for (size_t k = 1; k < best.size(); ++k) {
      for (size_t j = 0; j < candidates_.size(); ++j) {
        if (forced_before(candidates_.size(), j + 1)) continue;
        const double cost = best[k][j].cost + gap(candidates_[j].distance, length_);
        if (std::isfinite(cost) && cost <= least) {  // among equals the more, the better
          least = cost;
          last = j;
          chosen = k;
        }
      }
    }
    std::vector<size_t> result;
    for (; last != kNone; last = best[chosen--][last].previous) result.push_back(last);
    std::reverse(result.begin(), result.end());
    return result;
  }

  const std::vector<Candidate>& candidates_;
  double length_;
  double nearest_;
};

// By distance, without those that a neighbour stands for.
std::vector<Candidate> sorted_candidates(std::span<const uint32_t> positions, uint32_t length,
                                         uint32_t root) {
  std::vector<Candidate> result;
  for (size_t i = positions.size(); i-- > 0;) {
    const Candidate candidate{length - positions[i], root != 0 && positions[i] == root};
    if (!candidate.forced && !result.empty() && candidate.distance < kCellRatio * result.back().distance)
      continue;
    result.push_back(candidate);
  }
  return result;
}

// At most `count` (≥ 1) of `positions` (ascending, < length); `root` is among the result if it is among them.
std::vector<uint32_t> thin_spread(std::span<const uint32_t> positions, uint32_t length, uint32_t root,
                                  size_t count) {
  const std::vector<Candidate> candidates = sorted_candidates(positions, length, root);
  std::vector<uint32_t> result;
  for (const size_t index : Selection(candidates, length).choose(std::min(count, candidates.size()))) {
    result.push_back(length - candidates[index].distance);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::vector<uint32_t> thin_latest(std::span<const uint32_t> positions, uint32_t root, size_t count) {
  std::vector<uint32_t> result(positions.end() - static_cast<std::ptrdiff_t>(count), positions.end());
  if (std::binary_search(positions.begin(), positions.end(), root) && root < result.front())
    result.front() = root;
  return result;
}

std::vector<uint32_t> thin(std::span<const uint32_t> positions, uint32_t length, uint32_t root, size_t count,
                           bool spread) {
  if (positions.size() <= count) return {positions.begin(), positions.end()};
  return spread ? thin_spread(positions, length, root, count) : thin_latest(positions, root, count);
}

void sort_unique(std::vector<uint32_t>& positions) {
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
}

void add_multiples(std::vector<uint32_t>& positions, uint32_t from, uint32_t to, uint32_t every_tokens) {
  uint64_t step = every_tokens;
  while ((to - from) / step > kMaxMultiples) step *= 2;
  for (uint64_t at = (from / step + 1) * step; at < to; at += step)
    positions.push_back(static_cast<uint32_t>(at));
}

// At doubling distances before the end, where no border (sorted) lies close by: an edit starts at one.
std::vector<uint32_t> spread_positions(std::span<const uint32_t> borders, uint32_t from, uint32_t to) {
  std::vector<uint32_t> result;
  for (uint64_t distance = nearest_useful(to); distance < to - from; distance *= 2) {
    const auto at = static_cast<uint32_t>(to - distance);
    const auto slack = static_cast<uint32_t>(distance / 8);
    const auto near = std::lower_bound(borders.begin(), borders.end(), at - std::min(at, slack));
    if (near == borders.end() || *near > at + slack) result.push_back(at);
  }
  return result;
}

}  // namespace

std::vector<uint32_t> checkpoint_positions(uint32_t from, uint32_t to, std::span<const uint32_t> borders,
                                           const CheckpointRules& rules) {
  if (rules.max == 0 || from >= to) return {};
  std::vector<uint32_t> positions;
  std::copy_if(borders.begin(), borders.end(), std::back_inserter(positions),
               [&](uint32_t border) { return border > from && border < to; });
  sort_unique(positions);
  const uint32_t first_border = borders.empty() ? 0 : *std::min_element(borders.begin(), borders.end());
  if (rules.spread) {
    const std::vector<uint32_t> spread = spread_positions(positions, from, to);
    positions.insert(positions.end(), spread.begin(), spread.end());
  }
  if (rules.every_tokens > 0) add_multiples(positions, from, to, rules.every_tokens);
  sort_unique(positions);
  return thin(positions, to, first_border, size_t{4} * rules.max, rules.spread);
}

std::vector<uint32_t> checkpoints_to_keep(std::span<const uint32_t> positions, uint32_t length, uint32_t root,
                                          const CheckpointRules& rules) {
  if (rules.max == 0) return {};
  return thin(positions, length, root, rules.max, rules.spread);
}

}  // namespace strata
