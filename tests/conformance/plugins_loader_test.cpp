// PLG-2: every reason for which the loader refuses a plugin, each provoked by a plugin file. PLG-1: built-in
// and loaded plugins use the same entry.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/device.hpp"
#include "plugins/abi/strata_device.h"
#include "plugins/abi/strata_io.h"
#include "tests/support/plugin_world.hpp"

namespace strata {
namespace {

using testing::installed_plugin;
using testing::PluginWorld;

std::string fixture(const std::string& name) {
  return installed_plugin(std::string(STRATA_TEST_PLUGINS) + "/fixture_" + name + ".so");
}

void expect_refusal(const Error& error, const std::string& step, const std::string& part) {
  EXPECT_NE(error.message.find("refused (" + step + ")"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

struct BadPlugin {
  const char* fixture;
  const char* step;
  const char* part;  // of the reason
};

class RefusedPlugin : public ::testing::TestWithParam<BadPlugin> {};

TEST_P(RefusedPlugin, IsNamedWithItsReasonAndNotListed_PLG2) {
  PluginWorld world;
  const size_t before = world.registry.list().size();
  const Status status = world.registry.load(fixture(GetParam().fixture));
  ASSERT_FALSE(status.ok());
  expect_refusal(status.error(), GetParam().step, GetParam().part);
  EXPECT_NE(status.error().message.find(GetParam().fixture), std::string::npos) << status.error().message;
  EXPECT_EQ(world.registry.list().size(), before);
}

INSTANTIATE_TEST_SUITE_P(
    Loader, RefusedPlugin,
    ::testing::Values(BadPlugin{"unresolved", "open", "strata_fixture_that_nobody_defines"},
                      BadPlugin{"no_symbol", "symbol", "strata_plugin_entry_v1"},
                      BadPlugin{"short_header", "size", "8 bytes"}, BadPlugin{"next_major", "major", "ABI 2"},
                      BadPlugin{"unknown_kind", "kind", "no kind"}, BadPlugin{"other_kind", "kind", "got 2"},
                      BadPlugin{"required_bit", "required", "capabilities"},
                      BadPlugin{"short_table", "table", "end of the table"},
                      BadPlugin{"missing_function", "table", "copy_async"},
                      BadPlugin{"no_name", "table", "name"},
                      BadPlugin{"implied_function", "implied", "host_register"},
                      BadPlugin{"probe_zero", "probe", "no such hardware"}),
    [](const auto& param_info) { return std::string(param_info.param.fixture); });

class CreateRefusal : public ::testing::TestWithParam<const char*> {};

TEST_P(CreateRefusal, IsReportedWhenThePortIsMade_PLG2) {
  PluginWorld world;
  const std::string path = fixture(GetParam());
  ASSERT_TRUE(world.registry.load(path).ok());
  const auto device = world.registry.make_device(path, {});
  ASSERT_FALSE(device.ok());
  expect_refusal(device.error(), "create", "");
}

INSTANTIATE_TEST_SUITE_P(Loader, CreateRefusal, ::testing::Values("create_fails", "create_null"));

TEST(Loader, RefusesADevicePluginWithoutDevices_PLG2) {
  PluginWorld world;
  const std::string path = fixture("no_devices");
  ASSERT_TRUE(world.registry.load(path).ok());
  EXPECT_FALSE(world.registry.make_device(path, {}).ok());
}

TEST(Loader, LoadsAPluginInPlainC_PLG1) {
  PluginWorld world;
  ASSERT_TRUE(world.registry.load(fixture("good")).ok());
  auto device = world.registry.make_device("fixture", {});
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ((*device)->info()->name, "f");
  EXPECT_EQ((*device)->register_host({}).error().code, ErrorCode::unsupported);
}

TEST(Loader, IgnoresOptionalCapabilitiesAndLaterMinors_PLG1) {
  PluginWorld world;
  EXPECT_TRUE(world.registry.load(fixture("optional_bit")).ok());
  EXPECT_TRUE(world.registry.load(fixture("next_minor")).ok());
}

class PluginPath : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(fixture("good")).parent_path() / "paths";
    std::filesystem::create_directory(folder_);
    file_ = folder_ / "copy.so";
    std::filesystem::copy_file(fixture("good"), file_, std::filesystem::copy_options::overwrite_existing);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void expect_path_refusal(const std::string& path, const std::string& part) {
    PluginWorld world;
    const Status status = world.registry.load(path);
    ASSERT_FALSE(status.ok());
    expect_refusal(status.error(), "path", part);
  }

  std::filesystem::path folder_;
  std::filesystem::path file_;
};

TEST_F(PluginPath, MustBeAbsolute_PLG2) {
  expect_path_refusal("fixture_good.so", "absolute");
  expect_path_refusal("", "absolute");
}

TEST_F(PluginPath, MustExist_PLG2) { expect_path_refusal(file_.string() + ".no", "No such file"); }

TEST_F(PluginPath, MustBeARegularFileAndNoLink_PLG2) {
  expect_path_refusal(folder_.string(), "not a regular file");
  const std::filesystem::path link = folder_ / "link.so";
  std::filesystem::create_symlink(file_, link);
  expect_path_refusal(link.string(), "not a regular file");
}

TEST_F(PluginPath, MustNotBeWritableByOthers_PLG2) {
  ASSERT_EQ(::chmod(file_.c_str(), 0620), 0);
  expect_path_refusal(file_.string(), "writable by others");
  ASSERT_EQ(::chmod(file_.c_str(), 0602), 0);
  expect_path_refusal(file_.string(), "writable by others");
}

TEST_F(PluginPath, MustNotLieInAFolderThatOthersWrite_PLG2) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  expect_path_refusal(file_.string(), "folder is writable by others");
}

TEST_F(PluginPath, MustBeOursOrRoots_PLG2) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(::chown(file_.c_str(), 65534, 65534), 0);
  expect_path_refusal(file_.string(), "another user");
}

TEST_F(PluginPath, MustHoldASharedObject_PLG2) {
  std::ofstream(file_, std::ios::trunc) << "not a shared object";
  PluginWorld world;
  const Status status = world.registry.load(file_.string());
  ASSERT_FALSE(status.ok());
  expect_refusal(status.error(), "open", "copy.so");
}

TEST(Registry, ListsTheBuiltInPlugins_PLG1) {
  PluginWorld world;
  std::vector<std::string> names;
  for (const PluginDescription& plugin : world.registry.list()) {
    EXPECT_EQ(plugin.source, "built in");
    EXPECT_TRUE(plugin.probe > 0 || !plugin.unavailable.empty()) << plugin.name;
    names.push_back(plugin.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"host", "uring", "posix", "reference", "synthetic"}));
}

TEST(Registry, TakesNamesWithAndWithoutTheirKind_PLG1) {
  PluginWorld world;
  for (const char* const name : {"host", "device_host", "auto"})
    EXPECT_TRUE(world.registry.make_device(name, {}).ok()) << name;
  for (const char* const name : {"posix", "io_posix", "auto"})
    EXPECT_TRUE(world.registry.make_io(name, {}).ok()) << name;
}

TEST(Registry, NamesAPluginThatIsNotThere) {
  PluginWorld world;
  const auto queue = world.registry.make_io("tape", {});
  ASSERT_FALSE(queue.ok());
  EXPECT_EQ(queue.error().code, ErrorCode::not_found);
  EXPECT_NE(queue.error().message.find("\"tape\""), std::string::npos);
  EXPECT_FALSE(world.registry.make_io("host", {}).ok());  // of another kind
}

TEST(Registry, HandsEachInstanceItsOwnOptions) {
  PluginWorld world;
  auto small = world.registry.make_io("posix", {{"io_posix.depth", "3"}});
  auto large = world.registry.make_io("posix", {{"io_posix.depth", "30"}});
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ((*small)->requirements().max_in_flight, 3u);
  EXPECT_EQ((*large)->requirements().max_in_flight, 30u);
}

TEST(Registry, RefusesOptionsThatMakeNoSense) {
  PluginWorld world;
  for (const char* const text : {"0", "5000", "-1", "many", "", "12x", "99999999999999999999999"}) {
    const auto queue = world.registry.make_io("posix", {{"io_posix.depth", text}});
    ASSERT_FALSE(queue.ok()) << text;
    EXPECT_EQ(queue.error().code, ErrorCode::invalid);
    EXPECT_NE(queue.error().message.find("io_posix.depth"), std::string::npos) << queue.error().message;
  }
  EXPECT_FALSE(world.registry.make_device("host", {{"device_index", "1"}}).ok());
  EXPECT_FALSE(world.registry.make_device("host", {{"device_index", "x"}}).ok());
}

TEST(Registry, AutoTakesTheNextPluginWhenTheBestCannotBeMade_OBS2) {
  PluginWorld world;
  if (!world.registry.make_io("uring", {}).ok()) GTEST_SKIP() << "io_uring cannot run here";
  const auto queue = world.registry.make_io("auto", {{"io_uring.depth", "0"}});
  ASSERT_TRUE(queue.ok()) << queue.error().message;
  EXPECT_TRUE(world.log.contains("io_uring.depth"));
  EXPECT_TRUE(world.log.contains("trying posix"));
}

TEST(Registry, MakesTheReferenceModelAndItsVocabulary_PLG1) {
  PluginWorld world;
  auto device = world.registry.make_device("auto", {});
  ASSERT_TRUE(device.ok());
  auto model = world.registry.make_model("reference", {}, **device);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_GT((*model)->info().vocabulary, 0u);
  auto vocabulary = world.registry.make_vocabulary("model_reference", {});
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  const auto tokens = (*vocabulary)->tokenize("warm", false, false);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(*(*vocabulary)->detokenize(*tokens), "warm");
  EXPECT_EQ(*tokens, *(*model)->tokenize("warm", false, false));
}

// OBS-2: a slip of the pen is not passed over in silence.
TEST(Registry, ModelOptionsThatNobodyAskedForAreSaid_OBS2) {
  PluginWorld world;
  auto device = world.registry.make_device("auto", {});
  ASSERT_TRUE(device.ok());
  ASSERT_TRUE(
      world.registry.make_model("reference", {{"layers", "2"}, {"slots", "1"}, {"path", "x"}}, **device)
          .ok());
  EXPECT_FALSE(world.log.contains("has not asked"));
  ASSERT_TRUE(world.registry.make_model("reference", {{"layers", "2"}, {"layrs", "3"}}, **device).ok());
  EXPECT_TRUE(world.log.contains("model option layrs: the plugin reference has not asked for it"));
}

TEST(Registry, ModelsNeedADeviceOfAPlugin) {
  PluginWorld world;
  auto device = world.registry.make_device("host", {{"device_index", "0"}});
  ASSERT_TRUE(device.ok());
  class Other final : public Device {
   public:
    Result<DeviceInfo> info() override { return DeviceInfo{}; }
    Result<DeviceMemory> allocate(uint64_t) override { return DeviceMemory{}; }
    void free(DeviceMemory) override {}
    Status register_host(std::span<std::byte>) override { return {}; }
    Status unregister_host(std::span<std::byte>) override { return {}; }
    Result<DeviceStream> create_stream() override { return DeviceStream{}; }
    void destroy_stream(DeviceStream) override {}
    Status copy_async(void*, const void*, uint64_t, CopyDirection, DeviceStream) override { return {}; }
    Result<DeviceEvent> create_event() override { return DeviceEvent{}; }
    void destroy_event(DeviceEvent) override {}
    Status record(DeviceEvent, DeviceStream) override { return {}; }
    Result<bool> done(DeviceEvent) override { return true; }
    Status wait(DeviceEvent) override { return {}; }
    Status stream_wait(DeviceStream, DeviceEvent) override { return {}; }
  } other;
  const auto model = world.registry.make_model("reference", {}, other);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace strata
