// The kernel tables of all translation units; a table is there only where its unit was built for its
// instruction set.
#pragma once

#include "plugins/model_reference/kernels.hpp"

namespace strata::reference {

extern const Kernels kGenericKernels;
extern const Kernels kAvx2Kernels;

}  // namespace strata::reference
