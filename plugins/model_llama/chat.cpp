#include "plugins/model_llama/chat.hpp"

#include <chat.h>
#include <json.h>

#include <algorithm>
#include <list>

#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/tool_template.hpp"

namespace strata::llama {

struct Chat::Templates {
  common_chat_templates_ptr own;
  common_chat_templates_ptr tools;  // for requests with tools, where the own template knows none; may be null
};

// Answers that are being written ask again and again with the same text of a parser; making it anew costs
// more than using it.
struct Chat::Parsers {
  struct Made {
    std::string text;
    common_chat_parser_params params;
  };
  std::list<Made> recent;  // the one used last in front
};

namespace {

// Whatever llama-common throws here is about the request or the template, and its words are for the client.
template <class Body>
auto for_client(const char* what, Body&& body) {
  try {
    return body();
  } catch (const Failure&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    raise_said(STRATA_INVALID, what, problem.what());
  }
}

common_json value_of(const common_json& body, const char* key) {
  return body.contains(key) ? body.at(key) : common_json(nullptr);
}

std::string text_of(const common_json& body, const char* key) {
  const common_json value = value_of(body, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool flag_of(const common_json& body, const char* key, bool fallback) {
  const common_json value = value_of(body, key);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

// The JSON schema that response_format asks for; empty: none.
std::string schema_of(const common_json& body) {
  const common_json format = value_of(body, "response_format");
  const std::string type = format.is_object() ? text_of(format, "type") : std::string();
  common_json schema = value_of(body, "json_schema");
  if (type == "json_object") {
    schema = value_of(format, "schema");
    if (schema.is_null()) schema = common_json::object();
  } else if (type == "json_schema") {
    schema = value_of(value_of(format, "json_schema"), "schema");
    if (!schema.is_object()) raise(STRATA_INVALID, "response_format: json_schema.schema is missing");
  } else if (!type.empty() && type != "text") {
    raise(STRATA_INVALID, "response_format: type \"%.40s\" is not known", type.c_str());
  }
  if (schema.is_null()) return {};
  if (schema.is_object() && schema.empty()) schema["type"] = "object";
  return schema.dump();
}

// A name inside an object means that this one tool must be called.
void choose_tools(const common_json& body, common_chat_templates_inputs& inputs) {
  const common_json choice = value_of(body, "tool_choice");
  if (choice.is_null()) return;
  if (choice.is_string()) {
    inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(choice.get<std::string>());
    return;
  }
  const std::string name = choice.is_object() ? text_of(value_of(choice, "function"), "name") : std::string();
  if (name.empty()) raise(STRATA_INVALID, "tool_choice: neither a word nor a function's name");
  std::erase_if(inputs.tools, [&](const common_chat_tool& tool) { return tool.name != name; });
  if (inputs.tools.empty()) raise(STRATA_INVALID, "tool_choice: there is no tool \"%.60s\"", name.c_str());
  inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
}

void choose_reasoning(const common_json& body, common_chat_templates_inputs& inputs) {
  const std::string format = text_of(body, "reasoning_format");
  inputs.reasoning_format =
      format.empty() ? COMMON_REASONING_FORMAT_AUTO : common_reasoning_format_from_name(format);
  const common_json own = value_of(body, "chat_template_kwargs");
  if (own.is_object())
    for (const auto& item : own.items()) inputs.chat_template_kwargs[item.key()] = item.value().dump();
  if (own.is_object() && own.contains("enable_thinking"))
    inputs.enable_thinking = flag_of(own, "enable_thinking", true);
  const std::string effort = text_of(body, "reasoning_effort");
  if (effort == "none") inputs.enable_thinking = false;
  if (!effort.empty() && effort != "none")
    inputs.chat_template_kwargs["reasoning_effort"] = common_json::make(effort).dump();
}

common_chat_templates_inputs inputs_of(const common_json& body, const common_chat_templates* templates) {
  common_chat_templates_inputs inputs;
  if (!value_of(body, "messages").is_array() || body.at("messages").empty())
    raise(STRATA_INVALID, "messages: a list with at least one message is needed");
  inputs.messages = common_chat_msgs_parse_oaicompat(body.at("messages"));
  const common_json tools = value_of(body, "tools");
  if (tools.is_array()) inputs.tools = common_chat_tools_parse_oaicompat(tools);
  choose_tools(body, inputs);
  inputs.json_schema = schema_of(body);
  inputs.grammar = text_of(body, "grammar");
  if (!inputs.grammar.empty() && !inputs.json_schema.empty())
    raise(STRATA_INVALID, "grammar and response_format exclude each other");
  const auto abilities = common_chat_templates_get_caps(templates);
  const auto parallel = abilities.find("supports_parallel_tool_calls");
  inputs.parallel_tool_calls =
      flag_of(body, "parallel_tool_calls", parallel != abilities.end() && parallel->second);
  inputs.add_generation_prompt = flag_of(body, "add_generation_prompt", true);
  choose_reasoning(body, inputs);
  return inputs;
}

bool knows_tools(const common_chat_templates* templates) {
  const auto abilities = common_chat_templates_get_caps(templates);
  const auto known = abilities.find("supports_tool_calls");
  return known != abilities.end() && known->second;
}

// Also a conversation that has used them: its messages must look as they did.
bool uses_tools(const common_chat_templates_inputs& inputs) {
  if (!inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE) return true;
  return std::ranges::any_of(inputs.messages, [](const common_chat_msg& message) {
    return message.role == "tool" || !message.tool_calls.empty();
  });
}

common_json triggers_of(const common_chat_params& params) {
  common_json triggers = common_json::array();
  for (const common_grammar_trigger& trigger : params.grammar_triggers)
    triggers.push_back({{"type", static_cast<int>(trigger.type)},
                        {"value", trigger.value},
                        {"token", static_cast<int>(trigger.token)}});
  return triggers;
}

// llama-common lets text stand before a call that must come, and a small model then never comes to the call.
// Of the root rule "… until-7? tool-calls" the optional text is taken out; a root of another form is left as
// it is.
std::string without_text_before_calls(std::string grammar) {
  const size_t root = grammar.starts_with("root ::=") ? 0 : grammar.find("\nroot ::=");
  if (root == std::string::npos) return grammar;
  const size_t end = std::min(grammar.find('\n', root + 1), grammar.size());
  const size_t text = grammar.find(" until-", root);
  const size_t calls = grammar.find("? tool-calls", root);
  if (text >= end || calls >= end || grammar.find(' ', text + 1) != calls + 1) return grammar;
  return grammar.erase(text, calls + 1 - text);
}

std::string grammar_of(const common_chat_params& params, bool is_the_clients, bool must_call) {
  if (params.grammar.empty()) return {};
  common_json grammar;
  grammar["text"] = must_call ? without_text_before_calls(params.grammar) : params.grammar;
  grammar["lazy"] = params.grammar_lazy;
  grammar["own"] = is_the_clients;
  grammar["triggers"] = triggers_of(params);
  grammar["preserved"] = params.preserved_tokens;
  grammar["seen"] = params.generation_prompt;
  return grammar.dump_safe();
}

std::string parser_text(const common_chat_params& params, common_reasoning_format reasoning, bool tools) {
  common_json parser;
  parser["format"] = static_cast<int>(params.format);
  parser["reasoning"] = static_cast<int>(reasoning);
  parser["seen"] = params.generation_prompt;
  parser["tools"] = tools;
  parser["arena"] = params.parser;
  return parser.dump_safe();
}

common_chat_parser_params parser_from(const std::string& text) {
  common_chat_parser_params params;
  if (text.empty()) return params;
  const common_json parser = common_json::parse(text);
  const int format = parser.at("format").get<int>();
  if (format < 0 || format >= COMMON_CHAT_FORMAT_COUNT)
    raise(STRATA_INVALID, "parser: format %d is not known", format);
  params.format = static_cast<common_chat_format>(format);
  params.reasoning_format = static_cast<common_reasoning_format>(parser.at("reasoning").get<int>());
  params.generation_prompt = parser.at("seen").get<std::string>();
  params.parse_tool_calls = parser.at("tools").get<bool>();
  const std::string arena = parser.at("arena").get<std::string>();
  if (!arena.empty()) params.parser.load(arena);
  return params;
}

constexpr size_t kKeptParsers = 16;

}  // namespace

Chat::Chat(const LoadedModel& model)
    : templates_(std::make_unique<Templates>()), parsers_(std::make_unique<Parsers>()) {
  templates_->own = for_client("chat template", [&] { return common_chat_templates_init(model.get(), ""); });
  const bool speaks_chatml = model.tokenize("<|im_start|>", false, true).size() == 1;
  if (!knows_tools(templates_->own.get()) && speaks_chatml)
    templates_->tools =
        for_client("chat template", [&] { return common_chat_templates_init(model.get(), kToolTemplate); });
}

Chat::~Chat() = default;

std::string Chat::template_text() const { return common_chat_templates_source(templates_->own.get()); }

std::string Chat::apply(const std::vector<std::pair<std::string, std::string>>& messages,
                        bool add_generation_prompt) const {
  return for_client("chat template", [&] {
    common_chat_templates_inputs inputs;
    for (const auto& [role, content] : messages) {
      common_chat_msg& message = inputs.messages.emplace_back();
      message.role = role;
      message.content = content;
    }
    inputs.add_generation_prompt = add_generation_prompt;
    return common_chat_templates_apply(templates_->own.get(), inputs).prompt;
  });
}

FormattedChat Chat::format(const std::string& request_json) const {
  return for_client("chat", [&] {
    const common_json body = common_json::parse(request_json);
    const common_chat_templates* templates = templates_->own.get();
    common_chat_templates_inputs inputs = inputs_of(body, templates);
    if (uses_tools(inputs) && templates_->tools != nullptr) templates = templates_->tools.get();
    const bool tools = uses_tools(inputs) && knows_tools(templates);
    if (!tools && inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED)
      raise(STRATA_INVALID, "tool_choice: there are no tools, or this model's chat template knows none");
    const common_chat_params params = common_chat_templates_apply(templates, inputs);
    FormattedChat result;
    result.prompt = params.prompt;
    result.stops = params.additional_stops;
    result.grammar =
        grammar_of(params, !inputs.grammar.empty(), inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED);
    result.grammar_lazy = params.grammar_lazy;
    result.parser = parser_text(params, inputs.reasoning_format, tools);
    return result;
  });
}

const common_chat_parser_params& Chat::parser_of(const std::string& text) {
  auto& recent = parsers_->recent;
  const auto found = std::ranges::find(recent, text, &Parsers::Made::text);
  if (found != recent.end()) {
    recent.splice(recent.begin(), recent, found);
  } else {
    recent.push_front({text, parser_from(text)});
    if (recent.size() > kKeptParsers) recent.pop_back();
  }
  return recent.front().params;
}

std::string Chat::parse(const std::string& parser, const std::string& text, bool final) {
  return for_client("chat answer", [&] {
    return common_chat_parse(text, !final, parser_of(parser)).to_json_oaicompat().dump_safe();
  });
}

}  // namespace strata::llama
