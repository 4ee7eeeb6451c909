// EngineHost: everything below the engine loop, made from settings and taken down in the right order:
// plugins, device, model, disk queues, the writer's thread, the tiers. Blocks while it starts. One thread.
// Errors name what could not be made; nothing is left behind then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/lines.hpp"
#include "core/log.hpp"
#include "core/metrics.hpp"
#include "core/model.hpp"
#include "core/random.hpp"
#include "core/result.hpp"
#include "plugins/host/registry.hpp"
#include "tiers/tier_stack.hpp"

namespace strata {

struct EngineSettings {
  std::string model = "reference";
  PluginOptions model_options;
  std::string alias;            // empty: the model's name
  uint32_t context_tokens = 0;  // 0: the model's own
  uint32_t slots = 4;
  std::string state_granularity = "auto";  // auto: as the model plugin finds best; blocks, whole
  std::string device = "auto";
  std::string io = "auto";
  std::vector<std::string> plugins;  // absolute paths
  std::string plugin_folder;         // absolute; every *.so there
  TierOptions tiers;
};

// Both are what the engine does, for whoever else needs a part of the model.
Status load_plugins(PluginRegistry& registry, const EngineSettings& settings);
[[nodiscard]] PluginOptions model_options(const EngineSettings& settings);

// invalid where the model's context is shorter than the one that was asked for.
[[nodiscard]] Status check_context(const EngineSettings& settings, const Model& model);

// Bytes that one conversation of a full context occupies when parked.
[[nodiscard]] uint64_t conversation_bytes(const Model& model);

// What a person must know about the RAM budget before anything is parked; nullopt when it is large enough or
// off.
[[nodiscard]] std::optional<std::string> budget_warning(const TierOptions& tiers, uint64_t conversation_bytes,
                                                        uint32_t context_tokens);

class EngineHost {
 public:
  // wake: called from another thread when the engine loop should step soon; must outlive the host.
  static Result<std::unique_ptr<EngineHost>> open(
      const EngineSettings& settings, Log& log, std::function<void()> wake = [] {});
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  [[nodiscard]] Model& model();
  [[nodiscard]] TierStack& tiers();
  [[nodiscard]] Clock& clock();
  [[nodiscard]] Random& random();
  [[nodiscard]] Metrics& metrics();
  // The INFO line: keys in docs/engine-protocol.md.
  [[nodiscard]] lines::Info info(const std::string& release) const;

 private:
  struct Parts;
  explicit EngineHost(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace strata
