// Every instruction set gives the same bits, and those are the documented order of summation.
#include "plugins/model_reference/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace strata::reference {
namespace {

using Floats = std::vector<float>;

// Values over many powers of two, so that another order of summation gives other bits.
Floats numbers(uint64_t seed, size_t count) {
  Floats values(count);
  uint64_t state = seed * 77 + 5;
  for (float& value : values) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto mantissa = static_cast<float>(static_cast<int32_t>(state >> 40) - (1 << 23)) / (1 << 23);
    value = std::ldexp(mantissa, static_cast<int>((state >> 33) % 7) - 4);
  }
  return values;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The documented dot product, one float at a time.
float plain_dot(const float* a, const float* b, uint32_t size) {
  volatile float lanes[16] = {};  // volatile: the compiler may not vectorise or reorder it
  for (uint32_t i = 0; i < size; ++i) {
    const volatile float term = a[i] * b[i];
    lanes[i % 16] = lanes[i % 16] + term;
  }
  for (uint32_t half = 8; half != 0; half /= 2)
    for (uint32_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}

// y[o] adds its terms in order of the input.
Floats plain_product(const Matrix& matrix, const Floats& x, uint32_t rows) {
  Floats y;
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t o = 0; o < matrix.outputs; ++o) {
      volatile float sum = 0;
      for (uint32_t i = 0; i < matrix.inputs; ++i) {
        const float weight = matrix.panels[(o / kLanes * matrix.inputs + i) * kLanes + o % kLanes];
        const volatile float term = weight * x[r * matrix.inputs + i];
        sum = sum + term;
      }
      y.push_back(float{sum});
    }
  }
  return y;
}

struct Attention {
  Floats query, keys, values;
  uint32_t count, group, head_dim;

  [[nodiscard]] Floats run(const Kernels& kernels) const {
    Floats scores(attend_scratch(count), std::numeric_limits<float>::quiet_NaN());
    Floats out(query.size());
    AttendCall call;
    call.query = query.data();
    call.keys = keys.data();
    call.values = values.data();
    call.stride = head_dim;
    call.count = count;
    call.group = group;
    call.head_dim = head_dim;
    call.scores = scores.data();
    call.out = out.data();
    kernels.attend(call);
    return out;
  }
};

Attention attention(uint32_t count, uint32_t group, uint32_t head_dim) {
  return {numbers(1, size_t{group} * head_dim),
          numbers(2, size_t{count} * head_dim),
          numbers(3, size_t{count} * head_dim),
          count,
          group,
          head_dim};
}

TEST(ReferenceKernels, DotIsTheDocumentedSum) {
  for (const uint32_t size : {16U, 32U, 48U, 64U, 512U}) {
    const Floats a = numbers(size, size);
    const Floats b = numbers(size + 1, size);
    const float expected = plain_dot(a.data(), b.data(), size);
    for (const Kernels* kernels : available_kernels()) {
      const float sum = kernels->dot(a.data(), b.data(), size);
      EXPECT_TRUE(same_bits({sum}, {expected})) << kernels->name << " " << size;
    }
  }
}

TEST(ReferenceKernels, TheOrderOfSummationShowsInTheBits) {  // the control of the test above
  const Floats a = numbers(8, 512);
  const Floats b = numbers(9, 512);
  float forward = 0;
  for (size_t i = 0; i < a.size(); ++i) forward += a[i] * b[i];
  EXPECT_FALSE(same_bits({forward}, {plain_dot(a.data(), b.data(), 512)}));
}

TEST(ReferenceKernels, ProductIsTheDocumentedSumForAnyNumberOfRows) {
  const Floats weights = numbers(4, size_t{48} * 80);
  const Matrix matrix{48, 80, weights.data()};
  for (uint32_t rows = 1; rows <= 9; ++rows) {
    const Floats x = numbers(rows, size_t{rows} * 48);
    const Floats expected = plain_product(matrix, x, rows);
    for (const Kernels* kernels : available_kernels()) {
      Floats y(expected.size());
      kernels->product(matrix, x.data(), 48, rows, y.data(), 80);
      EXPECT_TRUE(same_bits(y, expected)) << kernels->name << ", rows " << rows;
      Floats added = numbers(6, expected.size());
      Floats sum = added;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += expected[i];
      kernels->product_add(matrix, x.data(), 48, rows, added.data(), 80);
      EXPECT_TRUE(same_bits(added, sum)) << kernels->name << ", rows " << rows;
    }
  }
}

