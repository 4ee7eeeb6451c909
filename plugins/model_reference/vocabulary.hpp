// The reference model speaks the bytes that all built-in models speak. Stateless, thread-safe.
#pragma once

#include "plugins/sdk/byte_vocabulary.hpp"

namespace strata::reference {

using sdk::AddBegin;
using sdk::chat_template;
using sdk::detokenize;
using sdk::GenerationPrompt;
using sdk::is_end_of_generation;
using sdk::kAssistant;
using sdk::kBegin;
using sdk::kEnd;
using sdk::kSystem;
using sdk::kTool;
using sdk::kUser;
using sdk::kVocabulary;
using sdk::Message;
using sdk::ParseSpecial;
using sdk::render_chat;
using sdk::tokenize;

}  // namespace strata::reference
