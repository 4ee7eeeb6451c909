// Plugins by kind and name, linked in or loaded from a file, and the ports made of them.
// Loading is running code as us: see loader.hpp for the rules. Ownership: a port owns its plugin instance;
// the registry must outlive every port it made. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/device.hpp"
#include "core/io_queue.hpp"
#include "core/log.hpp"
#include "core/model.hpp"
#include "core/result.hpp"
#include "plugins/abi/strata_plugin.h"

namespace strata {

using PluginOptions = std::map<std::string, std::string>;  // what get_option answers for one instance

struct PluginDescription {
  std::string name;
  std::string version;
  uint32_t kind = 0;
  std::string source;       // "built in", or the file
  int32_t probe = 0;        // > 0: can run here
  std::string unavailable;  // why not
};

class PluginRegistry {
 public:
  PluginRegistry(Log& log, Clock& clock);  // with the built-in plugins
  ~PluginRegistry();
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  Status load(const std::string& absolute_path);
  [[nodiscard]] std::vector<PluginDescription> list() const;

  // name: the plugin's, with or without its kind in front ("uring", "io_uring"); the absolute path of a loaded file; or
  // "auto": the one with the highest probe, and the next one, with a log line, when it cannot be made. The first of two
  // equal names counts, and built-in plugins are first. Errors name the plugin and why it cannot run.
  // Option device_index=N chooses among the devices of the plugin.
  Result<std::unique_ptr<Device>> make_device(const std::string& name, const PluginOptions& options);
  Result<std::unique_ptr<IoQueue>> make_io(const std::string& name, const PluginOptions& options);
  // The device must come from this registry and outlive the model.
  Result<std::unique_ptr<Model>> make_model(const std::string& name, const PluginOptions& options,
                                            Device& device);
  // Tokenizer and chat template only; decode, export and import answer unsupported.
  Result<std::unique_ptr<Model>> make_vocabulary(const std::string& name, const PluginOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
