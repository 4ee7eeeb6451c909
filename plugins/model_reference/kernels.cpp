#include "plugins/model_reference/kernels.hpp"

#include <vector>

#include "plugins/model_reference/kernel_tables.hpp"

namespace strata::reference {
namespace {

std::vector<const Kernels*> detect() {
  std::vector<const Kernels*> tables = {&kGenericKernels};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) tables.push_back(&kAvx2Kernels);
#endif
  return tables;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> tables = detect();
  return tables;
}

const Kernels& best_kernels() { return *available_kernels().back(); }

}  // namespace strata::reference
