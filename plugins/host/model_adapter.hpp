// The model kind of the plugin ABI as the Model port. The adapter owns the instance and destroys it; table, device
// table and device instance are borrowed for its whole life. device may be null for a vocabulary-only instance.
#pragma once

#include <memory>

#include "core/model.hpp"
#include "core/result.hpp"
#include "plugins/abi/strata_model.h"

namespace strata {

// Binds the device (when there is one), reads the info, and checks it: counts above limits or a capability without its
// function is an error, and the instance is destroyed.
Result<std::unique_ptr<Model>> adapt_model(const strata_model* table, strata_instance* instance,
                                           const strata_device* device, strata_instance* device_instance,
                                           int32_t device_index);

}  // namespace strata
