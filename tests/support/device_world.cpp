#include "tests/support/device_world.hpp"

#include <utility>

#include "tests/support/faulty_device.hpp"

namespace strata::testing {
namespace {

class PluginDeviceWorld final : public DeviceWorld {
 public:
  PluginDeviceWorld(std::string plugin, PluginOptions defaults, bool decorated)
      : plugin_(std::move(plugin)), defaults_(std::move(defaults)), decorated_(decorated) {}
  Status load(const std::string& file) { return plugins_.registry.load(file); }

  Result<Device*> make_device(const PluginOptions& options) override {
    PluginOptions all = options;
    all.insert(defaults_.begin(), defaults_.end());
    STRATA_ASSIGN(std::unique_ptr<Device> device, plugins_.registry.make_device(plugin_, all));
    devices_.push_back(std::move(device));
    if (!decorated_) return devices_.back().get();
    decorators_.push_back(std::make_unique<FaultyDevice>(*devices_.back()));
    return decorators_.back().get();
  }

 private:
  std::string plugin_;
  PluginOptions defaults_;
  bool decorated_;
  PluginWorld plugins_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<FaultyDevice>> decorators_;
};

DeviceImplementation plugin_implementation(std::string name, const std::string& plugin,
                                           const PluginOptions& defaults, bool decorated = false) {
  DeviceImplementation implementation{std::move(name), {}};
  implementation.make_world = [plugin, defaults, decorated]() -> Result<std::unique_ptr<DeviceWorld>> {
    const bool loaded = plugin.front() == '/';
    const std::string wanted = loaded ? installed_plugin(plugin) : plugin;
    auto world = std::make_unique<PluginDeviceWorld>(wanted, defaults, decorated);
    if (loaded) STRATA_TRY(world->load(wanted));
    return std::unique_ptr<DeviceWorld>(std::move(world));
  };
  return implementation;
}

}  // namespace

std::vector<DeviceImplementation> device_implementations(const std::string& test_plugins_folder) {
  const PluginOptions poison{{"device_host.poison", "1"}};
  std::vector<DeviceImplementation> all{
      plugin_implementation("host", "host", poison),
      plugin_implementation("host_loaded", test_plugins_folder + "/device_host_module.so", poison),
      plugin_implementation("host_faultless", "host", poison, true)};
  for (const char* const seed : {"2", "3", "4"}) {
    all.push_back(plugin_implementation(std::string("host_seed_") + seed, "host",
                                        {{"device_host.poison", "1"}, {"device_host.seed", seed}}));
  }
  return all;
}

}  // namespace strata::testing
