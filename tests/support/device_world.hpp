// Where the Device conformance suite runs: one implementation, and how to make it with options. One thread at
// a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "tests/support/plugin_world.hpp"

namespace strata::testing {

class DeviceWorld {
 public:
  virtual ~DeviceWorld() = default;
  // Valid for the life of the world.
  virtual Result<Device*> make_device(const PluginOptions& options) = 0;
};

struct DeviceImplementation {
  std::string name;
  // An error says why it cannot run here: the test is skipped with that reason.
  std::function<Result<std::unique_ptr<DeviceWorld>>()> make_world;
};

// The host device linked in, loaded from a file, with several seeds, and behind the decorator without faults.
[[nodiscard]] std::vector<DeviceImplementation> device_implementations(
    const std::string& test_plugins_folder);

}  // namespace strata::testing
