// The kernels' source, included by one translation unit per instruction set, which sets STRATA_KERNELS (the
// namespace), STRATA_KERNEL_WIDTH (floats in a register), STRATA_KERNEL_ROWS and STRATA_KERNEL_PANELS (the
// tile that fits its registers). Everything is in that namespace and nothing inline comes from the standard
// library, so that no code for a larger instruction set can be linked into another unit.

namespace strata::reference::STRATA_KERNELS {
namespace {

#define STRATA_KERNEL_INLINE inline __attribute__((always_inline))

typedef float V4 __attribute__((vector_size(16)));

// 16 lanes are one register, a pair, or a pair of pairs: the compiler's own splitting of wide vectors goes
// through memory.
template <class Half>
struct Pair {
  Half low, high;
};

#if STRATA_KERNEL_WIDTH == 8
typedef float Register __attribute__((vector_size(32)));
typedef int32_t Integers __attribute__((vector_size(32)));
using V8 = Register;
using V16 = Pair<V8>;
#else
typedef float Register __attribute__((vector_size(16)));
typedef int32_t Integers __attribute__((vector_size(16)));
using V8 = Pair<Register>;
using V16 = Pair<V8>;
#endif

#define STRATA_KERNEL_OPERATOR(op)                                                        \
  template <class Half>                                                                   \
  STRATA_KERNEL_INLINE Pair<Half> operator op(const Pair<Half>& a, const Pair<Half>& b) { \
    return {a.low op b.low, a.high op b.high};                                            \
  }                                                                                       \
  template <class Half>                                                                   \
  STRATA_KERNEL_INLINE Pair<Half> operator op(const Pair<Half>& a, float b) {             \
    return {a.low op b, a.high op b};                                                     \
  }
STRATA_KERNEL_OPERATOR(+)
STRATA_KERNEL_OPERATOR(-)
STRATA_KERNEL_OPERATOR(*)
STRATA_KERNEL_OPERATOR(/)
#undef STRATA_KERNEL_OPERATOR

STRATA_KERNEL_INLINE void get(Register& value, const float* from) {
  __builtin_memcpy(&value, from, sizeof value);
}
STRATA_KERNEL_INLINE void put(float* to, const Register& value) {
  __builtin_memcpy(to, &value, sizeof value);
}
template <class Half>
STRATA_KERNEL_INLINE void get(Pair<Half>& value, const float* from) {
  get(value.low, from);
  get(value.high, from + sizeof(Half) / sizeof(float));
}
template <class Half>
STRATA_KERNEL_INLINE void put(float* to, const Pair<Half>& value) {
  put(to, value.low);
  put(to + sizeof(Half) / sizeof(float), value.high);
}

STRATA_KERNEL_INLINE V16 load(const float* from) {
  V16 value;
  get(value, from);
  return value;
}
STRATA_KERNEL_INLINE void store(float* to, const V16& value) { put(to, value); }
STRATA_KERNEL_INLINE V16 splat(float value) { return V16{} + value; }

STRATA_KERNEL_INLINE Register larger(const Register& a, const Register& b) { return a > b ? a : b; }
template <class Half>
STRATA_KERNEL_INLINE Pair<Half> larger(const Pair<Half>& a, const Pair<Half>& b) {
  return {larger(a.low, b.low), larger(a.high, b.high)};
}

STRATA_KERNEL_INLINE V8 fold(const V16& v) { return v.low + v.high; }
#if STRATA_KERNEL_WIDTH == 8
STRATA_KERNEL_INLINE V4 fold(const V8& v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}
#else
STRATA_KERNEL_INLINE V4 fold(const V8& v) { return v.low + v.high; }
#endif

// Lanes i and i+8 first, then i and i+4, i and i+2, i and i+1.
STRATA_KERNEL_INLINE float tree_sum(const V16& v) {
  const V4 b = fold(fold(v));
  return (b[0] + b[2]) + (b[1] + b[3]);
}

// e^x to about 2 units in the last place; the input is clamped to where the result is a normal number. NaN
// stays NaN.
STRATA_KERNEL_INLINE Register exponential(const Register& input) {
  const Register low = Register{} - 87.0F;
  const Register high = Register{} + 88.0F;
  Register x = input < low ? low : input;
  x = x > high ? high : x;
  const Register magic =
      Register{} + 12582912.0F;  // 1.5 · 2^23: adding it rounds to an integer in the low bits
  const Register shifted = x * 1.44269504088896341F + magic;
  const Register n = shifted - magic;
  const Register r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Register p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Integers bits = (Integers)p + (((Integers)shifted - (Integers)magic) << 23);  // · 2^n
  return input == input ? (Register)bits : input;
}
template <class Half>
STRATA_KERNEL_INLINE Pair<Half> exponential(const Pair<Half>& x) {
  return {exponential(x.low), exponential(x.high)};
}

float dot(const float* a, const float* b, uint32_t size) {
  V16 sum{};
  for (uint32_t i = 0; i < size; i += kLanes) sum = sum + load(a + i) * load(b + i);
  return tree_sum(sum);
}

template <int kRows, int kPanels, bool kAdd>
STRATA_KERNEL_INLINE void tile(const float* w, uint32_t inputs, const float* x, uint32_t x_stride, float* y,
                               uint32_t y_stride) {
  V16 sum[kRows][kPanels] = {};
  for (uint32_t i = 0; i < inputs; ++i) {
    for (int p = 0; p < kPanels; ++p) {
      const V16 weight = load(w + (uint64_t{inputs} * static_cast<uint32_t>(p) + i) * kLanes);
      for (int r = 0; r < kRows; ++r)
        sum[r][p] = sum[r][p] + weight * x[uint64_t{x_stride} * static_cast<uint32_t>(r) + i];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      float* to = y + uint64_t{y_stride} * static_cast<uint32_t>(r) + static_cast<uint32_t>(p) * kLanes;
      store(to, kAdd ? load(to) + sum[r][p] : sum[r][p]);
    }
  }
}

template <int kPanels, bool kAdd>
STRATA_KERNEL_INLINE void panel_rows(const float* w, uint32_t inputs, const float* x, uint32_t x_stride,
                                     uint32_t rows, float* y, uint32_t y_stride) {
  uint32_t r = 0;
  for (; r + STRATA_KERNEL_ROWS <= rows; r += STRATA_KERNEL_ROWS)
    tile<STRATA_KERNEL_ROWS, kPanels, kAdd>(w, inputs, x + uint64_t{x_stride} * r, x_stride,
                                            y + uint64_t{y_stride} * r, y_stride);
  for (; r < rows; ++r)
    tile<1, kPanels, kAdd>(w, inputs, x + uint64_t{x_stride} * r, x_stride, y + uint64_t{y_stride} * r,
                           y_stride);
}

template <bool kAdd>
STRATA_KERNEL_INLINE void product_any(const Matrix& matrix, const float* x, uint32_t x_stride, uint32_t rows,
                                      float* y, uint32_t y_stride) {
  const uint32_t count = matrix.outputs / kLanes;
  const uint64_t panel = uint64_t{matrix.inputs} * kLanes;
  uint32_t p = 0;
  for (; p + STRATA_KERNEL_PANELS <= count; p += STRATA_KERNEL_PANELS)
    panel_rows<STRATA_KERNEL_PANELS, kAdd>(matrix.panels + panel * p, matrix.inputs, x, x_stride, rows,
                                           y + p * kLanes, y_stride);
  for (; p < count; ++p)
    panel_rows<1, kAdd>(matrix.panels + panel * p, matrix.inputs, x, x_stride, rows, y + p * kLanes,
                        y_stride);
}

void product(const Matrix& matrix, const float* x, uint32_t x_stride, uint32_t rows, float* y,
             uint32_t y_stride) {
  product_any<false>(matrix, x, x_stride, rows, y, y_stride);
}

void product_add(const Matrix& matrix, const float* x, uint32_t x_stride, uint32_t rows, float* y,
                 uint32_t y_stride) {
  product_any<true>(matrix, x, x_stride, rows, y, y_stride);
}

void rms_norm(const float* x, uint32_t size, float* out) {
  const float scale = 1.0F / __builtin_sqrtf(dot(x, x, size) / static_cast<float>(size) + 1e-5F);
  for (uint32_t i = 0; i < size; i += kLanes) store(out + i, load(x + i) * scale);
}

STRATA_KERNEL_INLINE V16 logistic(const V16& x) { return splat(1.0F) / (exponential(x * -1.0F) + 1.0F); }

void gate(float* gate, const float* up, uint32_t size) {
  for (uint32_t i = 0; i < size; i += kLanes) {
    const V16 x = load(gate + i);
    store(gate + i, x * logistic(x) * load(up + i));
  }
}

// Scores of kGroup heads against every token.
template <int kGroup, int kVectors>
STRATA_KERNEL_INLINE void score(const AttendCall& call, const float* query, float* scores, uint64_t padded) {
  V16 q[kGroup][kVectors];
  for (int g = 0; g < kGroup; ++g)
    for (int i = 0; i < kVectors; ++i) q[g][i] = load(query + (g * kVectors + i) * static_cast<int>(kLanes));
  for (uint32_t t = 0; t < call.count; ++t) {
    const float* key = call.keys + uint64_t{call.stride} * t;
    V16 k[kVectors];
    for (int i = 0; i < kVectors; ++i) k[i] = load(key + i * static_cast<int>(kLanes));
    for (int g = 0; g < kGroup; ++g) {
      V16 sum = q[g][0] * k[0];
      for (int i = 1; i < kVectors; ++i) sum = sum + q[g][i] * k[i];
      scores[padded * static_cast<uint32_t>(g) + t] = tree_sum(sum);
    }
  }
}

// scores → exponentials relative to the largest; returns 1 / their sum. Lane i sums tokens i, i+16, …
STRATA_KERNEL_INLINE float soften(float* scores, uint32_t count, uint64_t padded) {
  for (uint64_t t = count; t < padded; ++t) scores[t] = scores[0];
  V16 top = load(scores);
  for (uint64_t t = kLanes; t < padded; t += kLanes) top = larger(load(scores + t), top);
  float lanes[kLanes];
  store(lanes, top);
  float largest = lanes[0];
  for (uint32_t i = 1; i < kLanes; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
  for (uint64_t t = 0; t < padded; t += kLanes) store(scores + t, exponential(load(scores + t) - largest));
  for (uint64_t t = count; t < padded; ++t) scores[t] = 0.0F;
  V16 sum{};
  for (uint64_t t = 0; t < padded; t += kLanes) sum = sum + load(scores + t);
  return 1.0F / tree_sum(sum);
}

template <int kGroup, int kVectors>
STRATA_KERNEL_INLINE void blend(const AttendCall& call, const float* scores, uint64_t padded,
                                const float* scale, float* out) {
  V16 sum[kGroup][kVectors] = {};
  for (uint32_t t = 0; t < call.count; ++t) {
    const float* value = call.values + uint64_t{call.stride} * t;
    for (int i = 0; i < kVectors; ++i) {
      const V16 v = load(value + i * static_cast<int>(kLanes));
      for (int g = 0; g < kGroup; ++g)
        sum[g][i] = sum[g][i] + v * scores[padded * static_cast<uint32_t>(g) + t];
    }
  }
  for (int g = 0; g < kGroup; ++g)
    for (int i = 0; i < kVectors; ++i)
      store(out + (g * kVectors + i) * static_cast<int>(kLanes), sum[g][i] * scale[g]);
}

template <int kGroup, int kVectors>
STRATA_KERNEL_INLINE void attend_heads(const AttendCall& call, uint32_t head) {
  const uint64_t padded = attend_scratch(call.count) / kHeadsAtOnce;
  float* scores = call.scores;
  float scale[kGroup];
  score<kGroup, kVectors>(call, call.query + uint64_t{call.head_dim} * head, scores, padded);
  for (int g = 0; g < kGroup; ++g)
    scale[g] = soften(scores + padded * static_cast<uint32_t>(g), call.count, padded);
  blend<kGroup, kVectors>(call, scores, padded, scale, call.out + uint64_t{call.head_dim} * head);
}

template <int kVectors>
STRATA_KERNEL_INLINE void attend_size(const AttendCall& call) {
  uint32_t head = 0;
  for (; head + 4 <= call.group; head += 4) attend_heads<4, kVectors>(call, head);
  for (; head + 2 <= call.group; head += 2) attend_heads<2, kVectors>(call, head);
  for (; head < call.group; ++head) attend_heads<1, kVectors>(call, head);
}

void attend(const AttendCall& call) {
  if (call.head_dim == 16) return attend_size<1>(call);
  if (call.head_dim == 32) return attend_size<2>(call);
  attend_size<4>(call);
}

template <int kVectors>
STRATA_KERNEL_INLINE void recur_size(const RecurCall& call) {
  float lanes[kLanes];
  store(lanes, logistic(splat(call.decay)));
  const float keep = lanes[0];
  V16 value[kVectors];
  V16 sum[kVectors] = {};
  for (int i = 0; i < kVectors; ++i) value[i] = load(call.value + i * static_cast<int>(kLanes));
  for (uint32_t row = 0; row < call.head_dim; ++row) {
    float* state = call.state + uint64_t{call.head_dim} * row;
    for (int i = 0; i < kVectors; ++i) {
      float* at = state + i * static_cast<int>(kLanes);
      const V16 next = load(at) * keep + value[i] * call.key[row];
      store(at, next);
      sum[i] = sum[i] + next * call.query[row];
    }
  }
  for (int i = 0; i < kVectors; ++i) store(call.out + i * static_cast<int>(kLanes), sum[i]);
}

void recur(const RecurCall& call) {
  if (call.head_dim == 16) return recur_size<1>(call);
  if (call.head_dim == 32) return recur_size<2>(call);
  recur_size<4>(call);
}

}  // namespace
}  // namespace strata::reference::STRATA_KERNELS
