#include "plugins/model_reference/kernel_tables.hpp"

#if defined(__AVX512F__)
#define STRATA_KERNELS avx512
#define STRATA_KERNEL_ROWS 4
#define STRATA_KERNEL_PANELS 4
#include "plugins/model_reference/kernels_body.hpp"

namespace strata::reference {

const Kernels kAvx512Kernels = {"avx512",         avx512::dot,  avx512::product, avx512::product_add,
                                avx512::rms_norm, avx512::gate, avx512::attend,  avx512::recur};

}  // namespace strata::reference
#endif
