// Request → the tokens the engine reads, and the positions in them that are worth a checkpoint (RAM-6): the
// end of the system prompt and each border before a user message, so that a client that rewrites its history
// falls back to the message it changed. Uses the model's tokenizer and template; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model.hpp"
#include "engine/server/api_error.hpp"
#include "engine/server/api_request.hpp"

namespace strata {

inline constexpr size_t kMaxBorders = 64;  // the first and the last ones of a long conversation

struct Prompt {
  std::vector<Token> tokens;      // never empty
  std::vector<uint32_t> borders;  // ascending, inside the prompt
};

ApiResult<Prompt> build_prompt(Model& model, const CompletionRequest& request);
ApiResult<std::string> render_messages(Model& model, const std::vector<ChatMessage>& messages);

}  // namespace strata
