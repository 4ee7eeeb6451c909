// Request → the tokens the engine reads, and the positions in them that are worth a checkpoint (RAM-6): the
// end of the system prompt and each border before a user message, so that a client that rewrites its history
// falls back to the message it changed. A model with a chat format of its own makes the text itself and says
// how the answer is to be held and read. Uses the model's tokenizer and template; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "engine/server/api_error.hpp"
#include "engine/server/api_request.hpp"

namespace strata {

inline constexpr size_t kMaxBorders = 64;  // the first and the last ones of a long conversation

// Each border of a chat format costs a rendering of its own, grammar and all.
inline constexpr size_t kMaxFormattedBorders = 4;

struct Prompt {
  std::vector<Token> tokens;      // never empty
  std::vector<uint32_t> borders;  // ascending, inside the prompt
  // From the chat format; absent without one.
  std::vector<std::string> stops{};
  std::string grammar{};
  std::optional<std::string> parser{};
};

ApiResult<Prompt> build_prompt(Model& model, const CompletionRequest& request);
// The text alone.
ApiResult<std::string> render_prompt(Model& model, const CompletionRequest& request);

}  // namespace strata
