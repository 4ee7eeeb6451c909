// Where the IoQueue conformance suite runs: one implementation, one file system, one way of caching.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/io_queue.hpp"
#include "tests/support/plugin_world.hpp"

namespace strata::testing {

enum class IoPlace : uint8_t { disk_direct, disk_buffered, tmpfs_buffered };

class IoWorld {
 public:
  virtual ~IoWorld() = default;
  virtual FileSystem& files() = 0;
  virtual Result<std::unique_ptr<IoQueue>> make_queue(const PluginOptions& options) = 0;
  [[nodiscard]] virtual const std::string& folder() const = 0;  // exists, empty, removed with the world
  [[nodiscard]] virtual Caching caching() const = 0;
};

struct IoImplementation {
  std::string name;
  std::vector<IoPlace> places;
  // An error says why it cannot run here: the test is skipped with that reason.
  std::function<Result<std::unique_ptr<IoWorld>>(IoPlace)> make_world;
};

[[nodiscard]] const char* to_string(IoPlace place);

// io_uring and POSIX threads, each linked in, loaded from a file and behind decorators; and the fake.
[[nodiscard]] std::vector<IoImplementation> io_implementations(const std::string& test_plugins_folder);

// Page-aligned memory of its own mapping, as pinned slabs are.
class AlignedMemory {
 public:
  explicit AlignedMemory(size_t bytes);
  ~AlignedMemory();
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;
  [[nodiscard]] std::span<std::byte> span() const { return {data_, bytes_}; }
  [[nodiscard]] std::span<std::byte> span(size_t offset, size_t bytes) const {
    return span().subspan(offset, bytes);
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Bytes that depend on where they belong and on a version, so that every mix-up shows.
void fill_pattern(std::span<std::byte> memory, uint64_t offset, uint64_t version);
[[nodiscard]] bool has_pattern(std::span<const std::byte> memory, uint64_t offset, uint64_t version);

}  // namespace strata::testing
