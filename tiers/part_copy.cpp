#include "tiers/part_copy.hpp"

#include <cstring>

namespace strata {

Status queue_copy_out(Model& model, SlotId slot, Part& part, std::span<std::byte> to, DeviceStream stream) {
  if (part.is_block()) {
    part.bytes = model.block_bytes(part.stage, part.count);
    std::memset(to.data() + part.bytes, 0, to.size() - part.bytes);
    return model.export_block(slot, part.stage, part.first, part.count, to.first(part.bytes), stream);
  }
  std::memset(to.data(), 0, to.size());
  if (model.info().checkpoint_bytes[part.stage] == 0) {
    part.bytes = kEmptyCheckpointBytes;
    return {};
  }
  STRATA_ASSIGN(part.bytes, model.export_checkpoint(slot, part.stage, to, stream));
  return {};
}

}  // namespace strata
