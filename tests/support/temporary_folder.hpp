// A fresh folder on a real file system, removed with everything in it at the end. Lies under $TMPDIR if set,
// else in the working folder (the build tree), never on a memory file system by choice: those hide alignment
// faults.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/check.hpp"

namespace strata::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* base = std::getenv("TMPDIR");
    path_ = (base != nullptr ? std::string(base) : std::filesystem::current_path().string()) +
            "/strata-test-XXXXXX";
    STRATA_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace strata::testing
