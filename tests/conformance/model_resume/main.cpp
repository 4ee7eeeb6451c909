// strata_model_resume STATE ANSWER COUNT key=value…: restores a stored state in this process, reads COUNT
// tokens on and writes their logits. The other half of RestoredInAnotherProcessTheAnswerIsEqual.
#include <cstdlib>
#include <cstring>

#include "tests/support/model_world.hpp"

int main(int count, char** arguments) {
  using namespace strata::testing;
  if (count < 4) return 2;
  ModelWorldOptions options;
  for (int i = 4; i < count; ++i) {
    const char* equals = std::strchr(arguments[i], '=');
    if (equals == nullptr) return 2;
    const std::string key(arguments[i], static_cast<size_t>(equals - arguments[i]));
    if (key == "plugin") options.plugin = equals + 1;
    if (key == "plugin_file") options.plugin_file = equals + 1;
    options.model[key] = equals + 1;
  }
  StoredState state;
  if (!read_state(arguments[1], state)) return 3;
  ModelWorld world(options);
  if (!world.restore(0, state).ok()) return 4;
  const auto tokens = static_cast<uint32_t>(std::strtoul(arguments[3], nullptr, 10));
  const Trace trace = world.step(0, some_tokens(3, tokens));
  return trace.size() == tokens && write_trace(arguments[2], trace) ? 0 : 5;
}
