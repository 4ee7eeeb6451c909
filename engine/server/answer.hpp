// An answer on its way to the client, before any API's wire form: what the model said (text, reasoning, tool
// calls) in pieces or whole, how it ended, and what it cost. One AnswerFormat a request puts that on the wire
// of one API family. Values; a format is stateful, belongs to one request and one thread, and touches no
// socket.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.hpp"
#include "engine/server/api_error.hpp"

namespace strata {

struct TokenText {
  Token id = 0;
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

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, or the beginning of it
  bool operator==(const ToolCall&) const = default;
};

struct AnswerContent {
  std::string text;
  std::string reasoning;
  std::vector<ToolCall> tool_calls;
  bool operator==(const AnswerContent&) const = default;
};

struct ToolCallDelta {
  size_t index = 0;
  bool first = false;  // id and name are there
  std::string id{};
  std::string name{};
  std::string arguments{};  // what is new
  bool operator==(const ToolCallDelta&) const = default;
};

// What has come since the piece before it.
struct AnswerDelta {
  std::string reasoning;
  std::string text;
  std::vector<ToolCallDelta> tool_calls;
  [[nodiscard]] bool empty() const { return reasoning.empty() && text.empty() && tool_calls.empty(); }
  bool operator==(const AnswerDelta&) const = default;
};

struct AnswerStep {
  AnswerDelta delta;
  Usage usage;  // so far
  SlotId slot = kNoSlot;
  std::vector<Token> tokens{};  // since the step before it
  std::vector<TokenLogprob> logprobs{};
  bool has_logprobs = false;         // they were asked for
  const Timings* timings = nullptr;  // only where they were asked for
};

enum class StopCause : uint8_t { end, limit, stop_string };

struct AnswerEnd {
  StopCause cause = StopCause::end;
  std::string stop_string;  // of the request, with StopCause::stop_string
  bool tool_calls = false;  // the answer asks for at least one
  Usage usage;
  Timings timings;
  SlotId slot = kNoSlot;
  std::vector<Token> tokens{};           // whole answers: all, where they were asked for
  std::vector<TokenLogprob> logprobs{};  // whole answers: all; streams: what no step carried
  bool has_logprobs = false;
};

// Streams: the bytes to send at each event, empty for nothing. Whole answers: the body.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // The engine has begun with the request; usage says what was reused.
  virtual std::string start(const Usage& usage) = 0;
  virtual std::string progress(const Progress&) { return {}; }  // only where it was asked for
  virtual std::string step(const AnswerStep& step) = 0;
  virtual std::string end(const AnswerEnd& end) = 0;
  // Nothing was sent for a while.
  virtual std::string ping() { return ":\n\n"; }
  // The stream breaks off: the last bytes, that no client may take for an orderly end.
  virtual std::string failure(const ApiError& error) = 0;
  virtual std::string whole(const AnswerContent& content, const AnswerEnd& end) = 0;
};

// ---- server-sent events

[[nodiscard]] inline std::string sse_data(std::string_view json) {
  return "data: " + std::string(json) + "\n\n";
}
[[nodiscard]] inline std::string sse_event(std::string_view name, std::string_view json) {
  return "event: " + std::string(name) + "\n" + sse_data(json);
}

}  // namespace strata
