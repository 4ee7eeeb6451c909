#include "tests/support/plugin_world.hpp"

#include <stdlib.h>

#include <filesystem>

#include "core/check.hpp"

namespace strata::testing {
namespace {

namespace fs = std::filesystem;

class InstallFolder {
 public:
  InstallFolder() {
    std::string pattern = (fs::temp_directory_path() / "strata-plugins-XXXXXX").string();
    STRATA_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~InstallFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  InstallFolder(const InstallFolder&) = delete;
  InstallFolder& operator=(const InstallFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::string installed_plugin(const std::string& built_file) {
  static const InstallFolder folder;
  const fs::path target = folder.path() / fs::path(built_file).filename();
  fs::copy_file(built_file, target, fs::copy_options::skip_existing);
  fs::permissions(target, fs::perms::owner_read | fs::perms::owner_write);
  return target.string();
}

}  // namespace strata::testing
