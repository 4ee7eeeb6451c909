// A byte vocabulary with a chat format of its own, for tests of tools and reasoning: tools and turns are
// rendered as lines, and an answer is read by its tags:
//   <think>…</think> reasoning · <call>NAME ARGUMENTS</call> a tool call, where tools were offered · the rest
//   is content
// "<end>" is a stop string of the format. A demand for a call or a schema becomes a grammar. An answer with
// "<broken>" cannot be read once it has ended. Grammars may hold anything but a "(" that nothing closes.
#pragma once

#include "tests/support/byte_vocabulary.hpp"

namespace strata::test {

class ChatVocabulary final : public ByteVocabulary {
 public:
  ChatVocabulary() { info_.chat = info_.sampling = true; }
  Result<ChatPrompt> chat_format(const std::string& request_json) override;
  Result<std::string> chat_parse(const std::string& parser, std::string_view text, bool final) override;
  Result<std::unique_ptr<ModelSampler>> make_sampler(const std::string& params_json) override;
};

}  // namespace strata::test
