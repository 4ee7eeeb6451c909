// Measured rates of disk reads, host-to-device copies and prompt reading, and the prediction made of them (B-5).
// Exponentially weighted; a rate nobody measured yet never decides against a restore. One thread at a time.
#pragma once

#include <cstdint>

namespace strata {

class CostModel {
 public:
  void observe_disk_read(uint64_t bytes, uint64_t duration_ns);
  void observe_copy(uint64_t bytes, uint64_t duration_ns);
  void observe_prompt(uint32_t tokens, uint64_t duration_ns);

  // 0 when unknown.
  [[nodiscard]] uint64_t predict_restore_ns(uint64_t disk_bytes, uint64_t copy_bytes) const;
  [[nodiscard]] uint64_t predict_read_ns(uint32_t tokens) const;
  // True when both are known and restoring is slower than reading by a margin of 25 %.
  [[nodiscard]] bool cheaper_to_read(uint64_t disk_bytes, uint64_t copy_bytes, uint32_t tokens) const;

 private:
  double disk_bytes_per_ns_ = 0;
  double copy_bytes_per_ns_ = 0;
  double tokens_per_ns_ = 0;
};

}  // namespace strata
