#include "engine/server/anthropic_request.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "engine/server/chat_translation.hpp"
#include "engine/server/json_reader.hpp"

namespace strata {
namespace json = boost::json;
namespace {

// A line that a client writes for its maker's billing. It differs from request to request and stands first,
// so nothing behind it could ever be reused; it says nothing to a model.
constexpr std::string_view kBillingLine = "x-anthropic-billing-header:";

std::string read_system(const json::value& system, JsonReader& request) {
  if (!system.is_array()) return text_parts(system, request, "system", {"text"});
  std::string text;
  for (size_t i = 0; i < system.get_array().size() && !request.error(); ++i) {
    json::array one;
    one.push_back(system.get_array()[i]);
    const std::string part = text_parts(one, request, "system", {"text"});
    if (part.starts_with(kBillingLine)) continue;
    if (!text.empty() && !part.empty()) text += "\n\n";
    text += part;
  }
  return text;
}

// Writes one message's blocks as chat turns: tool results are turns of their own there.
class MessageTranslator {
 public:
  MessageTranslator(JsonReader& message, std::string role, json::array& turns)
      : message_(message), role_(std::move(role)), turns_(turns) {}

  void translate() {
    const json::value* content = message_.find("content");
    if (content == nullptr) return message_.refuse("content", "is missing");
    if (content->is_string()) {
      turns_.push_back(chat_turn(role_, std::string(content->get_string())));
      return;
    }
    if (!content->is_array()) return message_.refuse("content", "must be a string or an array of blocks");
    const json::array& blocks = content->get_array();
    for (size_t i = 0; i < blocks.size() && !message_.error(); ++i)
      take_block(blocks[i], fmt::format("content[{}]", i));
    flush(!said_);
  }

 private:
  void take_block(const json::value& block, const std::string& where) {
    if (!block.is_object()) return message_.refuse(where, "must be an object");
    JsonReader reader(block.get_object(), message_.name(where) + ".");
    const std::string type = reader.required_text("type");
    if (type == "text")
      text_ += reader.required_text("text");
    else if (type == "tool_use" && role_ == "assistant")
      take_call(reader);
    else if (type == "tool_result" && role_ == "user")
      take_result(reader);
    else if (type == "thinking" && role_ == "assistant")
      reasoning_ += reader.required_text("thinking");
    else if (type != "redacted_thinking" && !reader.error())
      reader.refuse("type", fmt::format("is \"{}\": not supported in a message of the {}", type, role_));
    if (reader.error()) message_.fail(*reader.error());
  }

  void take_call(JsonReader& block) {
    const std::string id = block.required_text("id");
    const std::string name = block.required_text("name");
    const json::object* input = block.object("input");
    flush(!said_);
    add_tool_call(turns_, id, name, input == nullptr ? "{}" : json::serialize(*input));
  }

  void take_result(JsonReader& block) {
    const std::string id = block.required_text("tool_use_id");
    const json::value* content = block.find("content");
    std::string text = content == nullptr ? "" : text_parts(*content, block, "content", {"text"});
    if (block.boolean("is_error").value_or(false)) text = "Error: " + text;
    flush(false);
    json::object turn = chat_turn("tool", text);
    turn["tool_call_id"] = to_json_text(id);
    turns_.push_back(std::move(turn));
    said_ = true;
  }

  // The text so far as a turn; an empty one only where it must stand for the message.
  void flush(bool even_empty) {
    if (text_.empty() && reasoning_.empty() && !even_empty) return;
    json::object turn = chat_turn(role_, text_);
    if (!reasoning_.empty()) turn["reasoning_content"] = to_json_text(reasoning_);
    turns_.push_back(std::move(turn));
    text_.clear();
    reasoning_.clear();
    said_ = true;
  }

  JsonReader& message_;
  std::string role_;
  json::array& turns_;
  std::string text_;
  std::string reasoning_;
  bool said_ = false;  // the message has a turn
};

json::array read_turns(JsonReader& request) {
  json::array turns;
  if (const json::value* system = request.find("system"); system != nullptr)
    if (const std::string text = read_system(*system, request); !text.empty())
      turns.push_back(chat_turn("system", text));
  const json::array* messages = request.array("messages");
  if (messages == nullptr || messages->empty()) {
    request.refuse("messages", messages == nullptr ? "is missing" : "is empty");
    return turns;
  }
  request.each("messages", [&turns](JsonReader& message) {
    const std::string role = message.required_text("role");
    if (!message.error() && role != "user" && role != "assistant" && role != "system")
      message.refuse("role", "must be user or assistant");
    if (!message.error()) MessageTranslator(message, role, turns).translate();
  });
  return turns;
}

json::array read_tools(JsonReader& request) {
  json::array tools;
  request.each("tools", [&tools](JsonReader& tool) {
    const std::string type = tool.text("type").value_or("custom");
    if (type != "custom")
      tool.refuse("type", fmt::format("is \"{}\": only tools with an input_schema of their own", type));
    const std::string name = tool.required_text("name");
    if (tool.object("input_schema") == nullptr) tool.refuse("input_schema", "is missing");
    (void)tool.text("description");
    tools.push_back(chat_tool(name, tool.find("description"), tool.find("input_schema")));
  });
  return tools;
}

void read_choice(JsonReader& request, json::object& chat) {
  const json::object* given = request.object("tool_choice");
  if (given == nullptr) return;
  JsonReader choice(*given, "tool_choice.");
  const std::string type = choice.required_text("type");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = to_json_text(type);
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    json::object function;
    function["name"] = to_json_text(choice.required_text("name"));
    json::object named;
    named["type"] = "function";
    named["function"] = std::move(function);
    chat["tool_choice"] = std::move(named);
  } else {
    choice.refuse("type", "must be auto, any, tool or none");
  }
  if (const auto single = choice.boolean("disable_parallel_tool_use"); single)
    chat["parallel_tool_calls"] = !*single;
  if (choice.error()) request.fail(*choice.error());
}

void read_thinking(JsonReader& request, json::object& chat) {
  const json::object* given = request.object("thinking");
  if (given == nullptr) return;
  JsonReader thinking(*given, "thinking.");
  if (thinking.required_text("type") == "disabled")
    chat["chat_template_kwargs"] = json::object{{"enable_thinking", false}};
  if (thinking.error()) request.fail(*thinking.error());
}

}  // namespace

ApiResult<std::string> chat_from_anthropic(std::string_view body) {
  const auto parsed = parse_json(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader request(parsed->get_object(), "");
  json::object chat;
  chat["messages"] = read_turns(request);
  if (json::array tools = read_tools(request); !tools.empty()) chat["tools"] = std::move(tools);
  read_choice(request, chat);
  copy_keys(request,
            {"model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stream", "id_slot",
             "cache_prompt", "ignore_eos"},
            chat);
  read_thinking(request, chat);
  if (request.array("stop_sequences") != nullptr) chat["stop"] = *request.find("stop_sequences");
  if (request.error()) return tl::unexpected(*request.error());
  return json::serialize(chat);
}

}  // namespace strata
