// Which plugin runs the model that the settings name: a plugin's name, or a GGUF file, which the llama plugin
// runs. Pure functions and one look into the program's own folder. Any thread.
#pragma once

#include <string>

#include "core/result.hpp"
#include "engine/runtime/engine_host.hpp"

namespace strata {

[[nodiscard]] bool is_model_file(const std::string& model);

// The name that the registry knows the plugin by.
[[nodiscard]] std::string model_plugin(const EngineSettings& settings);

// The plugin file for GGUF models: beside the program, in ../lib/strata of it, or where the build puts it.
// not_found, with the command that brings it.
[[nodiscard]] Result<std::string> llama_plugin_file();

}  // namespace strata
