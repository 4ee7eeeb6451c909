// Commands of the line protocol: what the server says to the engine.
#include <fmt/format.h>

#include <array>
#include <iterator>

#include "core/limits.hpp"
#include "core/line_fields.hpp"
#include "core/lines.hpp"

namespace strata::lines {

namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

// ---- GEN options

// Calls take(item) for every comma-separated item; false when there are none, too many, or take refuses one.
template <class Take>
bool each_item(std::string_view list, size_t max_items, Take take) {
  for (size_t items = 0; items < max_items; ++items) {
    const size_t comma = list.find(',');
    if (!take(list.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
  return false;
}

bool parse_grammar(std::string_view text, std::string& grammar) {
  auto decoded = percent_decoded(text);
  if (!decoded || decoded->empty()) return false;
  grammar = std::move(*decoded);
  return true;
}

bool parse_hex_into(std::string_view text, uint64_t& out) {
  const auto value = parse_hex(text);
  if (value) out = *value;
  return value.has_value();
}

bool parse_media(std::string_view list, std::vector<MediaMark>& marks) {
  return each_item(list, limits::kMaxMediaMarks, [&](std::string_view item) {
    const size_t colon = item.find(':');
    MediaMark mark;
    if (colon == std::string_view::npos || !parse(item.substr(0, colon), mark.start) ||
        !parse_hex_into(item.substr(colon + 1), mark.digest))
      return false;
    if (!marks.empty() && mark.start <= marks.back().start) return false;
    marks.push_back(mark);
    return true;
  });
}

bool parse_borders(std::string_view list, std::vector<uint32_t>& borders) {
  return each_item(list, limits::kMaxTokens, [&](std::string_view item) {
    uint32_t border = 0;
    if (!parse(item, border) || (!borders.empty() && border <= borders.back())) return false;
    borders.push_back(border);
    return true;
  });
}

bool parse_tokens(std::string_view list, std::vector<Token>& tokens) {
  tokens.reserve(list.size() / 4);
  return each_item(list, limits::kMaxTokens, [&](std::string_view item) {
    Token token = 0;
    if (!parse(item, token)) return false;
    tokens.push_back(token);
    return true;
  });
}

template <auto Member>
bool sampling(std::string_view text, Generate& line) {
  return parse(text, (line.sampling.*Member).emplace());
}

template <auto Member>
bool sampling_signed(std::string_view text, Generate& line) {
  line.sampling.*Member = parse_signed_real(text);
  return (line.sampling.*Member).has_value();
}

struct GenerateOption {
  std::string_view key;
  bool (*take)(std::string_view text, Generate& line);
};

constexpr std::array kOptions = {
    GenerateOption{"slot", [](std::string_view t, Generate& g) { return parse(t, g.slot.emplace()); }},
    GenerateOption{"temperature", &sampling<&SamplingParams::temperature>},
    GenerateOption{"top_p", &sampling<&SamplingParams::top_p>},
    GenerateOption{"top_k", &sampling<&SamplingParams::top_k>},
    GenerateOption{"min_p", &sampling<&SamplingParams::min_p>},
    GenerateOption{"seed", &sampling<&SamplingParams::seed>},
    GenerateOption{"repeat_penalty", &sampling<&SamplingParams::repeat_penalty>},
    GenerateOption{"presence_penalty", &sampling_signed<&SamplingParams::presence_penalty>},
    GenerateOption{"frequency_penalty", &sampling_signed<&SamplingParams::frequency_penalty>},
    GenerateOption{"repeat_last_n", &sampling<&SamplingParams::repeat_last_n>},
    GenerateOption{"logprobs", &sampling<&SamplingParams::logprobs>},
    GenerateOption{"salt", [](std::string_view t, Generate& g) { return parse_hex_into(t, g.salt); }},
    GenerateOption{"checkpoint", [](std::string_view t, Generate& g) { return parse(t, g.keep); }},
    GenerateOption{"cache", [](std::string_view t, Generate& g) { return parse(t, g.use_cache); }},
    GenerateOption{"ignore_end", [](std::string_view t, Generate& g) { return parse(t, g.ignore_end); }},
    GenerateOption{"grammar", [](std::string_view t, Generate& g) { return parse_grammar(t, g.grammar); }},
    GenerateOption{"media", [](std::string_view t, Generate& g) { return parse_media(t, g.media); }},
    GenerateOption{"borders", [](std::string_view t, Generate& g) { return parse_borders(t, g.borders); }},
};

Status read_option(Cursor& rest, Generate& line, std::array<bool, kOptions.size()>& seen) {
  STRATA_ASSIGN(const std::string_view word, rest.word("option"));
  const size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  for (size_t i = 0; i < kOptions.size() && equals != std::string_view::npos; ++i) {
    if (kOptions[i].key != key) continue;
    if (seen[i] || !kOptions[i].take(word.substr(equals + 1), line)) return rest.bad(key);
    seen[i] = true;
    return {};
  }
  return make_error(ErrorCode::invalid, fmt::format("GEN: unknown key {}", key.substr(0, 64)));
}

Result<Command> decode_generate(Cursor rest) {
  Generate line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_TRY(rest.keyed("max", line.max_tokens));
  std::array<bool, kOptions.size()> seen{};
  while (!rest.ended() && !rest.peek().starts_with("tokens=")) STRATA_TRY(read_option(rest, line, seen));
  STRATA_ASSIGN(const std::string_view tokens, rest.value("tokens"));
  if (!parse_tokens(tokens, line.tokens)) return rest.bad("tokens");
  STRATA_TRY(rest.finish());
  if (!line.media.empty() && line.media.back().start >= line.tokens.size()) return rest.bad("media");
  if (!line.borders.empty() && line.borders.back() > line.tokens.size()) return rest.bad("borders");
  return Command(std::move(line));
}

template <class T>
void option(std::string& out, std::string_view key, const std::optional<T>& value) {
  if constexpr (std::same_as<T, double>) {
    if (value) out += fmt::format(" {}={}", key, format_real(*value));
  } else {
    if (value) out += fmt::format(" {}={}", key, *value);
  }
}

template <class Items, class Write>
void list(std::string& out, std::string_view key, const Items& items, Write write) {
  out += fmt::format(" {}=", key);
  for (const auto& item : items) {
    if (&item != items.data()) out += ',';
    write(item);
  }
}

std::string encode_generate(const Generate& line) {
  std::string out = fmt::format("GEN {} max={}", line.id, line.max_tokens);
  out.reserve(line.tokens.size() * 7 + 256);
  const SamplingParams& sampling = line.sampling;
  option(out, "slot", line.slot);
  option(out, "temperature", sampling.temperature);
  option(out, "top_p", sampling.top_p);
  option(out, "top_k", sampling.top_k);
  option(out, "min_p", sampling.min_p);
  option(out, "seed", sampling.seed);
  option(out, "repeat_penalty", sampling.repeat_penalty);
  option(out, "presence_penalty", sampling.presence_penalty);
  option(out, "frequency_penalty", sampling.frequency_penalty);
  option(out, "repeat_last_n", sampling.repeat_last_n);
  option(out, "logprobs", sampling.logprobs);
  if (line.salt != 0) out += fmt::format(" salt={:016x}", line.salt);
  if (!line.keep) out += " checkpoint=0";
  if (!line.use_cache) out += " cache=0";
  if (line.ignore_end) out += " ignore_end=1";
  if (!line.grammar.empty()) out += " grammar=" + percent_encoded(line.grammar);
  const auto to = std::back_inserter(out);
  if (!line.media.empty())
    list(out, "media", line.media,
         [&](const MediaMark& mark) { fmt::format_to(to, "{}:{:016x}", mark.start, mark.digest); });
  if (!line.borders.empty())
    list(out, "borders", line.borders, [&](uint32_t border) { fmt::format_to(to, "{}", border); });
  list(out, "tokens", line.tokens, [&](Token token) { fmt::format_to(to, "{}", token); });
  return out;
}

// ---- the other commands

Result<Command> decode_stop(Cursor rest) {
  Stop line;
  STRATA_TRY(rest.number("id", line.id));
  STRATA_TRY(rest.finish());
  return Command(line);
}

Result<Command> decode_slot_action(SlotActionKind kind, Cursor rest) {
  SlotAction line;
  line.kind = kind;
  if (rest.peek().starts_with("slot=")) STRATA_TRY(rest.keyed("slot", line.slot));
  if (kind != SlotActionKind::erase) {
    STRATA_ASSIGN(line.path, rest.text("path"));
  }
  STRATA_TRY(rest.finish());
  return Command(std::move(line));
}

Status read_conversation(Cursor& rest, ConversationId& id) {
  STRATA_ASSIGN(const std::string_view word, rest.word("conversation"));
  if (word.size() != 16 || !parse_hex_into(word, id.value) || !id) return rest.bad("conversation");
  return {};
}

Result<Command> decode_forget(Cursor rest) {
  Forget line;
  STRATA_TRY(read_conversation(rest, line.conversation));
  STRATA_TRY(rest.finish());
  return Command(line);
}

Result<Command> decode_pin(Cursor rest) {
  Pin line;
  STRATA_TRY(read_conversation(rest, line.conversation));
  STRATA_TRY(rest.number("pinned", line.pinned));
  STRATA_TRY(rest.finish());
  return Command(line);
}

template <class Line>
Result<Command> decode_bare(Cursor rest) {
  STRATA_TRY(rest.finish());
  return Command(Line{});
}

std::string encode_slot_action(const SlotAction& line) {
  if (line.kind == SlotActionKind::erase) return fmt::format("ERASE slot={}", line.slot);
  const char* name = line.kind == SlotActionKind::save ? "SAVE" : "RESTORE";
  return fmt::format("{} slot={} {}", name, line.slot, free_text(line.path));
}

}  // namespace

std::string encode(const Command& command) {
  return std::visit(Overloaded{
                        [](const Generate& line) { return encode_generate(line); },
                        [](const Stop& line) { return fmt::format("STOP {}", line.id); },
                        [](const SlotAction& line) { return encode_slot_action(line); },
                        [](const QueryStatus&) { return std::string("STATUS"); },
                        [](const ListSessions&) { return std::string("SESSIONS"); },
                        [](const Forget& line) { return "FORGET " + to_hex(line.conversation); },
                        [](const Pin& line) {
                          return fmt::format("PIN {} {}", to_hex(line.conversation), line.pinned ? 1 : 0);
                        },
                        [](const Quit&) { return std::string("QUIT"); },
                    },
                    command);
}

Result<Command> decode_command(std::string_view line) {
  STRATA_ASSIGN(const NamedLine named, open_line(line));
  const std::string_view name = named.name;
  if (name == "GEN") return decode_generate(named.rest);
  if (name == "STOP") return decode_stop(named.rest);
  if (name == "SAVE") return decode_slot_action(SlotActionKind::save, named.rest);
  if (name == "RESTORE") return decode_slot_action(SlotActionKind::restore, named.rest);
  if (name == "ERASE") return decode_slot_action(SlotActionKind::erase, named.rest);
  if (name == "STATUS") return decode_bare<QueryStatus>(named.rest);
  if (name == "SESSIONS") return decode_bare<ListSessions>(named.rest);
  if (name == "FORGET") return decode_forget(named.rest);
  if (name == "PIN") return decode_pin(named.rest);
  if (name == "QUIT") return decode_bare<Quit>(named.rest);
  return make_error(ErrorCode::invalid, "unknown command");
}

std::optional<uint64_t> generate_id(std::string_view line) {
  auto named = open_line(line);
  uint64_t id = 0;
  if (!named || named->name != "GEN" || !named->rest.number("id", id)) return std::nullopt;
  return id;
}

}  // namespace strata::lines
