// ExtentMap against a bitmap of 4096-byte units.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/image.hpp"
#include "tiers/extent_map.hpp"

namespace strata {
namespace {

constexpr uint64_t kUnit = limits::kAlignment;

// One entry per unit; a file's end is behind the last used one.
class BitmapModel {
 public:
  BitmapModel() : used_(1, true) {}
  uint64_t allocate(uint64_t units) {
    uint64_t at = 1;
    while (!free_range(at, units)) ++at;
    mark(at, units, true);
    return at;
  }
  [[nodiscard]] bool free_range(uint64_t at, uint64_t units) const {
    for (uint64_t i = at; i < std::min<uint64_t>(at + units, used_.size()); ++i) {
      if (used_[i]) return false;
    }
    return true;
  }
  void mark(uint64_t at, uint64_t units, bool value) {
    if (used_.size() < at + units) used_.resize(at + units, false);
    std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(at), units, value);
    while (!used_.back()) used_.pop_back();
  }
  [[nodiscard]] uint64_t end() const { return used_.size(); }
  [[nodiscard]] uint64_t used() const {
    return static_cast<uint64_t>(std::count(used_.begin(), used_.end(), true));
  }

 private:
  std::vector<bool> used_;
};

struct Held {
  uint64_t offset, length;
};

void expect_equal(const ExtentMap& map, const BitmapModel& model) {
  ASSERT_EQ(map.end_bytes(), model.end() * kUnit);
  ASSERT_EQ(map.used_bytes(), model.used() * kUnit);
  ASSERT_EQ(map.hole_bytes(), (model.end() - model.used()) * kUnit);
}

TEST(ExtentMap, EqualsABitmapOverRandomHistories) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    ExtentMap map;
    BitmapModel model;
    std::vector<Held> held;
    for (int step = 0; step < 600; ++step) {
      const uint64_t length = 1 + random() % (9 * kUnit);
      const uint64_t units = align_up(length, kUnit) / kUnit;
      const uint32_t action = random() % 10;
      if (action < 4) {
        const uint64_t offset = map.allocate(length);
        ASSERT_EQ(offset, model.allocate(units) * kUnit);
        held.push_back({offset, length});
      } else if (action < 6) {
        const uint64_t at = random() % (model.end() + 12);
        const bool possible = at > 0 && model.free_range(at, units);
        ASSERT_EQ(map.reserve(at * kUnit, length), possible);
        if (possible) {
          model.mark(at, units, true);
          held.push_back({at * kUnit, length});
        }
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        map.release(held.back().offset, held.back().length);
        model.mark(held.back().offset / kUnit, align_up(held.back().length, kUnit) / kUnit, false);
        held.pop_back();
      }
      ASSERT_NO_FATAL_FAILURE(expect_equal(map, model)) << "seed " << seed << " step " << step;
    }
  }
}

TEST(ExtentMap, RefusesImpossibleReservationsAndStaysAsItWas) {
  ExtentMap map;
  EXPECT_FALSE(map.reserve(0, kUnit));          // the header
  EXPECT_FALSE(map.reserve(kUnit + 1, kUnit));  // unaligned
  EXPECT_FALSE(map.reserve(~uint64_t{0} / kUnit * kUnit, kUnit));
  EXPECT_FALSE(map.reserve(kUnit, ~uint64_t{0}));
  EXPECT_EQ(map.end_bytes(), kUnit);
  EXPECT_TRUE(map.reserve(3 * kUnit, kUnit));
  EXPECT_FALSE(map.reserve(2 * kUnit, 2 * kUnit));  // reaches into a used range
  EXPECT_EQ(map.hole_bytes(), 2 * kUnit);
}

TEST(ExtentMap, AFileOfUnknownExtentsOnlyGrows) {
  ExtentMap map(10 * kUnit + 5);
  EXPECT_EQ(map.allocate(1), 11 * kUnit);
  EXPECT_EQ(map.end_bytes(), 12 * kUnit);
}

TEST(ExtentMap, AnEmptyExtentStillHasAPlaceOfItsOwn) {
  ExtentMap map;
  const uint64_t first = map.allocate(0);
  EXPECT_NE(first, map.allocate(0));
  map.release(first, 0);
  EXPECT_EQ(map.hole_bytes(), kUnit);
}

TEST(ExtentMapDeathTest, ReleasingWhatIsNotInUseIsABug) {
  ExtentMap map;
  const uint64_t offset = map.allocate(2 * kUnit);
  map.allocate(kUnit);
  map.release(offset, 2 * kUnit);
  EXPECT_DEATH(map.release(offset, kUnit), "internal error");
  EXPECT_DEATH(map.release(0, kUnit), "internal error");
}

}  // namespace
}  // namespace strata
