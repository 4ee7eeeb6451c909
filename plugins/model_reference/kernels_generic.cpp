#include "plugins/model_reference/kernel_tables.hpp"

#define STRATA_KERNELS generic
#define STRATA_KERNEL_WIDTH 4
#define STRATA_KERNEL_ROWS 2
#define STRATA_KERNEL_PANELS 1
#include "plugins/model_reference/kernels_body.hpp"

namespace strata::reference {

const Kernels kGenericKernels = {"generic",         generic::dot,  generic::product, generic::product_add,
                                 generic::rms_norm, generic::gate, generic::attend,  generic::recur};

}  // namespace strata::reference
