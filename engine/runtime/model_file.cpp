#include "engine/runtime/model_file.hpp"

#include <array>
#include <filesystem>
#include <system_error>

namespace strata {
namespace {

constexpr const char* kPluginFile = "strata_model_llama.so";

}  // namespace

bool is_model_file(const std::string& model) {
  return model.ends_with(".gguf") || model.find('/') != std::string::npos;
}

std::string model_plugin(const EngineSettings& settings) {
  return is_model_file(settings.model) ? "llama" : settings.model;
}

Result<std::string> llama_plugin_file() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  const std::array<fs::path, 3> places = {program, program / "../lib/strata", program / "../../plugins"};
  for (const fs::path& place : places) {
    const fs::path file = (place / kPluginFile).lexically_normal();
    if (fs::is_regular_file(file, error)) return file.string();
  }
  return make_error(
      ErrorCode::not_found,
      "--model FILE needs the llama.cpp plugin, which this build does not have: run tools/install_deps "
      "llama and build again");
}

}  // namespace strata
