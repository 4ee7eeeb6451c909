#include "engine/server/chat_translation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace strata {
namespace json = boost::json;

json::object chat_turn(std::string_view role, std::string_view content) {
  json::object turn;
  turn["role"] = to_json_text(role);
  turn["content"] = to_json_text(content);
  return turn;
}

void add_tool_call(json::array& messages, std::string_view id, std::string_view name,
                   std::string_view arguments) {
  if (messages.empty() || messages.back().get_object().at("role") != "assistant") {
    json::object turn;
    turn["role"] = "assistant";
    turn["content"] = nullptr;
    messages.push_back(std::move(turn));
  }
  json::object& turn = messages.back().get_object();
  if (!turn.contains("tool_calls")) turn["tool_calls"] = json::array();
  json::object function;
  function["name"] = to_json_text(name);
  function["arguments"] = to_json_text(arguments);
  json::object call;
  call["id"] = to_json_text(id);
  call["type"] = "function";
  call["function"] = std::move(function);
  turn["tool_calls"].get_array().push_back(std::move(call));
}

json::object chat_tool(std::string_view name, const json::value* description, const json::value* parameters) {
  json::object function;
  function["name"] = to_json_text(name);
  if (description != nullptr) function["description"] = *description;
  if (parameters != nullptr) function["parameters"] = *parameters;
  json::object tool;
  tool["type"] = "function";
  tool["function"] = std::move(function);
  return tool;
}

void copy_keys(const JsonReader& from, std::initializer_list<std::string_view> keys, json::object& to) {
  for (const std::string_view key : keys)
    if (const json::value* value = from.find(key); value != nullptr) to[to_json_text(key)] = *value;
}

std::string text_parts(const json::value& content, JsonReader& reader, const std::string& where,
                       std::initializer_list<std::string_view> types) {
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array()) {
    reader.refuse(where, "must be a string or an array of parts");
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content.get_array().size() && !reader.error(); ++i) {
    const json::value& part = content.get_array()[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    if (!part.is_object()) {
      reader.refuse(at, "must be an object");
      break;
    }
    JsonReader inner(part.get_object(), reader.name(at) + ".");
    const std::string type = inner.required_text("type");
    const bool known = std::find(types.begin(), types.end(), type) != types.end();
    if (!inner.error() && !known)
      inner.refuse("type", fmt::format("is \"{}\": this model reads text only", type));
    text += inner.required_text(type == "refusal" ? "refusal" : "text");
    if (inner.error()) reader.fail(*inner.error());
  }
  return text;
}

}  // namespace strata
