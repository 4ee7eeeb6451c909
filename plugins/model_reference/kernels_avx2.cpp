#include "plugins/model_reference/kernel_tables.hpp"

#if defined(__AVX2__)
#define STRATA_KERNELS avx2
#define STRATA_KERNEL_WIDTH 8
#define STRATA_KERNEL_ROWS 4
#define STRATA_KERNEL_PANELS 1
#include "plugins/model_reference/kernels_body.hpp"

namespace strata::reference {

const Kernels kAvx2Kernels = {"avx2",         avx2::dot,  avx2::product, avx2::product_add,
                              avx2::rms_norm, avx2::gate, avx2::attend,  avx2::recur};

}  // namespace strata::reference
#endif
