// One instance of the plugin: the model file, and after a device was bound its slots. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "plugins/abi/strata_model.h"
#include "plugins/model_llama/chat.hpp"
#include "plugins/model_llama/loaded_model.hpp"
#include "plugins/model_llama/options.hpp"
#include "plugins/model_llama/slots.hpp"

namespace strata::llama {

class Instance {
 public:
  Instance(const strata_host* host, const Options& options);
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  void bind(const strata_device* device, strata_instance* device_instance, int32_t index);
  void describe(strata_model_info& info) const;
  void identity(strata_pair_visitor visit, void* ctx) const;
  void files(strata_pair_visitor visit, void* ctx) const;

  [[nodiscard]] const LoadedModel& model() const { return model_; }
  [[nodiscard]] Chat& chat();  // made when it is first asked for
  [[nodiscard]] Slots& slots();
  [[nodiscard]] const Slots* bound() const { return slots_.get(); }

 private:
  void choose_context();
  void choose_block();
  void say_how_state_is_kept() const;
  [[nodiscard]] bool adds_up_alike() const;
  [[nodiscard]] bool keeps_order() const;
  [[nodiscard]] uint64_t side_limit() const;
  [[nodiscard]] uint64_t checkpoint_limit() const;
  [[nodiscard]] uint64_t cache_bytes(uint32_t context_tokens) const;

  const strata_host* host_;
  Options options_;
  LoadedModel model_;
  std::unique_ptr<Chat> chat_;
  StateAbilities abilities_;
  uint32_t context_ = 0;
  uint32_t tokens_per_block_ = 256;
  std::unique_ptr<Slots> slots_;
};

}  // namespace strata::llama
