// What --version prints, and the release that INFO names.
#pragma once

#include <cstdint>
#include <string>

namespace strata::cli {

[[nodiscard]] const char* release();                        // "0.1.0"
[[nodiscard]] const char* kind_name(uint32_t plugin_kind);  // "device", "io", "model"
[[nodiscard]] std::string version_text();  // version, commit, compiler, plugins; several lines

}  // namespace strata::cli
