// Measured rates of disk reads, digests, host-to-device copies and prompt reading, and the prediction made of
// them (B-5). Exponentially weighted, each observation also by its size, so that a few small transfers, which
// measure latency, do not stand for large ones; a rate nobody measured yet never decides against a restore.
// One thread at a time.
#pragma once

#include <cstdint>

namespace strata {

class CostModel {
 public:
  void observe_disk_read(uint64_t bytes, uint64_t duration_ns);
  void observe_digest(uint64_t bytes, uint64_t duration_ns);
  void observe_copy(uint64_t bytes, uint64_t duration_ns);
  void observe_prompt(uint32_t tokens, uint64_t duration_ns);

  // 0 when unknown.
  [[nodiscard]] uint64_t predict_restore_ns(uint64_t disk_bytes, uint64_t copy_bytes) const;
  [[nodiscard]] uint64_t predict_read_ns(uint32_t tokens) const;
  // True when both are known and restoring is slower than reading by a margin of 25 %.
  [[nodiscard]] bool cheaper_to_read(uint64_t disk_bytes, uint64_t copy_bytes, uint32_t tokens) const;

 private:
  struct Rate {
    double amount = 0;  // bytes or tokens, decaying
    double ns = 0;      // what they took, decaying alike
    void observe(double observed_amount, uint64_t duration_ns);
    [[nodiscard]] bool known() const { return ns > 0; }
    [[nodiscard]] double predict_ns(double wanted) const;
  };

  Rate disk_, digest_, copy_, prompt_;
};

}  // namespace strata
