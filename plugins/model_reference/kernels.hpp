// The arithmetic of the reference model, once per instruction set.
//
// Every result depends only on the operands: no sum is split by vector width, row count or thread. A product
// of a matrix and a row adds its terms in order of the input index; a dot product has 16 lanes (lane i adds
// elements i, i+16, …) and a fixed tree over them; all sums over tokens start at the first token seen.
// Contraction is off. So every table gives equal bits (held by tests/unit/model_reference_kernels_test.cpp).
// Stateless, thread-safe. Pointers need no alignment; sizes are in floats.
#pragma once

#include <cstdint>
#include <span>

namespace strata::reference {

inline constexpr uint32_t kLanes = 16;

// A matrix in panels of 16 outputs: element (input i, output o) is at panels[(o / 16 · inputs + i) · 16 + o %
// 16].
struct Matrix {  // a view
  uint32_t inputs = 0;
  uint32_t outputs = 0;  // a multiple of 16
  const float* panels = nullptr;
};

struct AttendCall {
  const float* query = nullptr;  // `group` heads of head_dim, already scaled
  const float* keys = nullptr;   // the head's part of the first token seen
  const float* values = nullptr;
  uint32_t stride = 0;      // from one token to the next
  uint32_t count = 0;       // tokens seen, at least 1
  uint32_t group = 0;       // query heads that share this key head
  uint32_t head_dim = 0;    // 16, 32 or 64
  float* scores = nullptr;  // scratch: attend_scratch(count)
  float* out = nullptr;     // as query
};
inline constexpr uint32_t kHeadsAtOnce = 4;  // query heads for which a key is loaded once
[[nodiscard, gnu::always_inline]] constexpr uint64_t attend_scratch(uint64_t count) {
  return kHeadsAtOnce * ((count + kLanes - 1) / kLanes * kLanes);
}

struct RecurCall {
  const float* query = nullptr;  // head_dim
  const float* key = nullptr;
  const float* value = nullptr;
  float decay = 0;         // before the logistic function
  uint32_t head_dim = 0;   // 16, 32 or 64
  float* state = nullptr;  // head_dim · head_dim, updated
  float* out = nullptr;
};

struct Kernels {
  const char* name;
  float (*dot)(const float* a, const float* b, uint32_t size);  // size a multiple of 16
  // y[r] = W · x[r], or y[r] += W · x[r]
  void (*product)(const Matrix& matrix, const float* x, uint32_t x_stride, uint32_t rows, float* y,
                  uint32_t y_stride);
  void (*product_add)(const Matrix& matrix, const float* x, uint32_t x_stride, uint32_t rows, float* y,
                      uint32_t y_stride);
  void (*rms_norm)(const float* x, uint32_t size, float* out);
  void (*gate)(float* gate, const float* up, uint32_t size);  // gate = silu(gate) · up
  void (*attend)(const AttendCall& call);
  void (*recur)(const RecurCall& call);  // state = a·state + key ⊗ value; out = query · state
};

// The tables this processor can run, slowest first; never empty.
[[nodiscard]] std::span<const Kernels* const> available_kernels();
[[nodiscard]] const Kernels& best_kernels();

}  // namespace strata::reference
