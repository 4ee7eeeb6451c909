#include "tests/support/io_world.hpp"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "core/check.hpp"
#include "core/posix/file_system.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/fake_io_queue.hpp"
#include "tests/support/faulty_io_queue.hpp"

namespace strata::testing {
namespace {

namespace fs = std::filesystem;

class TestFolder {
 public:
  static Result<std::unique_ptr<TestFolder>> make(IoPlace place) {
    const bool memory = place == IoPlace::tmpfs_buffered;
    const fs::path base = memory ? fs::path("/dev/shm") : fs::current_path();
    struct statfs state {};
    if (::statfs(base.c_str(), &state) != 0) return errno_error(errno, base.string());
    if ((state.f_type == TMPFS_MAGIC) != memory) {
      return make_error(ErrorCode::unsupported,
                        base.string() + (memory ? ": no tmpfs" : ": a tmpfs is no disk"));
    }
    std::string pattern = (base / "strata-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) return errno_error(errno, pattern);
    return std::unique_ptr<TestFolder>(new TestFolder(pattern));
  }
  ~TestFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit TestFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

using Decorator = std::function<std::unique_ptr<IoQueue>(std::unique_ptr<IoQueue>)>;

struct IoVariant {
  Decorator decorate;
  PluginOptions options;
};

class PluginIoWorld final : public IoWorld {
 public:
  PluginIoWorld(std::unique_ptr<TestFolder> folder, IoPlace place, std::string plugin,
                const IoVariant& variant)
      : folder_(std::move(folder)), place_(place), plugin_(std::move(plugin)), variant_(variant) {}

  FileSystem& files() override { return files_; }
  Result<std::unique_ptr<IoQueue>> make_queue(const PluginOptions& options) override {
    PluginOptions all = options;
    all.insert(variant_.options.begin(), variant_.options.end());
    STRATA_ASSIGN(std::unique_ptr<IoQueue> queue, plugins_.registry.make_io(plugin_, all));
    if (variant_.decorate) queue = variant_.decorate(std::move(queue));
    return queue;
  }
  [[nodiscard]] const std::string& folder() const override { return folder_->path(); }
  [[nodiscard]] Caching caching() const override {
    return place_ == IoPlace::disk_direct ? Caching::direct : Caching::buffered;
  }
  Status load(const std::string& file) { return plugins_.registry.load(file); }

 private:
  std::unique_ptr<TestFolder> folder_;
  IoPlace place_;
  std::string plugin_;
  IoVariant variant_;
  PosixFileSystem files_;
  PluginWorld plugins_;
};

class FakeIoWorld final : public IoWorld {
 public:
  FakeIoWorld() { STRATA_CHECK(files_.create_directory(folder_).ok()); }
  FileSystem& files() override { return files_; }
  Result<std::unique_ptr<IoQueue>> make_queue(const PluginOptions&) override {
    std::unique_ptr<IoQueue> queue = std::make_unique<FakeIoQueue>(files_, clock_);
    return queue;
  }
  [[nodiscard]] const std::string& folder() const override { return folder_; }
  [[nodiscard]] Caching caching() const override { return Caching::direct; }

 private:
  const std::string folder_ = "/disk";
  FakeFileSystem files_;
  FakeClock clock_;
};

IoImplementation plugin_implementation(std::string name, std::vector<IoPlace> places,
                                       const std::string& plugin, const IoVariant& variant = {}) {
  IoImplementation implementation{std::move(name), std::move(places), {}};
  implementation.make_world = [plugin, variant](IoPlace place) -> Result<std::unique_ptr<IoWorld>> {
    STRATA_ASSIGN(std::unique_ptr<TestFolder> folder, TestFolder::make(place));
    const bool loaded = plugin.front() == '/';
    const std::string wanted = loaded ? installed_plugin(plugin) : plugin;
    auto world = std::make_unique<PluginIoWorld>(std::move(folder), place, wanted, variant);
    if (loaded) STRATA_TRY(world->load(wanted));
    const auto probe = world->make_queue({});
    if (!probe.ok()) return probe.error();
    return std::unique_ptr<IoWorld>(std::move(world));
  };
  return implementation;
}

IoVariant with_faults(const IoFaults& faults) {
  const auto decorate = [faults](std::unique_ptr<IoQueue> inner) -> std::unique_ptr<IoQueue> {
    return std::make_unique<FaultyIoQueue>(std::move(inner), faults);
  };
  return {decorate, {}};
}

IoImplementation fake_implementation() {
  IoImplementation fake{"fake", {IoPlace::disk_direct}, {}};
  fake.make_world = [](IoPlace) -> Result<std::unique_ptr<IoWorld>> {
    return std::unique_ptr<IoWorld>(std::make_unique<FakeIoWorld>());
  };
  return fake;
}

uint64_t pattern_word(uint64_t offset, uint64_t version) {
  return (offset + 1) * 0x9e3779b97f4a7c15u ^ (version + 1) * 0xc2b2ae3d27d4eb4fu;
}

}  // namespace

const char* to_string(IoPlace place) {
  switch (place) {
    case IoPlace::disk_direct:
      return "disk_direct";
    case IoPlace::disk_buffered:
      return "disk_buffered";
    case IoPlace::tmpfs_buffered:
      return "tmpfs_buffered";
  }
  return "";
}

std::vector<IoImplementation> io_implementations(const std::string& test_plugins_folder) {
  IoFaults unpleasant;  // everything the port allows, all the time
  unpleasant.accept_at_most = 3;
  unpleasant.hold_polls = 2;
  unpleasant.reorder_seed = 7;
  const std::vector<IoPlace> all = {IoPlace::disk_direct, IoPlace::disk_buffered, IoPlace::tmpfs_buffered};
  const std::vector<IoPlace> disk = {IoPlace::disk_direct, IoPlace::disk_buffered};
  const std::vector<IoPlace> direct = {IoPlace::disk_direct};
  return {plugin_implementation("io_uring", all, "uring"),
          plugin_implementation("io_uring_plain", disk, "uring", {{}, {{"io_uring.plain", "1"}}}),
          plugin_implementation("io_uring_loaded", direct, test_plugins_folder + "/io_uring_module.so"),
          plugin_implementation("io_uring_faultless", direct, "uring", with_faults({})),
          plugin_implementation("io_uring_unpleasant", disk, "uring", with_faults(unpleasant)),
          plugin_implementation("io_posix", all, "posix"),
          plugin_implementation("io_posix_loaded", direct, test_plugins_folder + "/io_posix_module.so"),
          plugin_implementation("io_posix_faultless", direct, "posix", with_faults({})),
          plugin_implementation("io_posix_unpleasant", disk, "posix", with_faults(unpleasant)),
          fake_implementation()};
}

AlignedMemory::AlignedMemory(size_t bytes) : bytes_(bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  STRATA_CHECK(memory != MAP_FAILED);
  data_ = static_cast<std::byte*>(memory);
}

AlignedMemory::~AlignedMemory() { ::munmap(data_, bytes_); }

void fill_pattern(std::span<std::byte> memory, uint64_t offset, uint64_t version) {
  for (size_t at = 0; at < memory.size(); at += sizeof(uint64_t)) {
    const uint64_t word = pattern_word(offset + at, version);
    std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
  }
}

bool has_pattern(std::span<const std::byte> memory, uint64_t offset, uint64_t version) {
  for (size_t at = 0; at < memory.size(); at += sizeof(uint64_t)) {
    const uint64_t word = pattern_word(offset + at, version);
    if (std::memcmp(memory.data() + at, &word, std::min(sizeof word, memory.size() - at)) != 0) return false;
  }
  return true;
}

}  // namespace strata::testing
