#include "engine/server/messages_request.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "core/json_writer.hpp"

namespace strata {
namespace json = boost::json;

std::string_view template_role(std::string_view role) {
  if (role == "system" || role == "developer") return "system";
  if (role == "user" || role == "assistant" || role == "tool") return role;
  if (role == "function") return "tool";
  return {};
}

namespace {

std::string read_part(const json::value& part, JsonReader& message, const std::string& where) {
  if (!part.is_object()) {
    message.refuse(where, "must be an object");
    return {};
  }
  JsonReader reader(part.get_object(), message.name(where) + ".");
  const std::string type = reader.required_text("type");
  std::string text;
  if (type == "text" || type == "input_text" || type == "output_text")
    text = reader.required_text("text");
  else if (type == "refusal")
    text = reader.required_text("refusal");
  else
    reader.refuse("type", fmt::format("is \"{}\": this model reads text only", type));
  if (reader.error()) message.fail(*reader.error());
  return text;
}

std::string read_content(JsonReader& message) {
  const json::value* content = message.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array()) {
    message.refuse("content", "must be a string, an array of parts or null");
    return {};
  }
  std::string text;
  size_t index = 0;
  for (const json::value& part : content->get_array())
    text += read_part(part, message, fmt::format("content[{}]", index++));
  return text;
}

// One line a call, always the same text for the same call: it is part of the prefix that later turns match.
std::string read_tool_call(const json::value& call, JsonReader& message, const std::string& where) {
  if (!call.is_object()) {
    message.refuse(where, "must be an object");
    return {};
  }
  JsonReader outer(call.get_object(), message.name(where) + ".");
  std::string text;
  if (const json::object* function = outer.object("function"); function != nullptr) {
    JsonReader inner(*function, outer.name("function."));
    JsonWriter line;
    line.begin_object().member("name", inner.required_text("name"));
    line.member("arguments", inner.text("arguments").value_or("")).end_object();
    text = "<tool_call>" + line.take() + "</tool_call>";
    if (inner.error()) outer.fail(*inner.error());
  } else {
    outer.refuse("function", "is missing");
  }
  if (outer.error()) message.fail(*outer.error());
  return text;
}

std::string read_tool_calls(JsonReader& message) {
  const json::array* calls = message.array("tool_calls");
  if (calls == nullptr) return {};
  std::string text;
  size_t index = 0;
  for (const json::value& call : *calls) {
    if (!text.empty()) text += '\n';
    text += read_tool_call(call, message, fmt::format("tool_calls[{}]", index++));
  }
  return text;
}

ChatMessage read_message(JsonReader& message) {
  const std::string given = message.required_text("role");
  const std::string role(template_role(given));
  if (role.empty() && !message.error())
    message.refuse("role", "must be system, developer, user, assistant or tool");
  // An assistant's turn may consist of tool calls alone.
  if (!message.has("content") && role != "assistant") message.refuse("content", "is missing");
  std::string content = read_content(message);
  if (role == "assistant") {
    const std::string calls = read_tool_calls(message);
    if (!calls.empty()) content += content.empty() ? calls : "\n" + calls;
  }
  return {role, content};
}

}  // namespace

std::vector<ChatMessage> read_messages(JsonReader& request) {
  std::vector<ChatMessage> turns;
  const json::array* messages = request.array("messages");
  if (messages == nullptr || messages->empty()) {
    request.refuse("messages", messages == nullptr ? "is missing" : "is empty");
    return turns;
  }
  request.each("messages", [&turns](JsonReader& message) { turns.push_back(read_message(message)); });
  return turns;
}

}  // namespace strata
