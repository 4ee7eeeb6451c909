// The io kind of the plugin ABI as the IoQueue port. Owns the instance. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "core/io_queue.hpp"
#include "plugins/abi/strata_io.h"

namespace strata {

class IoAdapter final : public IoQueue {
 public:
  // Takes the instance, also when the result is an error: it reports alignments that are no powers of two, or
  // a depth of zero.
  static Result<std::unique_ptr<IoAdapter>> make(const strata_io* table, strata_instance* instance);
  ~IoAdapter() override { table_->plugin.destroy(instance_); }
  IoAdapter(const IoAdapter&) = delete;
  IoAdapter& operator=(const IoAdapter&) = delete;

  [[nodiscard]] IoRequirements requirements() const override { return requirements_; }
  Result<size_t> submit(std::span<const IoOp> ops) override;
  Result<size_t> poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) override;
  [[nodiscard]] size_t in_flight() const override { return table_->in_flight(instance_); }
  Status register_buffer(std::span<std::byte> memory) override;
  Status unregister_buffer(std::span<std::byte> memory) override;

 private:
  IoAdapter(const strata_io* table, strata_instance* instance) : table_(table), instance_(instance) {}
  [[nodiscard]] bool registers() const;

  const strata_io* table_;
  strata_instance* instance_;
  IoRequirements requirements_;
  std::vector<strata_io_op> ops_;     // of one submit
  std::vector<strata_io_done> done_;  // of one poll
};

}  // namespace strata
