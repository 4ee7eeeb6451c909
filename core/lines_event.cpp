// Events of the line protocol: what the engine says to the server.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/line_fields.hpp"
#include "core/lines.hpp"

namespace strata::lines {

namespace {

constexpr std::array<std::string_view, 3> kFinishes = {"stop", "length", "cancel"};
constexpr std::array<std::string_view, 4> kTiers = {"vram", "ram", "disk", "none"};
constexpr std::array<std::string_view, 4> kErrorKinds = {"invalid", "storage", "memory", "io"};
constexpr std::array<std::string_view, 6> kPhases = {"fingerprint", "capture",  "flush",
                                                     "publish",     "validate", "transfer"};
constexpr uint32_t kMaxWaitSeconds = 3600;

template <size_t N>
std::optional<size_t> index_of(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<size_t>(at - names.begin());
}

// A text that is one field: spaces become underscores.
std::string one_word(std::string_view text) {
  std::string out = free_text(text);
  std::replace(out.begin(), out.end(), ' ', '_');
  return out;
}

// ---- INFO

bool is_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string encode_info(const Info& line) {
  std::string out = "INFO";
  for (const auto& [key, value] : line.values)
    out += fmt::format(" {}={}", one_word(key), percent_encoded(value));
  return out;
}

Result<Event> decode_info(Cursor rest) {
  Info line;
  while (!rest.ended()) {
    STRATA_ASSIGN(const std::string_view word, rest.word("key=value"));
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || !is_key(word.substr(0, equals))) return rest.bad("key=value");
    auto value = percent_decoded(word.substr(equals + 1));
    if (!value) return rest.bad(word.substr(0, equals));
    line.values.emplace_back(word.substr(0, equals), std::move(*value));
  }
  return Event(std::move(line));
}

// ---- requests

Result<Event> decode_ready(Cursor rest) {
  Ready line;
  STRATA_TRY(rest.number("context", line.context));
  STRATA_TRY(rest.number("slots", line.slots));
  STRATA_TRY(rest.finish());
  return Event(line);
}

Result<Event> decode_resume(Cursor rest) {
  Resume line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_TRY(rest.number("tokens", line.tokens));
  STRATA_ASSIGN(const std::string_view tier, rest.word("tier"));
  const auto index = index_of(kTiers, tier);
  if (!index) return rest.bad("tier");
  line.tier = static_cast<Tier>(*index);
  STRATA_TRY(rest.number("ms", line.ms));
  STRATA_TRY(rest.number("slot", line.slot));
  STRATA_TRY(rest.finish());
  return Event(line);
}

Result<Event> decode_prompt_progress(Cursor rest) {
  PromptProgress line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_TRY(rest.number("done", line.done));
  STRATA_TRY(rest.number("total", line.total));
  STRATA_TRY(rest.number("ms", line.ms));
  STRATA_TRY(rest.finish());
  if (line.done > line.total) return rest.bad("done");
  return Event(line);
}

Result<Event> decode_token(Cursor rest) {
  TokenLine line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_TRY(rest.number("token", line.token));
  STRATA_TRY(rest.finish());
  return Event(line);
}

bool parse_alternatives(std::string_view list, std::vector<std::pair<Token, double>>& top) {
  while (true) {
    const size_t comma = list.find(',');
    const std::string_view item = list.substr(0, comma);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) return false;
    Token token = 0;
    const auto logprob = parse_signed_real(item.substr(colon + 1));
    if (!logprob || !parse(item.substr(0, colon), token)) return false;
    top.emplace_back(token, *logprob);
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

Result<Event> decode_log_probs(Cursor rest) {
  LogProbs line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_TRY(rest.number("token", line.token));
  STRATA_ASSIGN(const std::string_view own, rest.word("logprob"));
  const auto logprob = parse_signed_real(own);
  if (!logprob) return rest.bad("logprob");
  line.logprob = *logprob;
  if (!rest.ended()) {
    STRATA_ASSIGN(const std::string_view list, rest.value("top"));
    if (!parse_alternatives(list, line.top)) return rest.bad("top");
  }
  STRATA_TRY(rest.finish());
  return Event(std::move(line));
}

std::string encode_log_probs(const LogProbs& line) {
  std::string out = fmt::format("LP {} {} {}", line.id, line.token, format_real(line.logprob));
  for (size_t i = 0; i < line.top.size(); ++i)
    out += fmt::format("{}{}:{}", i == 0 ? " top=" : ",", line.top[i].first, format_real(line.top[i].second));
  return out;
}

std::string encode_done(const Done& line) {
  return fmt::format(
      "DONE {} finish={} prompt={} reused={} read={} prompt_ms={} generated={} decode_ms={} tier={} "
      "reason={} slot={} "
      "cache_ms={}",
      line.id, kFinishes[static_cast<size_t>(line.finish)], line.prompt, line.reused, line.read,
      format_real(line.prompt_ms), line.generated, format_real(line.decode_ms), to_string(line.tier),
      one_word(line.reason), line.slot, format_real(line.cache_ms));
}

Result<Event> decode_done(Cursor rest) {
  Done line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_ASSIGN(const std::string_view finish, rest.value("finish"));
  const auto finish_index = index_of(kFinishes, finish);
  if (!finish_index) return rest.bad("finish");
  line.finish = static_cast<Finish>(*finish_index);
  STRATA_TRY(rest.keyed("prompt", line.prompt));
  STRATA_TRY(rest.keyed("reused", line.reused));
  STRATA_TRY(rest.keyed("read", line.read));
  STRATA_TRY(rest.keyed("prompt_ms", line.prompt_ms));
  STRATA_TRY(rest.keyed("generated", line.generated));
  STRATA_TRY(rest.keyed("decode_ms", line.decode_ms));
  STRATA_ASSIGN(const std::string_view tier, rest.value("tier"));
  const auto tier_index = index_of(kTiers, tier);
  if (!tier_index) return rest.bad("tier");
  line.tier = static_cast<Tier>(*tier_index);
  STRATA_ASSIGN(line.reason, rest.value("reason"));
  if (line.reason.empty()) return rest.bad("reason");
  STRATA_TRY(rest.keyed("slot", line.slot));
  STRATA_TRY(rest.keyed("cache_ms", line.cache_ms));
  STRATA_TRY(rest.finish());
  return Event(std::move(line));
}

Result<Event> decode_failed(Cursor rest) {
  Failed line;
  if (rest.peek() == "-") {
    STRATA_TRY(rest.word("id"));
  } else {
    STRATA_TRY(rest.number("id", line.id.emplace()));
  }
  STRATA_ASSIGN(line.reason, rest.text("reason"));
  return Event(std::move(line));
}

std::string encode_failed(const Failed& line) {
  return fmt::format("ERR {} {}", line.id ? std::to_string(*line.id) : "-", free_text(line.reason));
}

// ---- slot actions

Result<Event> decode_saved(Cursor rest) {
  Saved line;
  STRATA_TRY(rest.number("tokens", line.tokens));
  STRATA_TRY(rest.number("bytes", line.bytes));
  STRATA_TRY(rest.number("ms", line.ms));
  STRATA_TRY(rest.finish());
  return Event(line);
}

Result<Event> decode_restored(Cursor rest) {
  Restored line;
  STRATA_TRY(rest.number("tokens", line.tokens));
  STRATA_TRY(rest.number("usable", line.usable));
  STRATA_TRY(rest.number("bytes", line.bytes));
  STRATA_TRY(rest.number("ms", line.ms));
  STRATA_TRY(rest.finish());
  if (line.usable > line.tokens) return rest.bad("usable");
  return Event(line);
}

Result<Event> decode_erased(Cursor rest) {
  Erased line;
  STRATA_TRY(rest.number("tokens", line.tokens));
  STRATA_TRY(rest.finish());
  return Event(line);
}

Result<Event> decode_slot_error(Cursor rest) {
  SlotError line;
  STRATA_ASSIGN(line.kind, rest.word("kind"));
  if (!index_of(kErrorKinds, line.kind)) return rest.bad("kind");
  STRATA_TRY(rest.number("published", line.published));
  STRATA_ASSIGN(line.reason, rest.text("reason"));
  return Event(std::move(line));
}

template <class Line>
Result<Event> decode_text(Cursor rest, std::string Line::*field, std::string_view name) {
  Line line;
  STRATA_ASSIGN(line.*field, rest.text(name));
  return Event(std::move(line));
}

template <class Line>
Result<Event> decode_progress(Cursor rest) {
  Line line;
  STRATA_TRY(rest.number("done", line.done));
  STRATA_TRY(rest.number("total", line.total));
  STRATA_TRY(rest.finish());
  if (line.done > line.total) return rest.bad("done");
  return Event(line);
}

Result<Event> decode_session_wait(Cursor rest) {
  SessionWait line;
  STRATA_ASSIGN(line.phase, rest.word("phase"));
  if (!index_of(kPhases, line.phase)) return rest.bad("phase");
  STRATA_TRY(rest.number("seconds", line.seconds));
  STRATA_TRY(rest.finish());
  if (line.seconds < 1 || line.seconds > kMaxWaitSeconds) return rest.bad("seconds");
  return Event(std::move(line));
}

template <class Line>
Result<Event> decode_json(Cursor rest) {
  Line line;
  STRATA_ASSIGN(line.json, rest.text("JSON"));
  const bool object = line.json.front() == '{' && line.json.back() == '}';
  const bool array = line.json.front() == '[' && line.json.back() == ']';
  if (!object && !array) return rest.bad("JSON");
  return Event(std::move(line));
}

Result<Event> decode_bye(Cursor rest) {
  STRATA_TRY(rest.finish());
  return Event(Bye{});
}

struct Form {
  std::string_view name;
  Result<Event> (*decode)(Cursor rest);
};

constexpr Form kForms[] = {
    {"T", decode_token},
    {"LP", decode_log_probs},
    {"PP", decode_prompt_progress},
    {"RESUME", decode_resume},
    {"DONE", decode_done},
    {"ERR", decode_failed},
    {"INFO", decode_info},
    {"READY", decode_ready},
    {"SAVED", decode_saved},
    {"RESTORED", decode_restored},
    {"ERASED", decode_erased},
    {"SERR", decode_slot_error},
    {"FATAL", [](Cursor rest) { return decode_text(rest, &Fatal::reason, "reason"); }},
    {"SESSION", decode_progress<SessionProgress>},
    {"SWAIT", decode_session_wait},
    {"DRAIN", decode_progress<Drain>},
    {"STATUS", decode_json<StatusReport>},
    {"SESSIONS", decode_json<Sessions>},
    {"OK", [](Cursor rest) { return decode_text(rest, &Acknowledged::what, "what"); }},
    {"BYE", decode_bye},
};

struct Encoder {
  std::string operator()(const Info& line) const { return encode_info(line); }
  std::string operator()(const Ready& line) const {
    return fmt::format("READY {} {}", line.context, line.slots);
  }
  std::string operator()(const Resume& line) const {
    return fmt::format("RESUME {} {} {} {} {}", line.id, line.tokens, to_string(line.tier),
                       format_real(line.ms), line.slot);
  }
  std::string operator()(const PromptProgress& line) const {
    return fmt::format("PP {} {} {} {}", line.id, line.done, line.total, format_real(line.ms));
  }
  std::string operator()(const TokenLine& line) const { return fmt::format("T {} {}", line.id, line.token); }
  std::string operator()(const LogProbs& line) const { return encode_log_probs(line); }
  std::string operator()(const Done& line) const { return encode_done(line); }
  std::string operator()(const Failed& line) const { return encode_failed(line); }
  std::string operator()(const Saved& line) const {
    return fmt::format("SAVED {} {} {}", line.tokens, line.bytes, format_real(line.ms));
  }
  std::string operator()(const Restored& line) const {
    return fmt::format("RESTORED {} {} {} {}", line.tokens, line.usable, line.bytes, format_real(line.ms));
  }
  std::string operator()(const Erased& line) const { return fmt::format("ERASED {}", line.tokens); }
  std::string operator()(const SlotError& line) const {
    return fmt::format("SERR {} {} {}", one_word(line.kind), line.published ? 1 : 0, free_text(line.reason));
  }
  std::string operator()(const Fatal& line) const { return "FATAL " + free_text(line.reason); }
  std::string operator()(const SessionProgress& line) const {
    return fmt::format("SESSION {} {}", line.done, line.total);
  }
  std::string operator()(const SessionWait& line) const {
    return fmt::format("SWAIT {} {}", one_word(line.phase), line.seconds);
  }
  std::string operator()(const Drain& line) const {
    return fmt::format("DRAIN {} {}", line.done, line.total);
  }
  std::string operator()(const StatusReport& line) const { return "STATUS " + free_text(line.json); }
  std::string operator()(const Sessions& line) const { return "SESSIONS " + free_text(line.json); }
  std::string operator()(const Acknowledged& line) const { return "OK " + free_text(line.what); }
  std::string operator()(const Bye&) const { return "BYE"; }
};

}  // namespace

std::string encode(const Event& event) { return std::visit(Encoder{}, event); }

Result<Event> decode_event(std::string_view line) {
  STRATA_ASSIGN(const NamedLine named, open_line(line));
  for (const Form& form : kForms)
    if (form.name == named.name) return form.decode(named.rest);
  return make_error(ErrorCode::invalid, "unknown event");
}

}  // namespace strata::lines
