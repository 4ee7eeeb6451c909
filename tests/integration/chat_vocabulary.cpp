#include "tests/integration/chat_vocabulary.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

namespace strata::test {
namespace json = boost::json;
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCall = "<call>";
constexpr std::string_view kCallEnd = "</call>";

std::string text_of(const json::value& content) {
  if (content.is_string()) return std::string(content.get_string());
  std::string text;
  if (const json::array* parts = content.if_array())
    for (const json::value& part : *parts) text += std::string(part.at("text").get_string());
  return text;
}

std::string render(const json::object& message) {
  std::string text = "<" + std::string(message.at("role").get_string()) + ">\n";
  if (const json::value* reasoning = message.if_contains("reasoning_content"))
    text += std::string(kThink) + text_of(*reasoning) + std::string(kThinkEnd);
  if (const json::value* content = message.if_contains("content")) text += text_of(*content);
  if (const json::value* calls = message.if_contains("tool_calls"))
    for (const json::value& call : calls->get_array())
      text += std::string(kCall) + text_of(call.at("function").at("name")) + " " +
              text_of(call.at("function").at("arguments")) + std::string(kCallEnd);
  return text + "\n";
}

std::string names_of(const json::value& tools) {
  std::string names;
  for (const json::value& tool : tools.get_array()) names += " " + text_of(tool.at("function").at("name"));
  return names;
}

void add_tools(const json::object& request, ChatPrompt& chat) {
  const json::value* tools = request.if_contains("tools");
  const json::value* choice = request.if_contains("tool_choice");
  if (tools == nullptr || !tools->is_array() || (choice != nullptr && *choice == "none")) return;
  chat.parser = "tags";
  chat.prompt += "<tools>" + names_of(*tools) + "\n";
  chat.grammar = "call of" + names_of(*tools);
  if (choice != nullptr && choice->is_object())
    chat.grammar = "call of " + text_of(choice->at("function").at("name"));
}

void add_format(const json::object& request, ChatPrompt& chat) {
  const json::value* format = request.if_contains("response_format");
  if (format == nullptr || format->at("type") == "text") return;
  chat.grammar = "json";
  if (format->at("type") == "json_schema")
    chat.grammar += " " + json::serialize(format->at("json_schema").at("schema"));
}

// Without an end that may be the beginning of the tag.
std::string_view without_beginning_of(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(tag.size() - 1, text.size()); n > 0; --n)
    if (text.substr(text.size() - n) == tag.substr(0, n)) return text.substr(0, text.size() - n);
  return text;
}

struct Tags {
  std::string_view rest;
  bool final;
  json::object message;
  json::array calls;
  std::string content, reasoning;

  // Up to the tag, or all there is.
  std::string_view take(std::string_view tag) {
    const size_t at = rest.find(tag);
    std::string_view found = rest.substr(0, at);
    if (at == std::string_view::npos && !final) found = without_beginning_of(rest, tag);
    rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + tag.size());
    return found;
  }

  void take_call() {
    const std::string_view call = take(kCallEnd);
    const size_t space = call.find(' ');
    if (space == std::string_view::npos) return;
    json::object function;
    function["name"] = json::string_view(call.data(), space);
    function["arguments"] = json::string_view(call.data() + space + 1, call.size() - space - 1);
    calls.push_back(json::object{{"id", ""}, {"type", "function"}, {"function", std::move(function)}});
  }
};

class NoSampler final : public ModelSampler {
 public:
  Result<Token> sample(SlotId) override { return make_error(ErrorCode::unsupported, "no logits here"); }
  Status accept(Token, bool) override { return {}; }
};

}  // namespace

Result<ChatPrompt> ChatVocabulary::chat_format(const std::string& request_json) {
  const json::value request = json::parse(request_json);
  const json::object& object = request.get_object();
  ChatPrompt chat;
  chat.parser = "plain";
  chat.stops = {"<end>"};
  add_tools(object, chat);
  add_format(object, chat);
  bool asked = false;
  for (const json::value& message : object.at("messages").get_array()) {
    asked = asked || message.at("role") == "user";
    chat.prompt += render(message.get_object());
  }
  if (!asked) return make_error(ErrorCode::invalid, "the template needs a message of the user");
  const json::value* generation = object.if_contains("add_generation_prompt");
  if (generation == nullptr || generation->get_bool()) chat.prompt += "<assistant>\n";
  return chat;
}

Result<std::string> ChatVocabulary::chat_parse(const std::string& parser, std::string_view text, bool final) {
  if (final && text.find("<broken>") != std::string_view::npos)
    return make_error(ErrorCode::invalid, "the answer has no known form");
  Tags tags{text, final, {}, {}, {}, {}};
  while (!tags.rest.empty()) {
    if (tags.rest.starts_with(kThink)) {
      tags.rest.remove_prefix(kThink.size());
      tags.reasoning += tags.take(kThinkEnd);
    } else if (parser == "tags" && tags.rest.starts_with(kCall)) {
      tags.rest.remove_prefix(kCall.size());
      tags.take_call();
    } else if (!final && tags.rest.front() == '<' &&
               (kThink.starts_with(tags.rest) || kCall.starts_with(tags.rest))) {
      break;  // it may become a tag
    } else {
      tags.content += tags.rest.front();
      tags.rest.remove_prefix(1);
    }
  }
  tags.message["role"] = "assistant";
  tags.message["content"] = tags.content;
  if (!tags.reasoning.empty()) tags.message["reasoning_content"] = tags.reasoning;
  if (!tags.calls.empty()) tags.message["tool_calls"] = std::move(tags.calls);
  return json::serialize(tags.message);
}

Result<std::unique_ptr<ModelSampler>> ChatVocabulary::make_sampler(const std::string& params_json) {
  const json::value params = json::parse(params_json);
  const std::string grammar = text_of(params.at("grammar"));
  if (grammar.find('(') != std::string::npos && grammar.find(')') == std::string::npos)
    return make_error(ErrorCode::invalid, "a \"(\" is not closed");
  return std::unique_ptr<ModelSampler>(std::make_unique<NoSampler>());
}

}  // namespace strata::test