TEST(ReferenceKernels, AllInstructionSetsAgreeOnAttention) {
  for (const uint32_t head_dim : {16U, 32U, 64U}) {
    for (const uint32_t group : {1U, 2U, 3U, 4U, 7U}) {
      for (const uint32_t count : {1U, 15U, 16U, 17U, 100U}) {
        const Attention a = attention(count, group, head_dim);
        const Floats expected = a.run(*available_kernels().front());
        for (const Kernels* kernels : available_kernels())
          EXPECT_TRUE(same_bits(a.run(*kernels), expected))
              << kernels->name << " " << head_dim << " " << count;
      }
    }
  }
}

TEST(ReferenceKernels, AttentionIsSoftmaxOfTheScores) {
  const Attention a = attention(37, 3, 32);
  const Floats got = a.run(best_kernels());
  for (uint32_t g = 0; g < a.group; ++g) {
    std::vector<double> weights;
    double total = 0;
    for (uint32_t t = 0; t < a.count; ++t) {
      double score = 0;
      for (uint32_t i = 0; i < 32; ++i) score += double{a.query[g * 32 + i]} * a.keys[t * 32 + i];
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    for (uint32_t i = 0; i < 32; ++i) {
      double expected = 0;
      for (uint32_t t = 0; t < a.count; ++t) expected += weights[t] / total * a.values[t * 32 + i];
      EXPECT_NEAR(got[g * 32 + i], expected, 1e-3);
    }
  }
}

TEST(ReferenceKernels, AHeadDoesNotDependOnItsGroup) {
  const Attention all = attention(50, 7, 32);
  const Floats together = all.run(best_kernels());
  for (uint32_t g = 0; g < all.group; ++g) {
    Attention one = all;
    one.group = 1;
    one.query.assign(all.query.begin() + g * 32, all.query.begin() + (g + 1) * 32);
    EXPECT_TRUE(
        same_bits(one.run(best_kernels()), {together.begin() + g * 32, together.begin() + (g + 1) * 32}));
  }
}

TEST(ReferenceKernels, NaNInWhatIsReadIsNeverHidden) {
  for (const bool in_keys : {true, false}) {
    for (const uint32_t bad : {0U, 15U, 20U}) {
      Attention a = attention(21, 4, 32);
      (in_keys ? a.keys : a.values)[bad * 32 + 3] = std::numeric_limits<float>::quiet_NaN();
      for (const Kernels* kernels : available_kernels())
        EXPECT_TRUE(std::isnan(a.run(*kernels)[3])) << kernels->name << " token " << bad;
    }
  }
}

TEST(ReferenceKernels, AllInstructionSetsAgreeOnTheRest) {
  const Floats x = numbers(11, 96);
  const Floats up = numbers(12, 96);
  std::vector<Floats> results;
  for (const Kernels* kernels : available_kernels()) {
    Floats norm(96);
    kernels->rms_norm(x.data(), 96, norm.data());
    Floats gate = x;
    kernels->gate(gate.data(), up.data(), 96);
    Floats state = numbers(13, size_t{32} * 32);
    Floats out(32);
    for (int step = 0; step < 5; ++step) {
      RecurCall call;
      call.query = &x[0];
      call.key = &x[32];
      call.value = &x[64];
      call.decay = 1.5F;
      call.head_dim = 32;
      call.state = state.data();
      call.out = out.data();
      kernels->recur(call);
    }
    Floats all = norm;
    for (const Floats* part : {&gate, &state, &out}) all.insert(all.end(), part->begin(), part->end());
    results.push_back(all);
  }
  for (const Floats& result : results) EXPECT_TRUE(same_bits(result, results.front()));
  for (uint32_t i = 0; i < 96; ++i)
    EXPECT_NEAR(results[0][96 + i], x[i] / (1 + std::exp(-double{x[i]})) * up[i], 1e-5);
}

}  // namespace
}  // namespace strata::reference
