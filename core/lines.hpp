// The line protocol between server and engine process (docs/engine-protocol.md): typed lines and their codec.
// A decoder refuses every line that is not exactly of a known form; numbers are plain decimal without sign or
// exponent in integers, finite and non-negative (log probabilities and the two additive penalties may be
// negative). Encoders write every field; control characters in free text become spaces, so that a text never
// ends a line early, and INFO values are percent-encoded where they hold spaces. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/result.hpp"
#include "core/token_span.hpp"
#include "core/types.hpp"

namespace strata::lines {

struct SamplingParams {
  std::optional<double> temperature;  // absent or 0: greedy
  std::optional<double> top_p;
  std::optional<uint32_t> top_k;
  std::optional<double> min_p;
  std::optional<uint64_t> seed;
  std::optional<double> repeat_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::optional<uint32_t> repeat_last_n;
  std::optional<uint32_t> logprobs;  // alternatives per token; LP lines follow each T line
  bool operator==(const SamplingParams&) const = default;
};

// To the engine
struct Generate {
  uint64_t id = 0;
  uint32_t max_tokens = 0;  // 0: only read the prompt
  std::optional<SlotId> slot;
  SamplingParams sampling;
  uint64_t salt = 0;             // hex on the line
  bool keep = true;              // checkpoint=0|1: a one-shot request that must not push out others
  bool use_cache = true;         // cache=0|1: reuse stored state
  bool ignore_end = false;       // ignore_end=0|1: end-of-generation tokens do not stop
  std::string grammar;           // percent-encoded on the line: constrains the answer, for the model's own sampler
  std::vector<MediaMark> media;  // start:digest,…
  std::vector<uint32_t>
      borders;  // borders=<n,n,…>: token positions worth a checkpoint (system prompt end, user messages)
  std::vector<Token> tokens;
  bool operator==(const Generate&) const = default;
};
struct Stop {
  uint64_t id = 0;
  bool operator==(const Stop&) const = default;
};
enum class SlotActionKind : uint8_t { save, restore, erase };
struct SlotAction {
  SlotActionKind kind{};
  SlotId slot = 0;
  std::string path;
  bool operator==(const SlotAction&) const = default;
};
struct QueryStatus {
  bool operator==(const QueryStatus&) const = default;
};
struct ListSessions {
  bool operator==(const ListSessions&) const = default;
};
struct Forget {
  ConversationId conversation;
  bool operator==(const Forget&) const = default;
};
struct Pin {
  ConversationId conversation;
  bool pinned = false;
  bool operator==(const Pin&) const = default;
};
struct Quit {
  bool operator==(const Quit&) const = default;
};
using Command = std::variant<Generate, Stop, SlotAction, QueryStatus, ListSessions, Forget, Pin, Quit>;

// From the engine
struct Info {
  std::vector<std::pair<std::string, std::string>> values;
  bool operator==(const Info&) const = default;
};
struct Ready {
  uint32_t context = 0;
  uint32_t slots = 0;
  bool operator==(const Ready&) const = default;
};
struct Resume {
  uint64_t id = 0;
  uint32_t tokens = 0;
  Tier tier = Tier::none;
  double ms = 0;
  uint32_t slot = 0;
  bool operator==(const Resume&) const = default;
};
struct PromptProgress {
  uint64_t id = 0;
  uint32_t done = 0;
  uint32_t total = 0;
  double ms = 0;
  bool operator==(const PromptProgress&) const = default;
};
struct TokenLine {
  uint64_t id = 0;
  Token token = 0;
  bool operator==(const TokenLine&) const = default;
};
struct LogProbs {
  uint64_t id = 0;
  Token token = 0;
  double logprob = 0;
  std::vector<std::pair<Token, double>> top;
  bool operator==(const LogProbs&) const = default;
};
enum class Finish : uint8_t { stop, length, cancel };
struct Done {
  uint64_t id = 0;
  Finish finish{};
  uint32_t prompt = 0, reused = 0, read = 0, generated = 0, slot = 0;
  double prompt_ms = 0, decode_ms = 0, cache_ms = 0;
  Tier tier = Tier::none;
  std::string reason;  // reasons.hpp text
  bool operator==(const Done&) const = default;
};
struct Failed {
  std::optional<uint64_t> id;
  std::string reason;
  bool operator==(const Failed&) const = default;
};  // ERR; no id: start-up
struct Saved {
  uint32_t tokens = 0;
  uint64_t bytes = 0;
  double ms = 0;
  bool operator==(const Saved&) const = default;
};
struct Restored {
  uint32_t tokens = 0;
  uint32_t usable = 0;
  uint64_t bytes = 0;
  double ms = 0;
  bool operator==(const Restored&) const = default;
};
struct Erased {
  uint32_t tokens = 0;
  bool operator==(const Erased&) const = default;
};
struct SlotError {
  std::string kind;
  bool published = false;
  std::string reason;
  bool operator==(const SlotError&) const = default;
};  // SERR
struct Fatal {
  std::string reason;
  bool operator==(const Fatal&) const = default;
};
struct SessionProgress {
  uint64_t done = 0, total = 0;
  bool operator==(const SessionProgress&) const = default;
};
struct SessionWait {
  std::string phase;
  uint32_t seconds = 0;
  bool operator==(const SessionWait&) const = default;
};
struct Drain {
  uint64_t done = 0, total = 0;
  bool operator==(const Drain&) const = default;
};
struct StatusReport {
  std::string json;
  bool operator==(const StatusReport&) const = default;
};
struct Sessions {
  std::string json;
  bool operator==(const Sessions&) const = default;
};
struct Acknowledged {
  std::string what;
  bool operator==(const Acknowledged&) const = default;
};  // OK FORGET <conv> …
struct Bye {
  bool operator==(const Bye&) const = default;
};
using Event = std::variant<Info, Ready, Resume, PromptProgress, TokenLine, LogProbs, Done, Failed, Saved,
                           Restored, Erased, SlotError, Fatal, SessionProgress, SessionWait, Drain,
                           StatusReport, Sessions, Acknowledged, Bye>;

[[nodiscard]] std::string encode(const Command& command);  // without a newline
[[nodiscard]] std::string encode(const Event& event);
Result<Command> decode_command(std::string_view line);  // invalid: message names the field
Result<Event> decode_event(std::string_view line);
// The id of a GEN line that may be wrong after it, so that its refusal can be addressed (ERR <id> …).
[[nodiscard]] std::optional<uint64_t> generate_id(std::string_view line);

}  // namespace strata::lines
