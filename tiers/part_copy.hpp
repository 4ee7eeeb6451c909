// Queues the copy of one part out of a slot. One thread at a time.
#pragma once

#include <span>

#include "core/device.hpp"
#include "core/image.hpp"
#include "core/model.hpp"
#include "core/result.hpp"

namespace strata {

// Into `to`, whole pages of at least the part's size; bytes behind the payload are zeroed. Sets the part's
// bytes to what the state really has. A checkpoint is that of the slot's present length. On an error a part
// of the copy may have been queued.
Status queue_copy_out(Model& model, SlotId slot, Part& part, std::span<std::byte> to, DeviceStream stream);

}  // namespace strata
