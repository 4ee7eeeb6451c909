// The JSON of OpenAI's completions, whole and as stream chunks, in the field order of docs/http-api.md. Pure,
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_writer.hpp"
#include "engine/server/answer.hpp"

namespace strata {

struct CompletionHead {
  bool chat = true;
  std::string id;  // "chatcmpl-…" or "cmpl-…"
  uint64_t created_s = 0;
  std::string model;
  std::string fingerprint;
};

// What one chunk carries; absent members are left out.
struct ChunkParts {
  bool role = false;  // the first chunk of a chat
  std::string_view text{};
  std::string_view reasoning{};
  const ToolCallDelta* tool_call = nullptr;
  const std::vector<TokenLogprob>* logprobs = nullptr;
  std::string_view finish_reason{};  // empty: null
  const Timings* timings = nullptr;
  const Progress* progress = nullptr;
};

[[nodiscard]] std::string whole_body(const CompletionHead& head, const AnswerContent& content,
                                     std::string_view finish_reason,
                                     const std::vector<TokenLogprob>* logprobs, const Usage& usage,
                                     const Timings& timings);
[[nodiscard]] std::string chunk_body(const CompletionHead& head, const ChunkParts& parts);
[[nodiscard]] std::string usage_chunk(const CompletionHead& head, const Usage& usage, const Timings& timings);

// ---- members that other families' bodies have too
void write_timings(JsonWriter& json, const Timings& timings);     // "timings":{…}
void write_progress(JsonWriter& json, const Progress& progress);  // "prompt_progress":{…}
void write_token(JsonWriter& json, const TokenText& token);       // "token", "logprob", "bytes"

}  // namespace strata
