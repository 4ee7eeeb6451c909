// The JSON of completions, whole and as stream chunks, in the field order of docs/http-api.md. Pure,
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

struct CompletionHead {
  bool chat = true;
  std::string id;  // "chatcmpl-…" or "cmpl-…"
  uint64_t created_s = 0;
  std::string model;
  std::string fingerprint;
};

struct TokenText {
  std::string bytes;
  double logprob = 0;
};
struct TokenLogprob {
  TokenText token;
  std::vector<TokenText> top;
  size_t text_offset = 0;  // in the answer, in bytes
};

struct Usage {
  uint32_t prompt_tokens = 0;  // cached ones included
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
};

struct Timings {
  uint32_t cache_n = 0;   // reused
  uint32_t prompt_n = 0;  // read
  double prompt_ms = 0;
  uint32_t predicted_n = 0;
  double predicted_ms = 0;
  std::string cache_tier;
  double cache_ms = 0;
  std::string cache_reason;  // empty: not known yet
};

struct Progress {
  uint32_t total = 0;
  uint32_t cache = 0;
  uint32_t processed = 0;  // cached ones included
  double time_ms = 0;
};

// What one chunk carries; absent members are left out.
struct ChunkParts {
  bool role = false;  // the first chunk of a chat
  std::string_view text{};
  const std::vector<TokenLogprob>* logprobs = nullptr;
  std::string_view finish_reason{};  // empty: null
  const Timings* timings = nullptr;
  const Progress* progress = nullptr;
};

[[nodiscard]] std::string whole_body(const CompletionHead& head, std::string_view text,
                                     std::string_view finish_reason,
                                     const std::vector<TokenLogprob>* logprobs, const Usage& usage,
                                     const Timings& timings);
[[nodiscard]] std::string chunk_body(const CompletionHead& head, const ChunkParts& parts);
[[nodiscard]] std::string usage_chunk(const CompletionHead& head, const Usage& usage, const Timings& timings);

}  // namespace strata
