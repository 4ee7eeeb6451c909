#include "engine/server/tools_request.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "engine/server/messages_request.hpp"

namespace strata {
namespace json = boost::json;
namespace {

constexpr size_t kMaxTools = 1024;

void check_tool(const json::value& tool, JsonReader& request, const std::string& where) {
  if (!tool.is_object()) return request.refuse(where, "must be an object");
  JsonReader outer(tool.get_object(), request.name(where) + ".");
  if (const std::string type = outer.required_text("type"); !outer.error() && type != "function")
    outer.refuse("type", fmt::format("is \"{}\": must be \"function\"", type));
  const json::object* function = outer.object("function");
  if (function == nullptr) {
    outer.refuse("function", "is missing");
  } else {
    JsonReader inner(*function, outer.name("function."));
    if (inner.required_text("name").empty()) inner.refuse("name", "is empty");
    (void)inner.text("description");
    (void)inner.object("parameters");
    if (inner.error()) outer.fail(*inner.error());
  }
  if (outer.error()) request.fail(*outer.error());
}

void check_choice(JsonReader& request, bool has_tools) {
  const json::value* choice = request.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_string() && !choice->is_object())
    return request.refuse("tool_choice", "must be a string or an object");
  const bool demands = choice->is_object() || choice->get_string() == "required";
  if (demands && !has_tools) return request.refuse("tool_choice", "demands a call, but there are no tools");
  if (choice->is_string() && !demands && choice->get_string() != "auto" && choice->get_string() != "none")
    request.refuse("tool_choice", "must be auto, none, required or an object");
}

// Its type when there is one that is not "text".
std::string special_format(JsonReader& request) {
  const json::object* format = request.object("response_format");
  if (format == nullptr) return {};
  JsonReader reader(*format, "response_format.");
  std::string type = reader.required_text("type");
  if (type == "json_schema" && reader.object("json_schema") == nullptr)
    reader.refuse("json_schema", "is missing");
  if (reader.error()) request.fail(*reader.error());
  return type == "text" ? std::string() : type;
}

}  // namespace

void check_tools(JsonReader& request, ChatSupport support) {
  const json::array* functions = request.array("functions");
  if (functions != nullptr && !functions->empty())
    request.fail(not_supported("\"functions\" is not supported; use \"tools\""));
  const json::array* tools = request.array("tools");
  const size_t count = tools == nullptr ? 0 : tools->size();
  check_choice(request, count > 0);
  const std::string format = special_format(request);
  const json::value* choice = request.find("tool_choice");
  const bool declined = choice != nullptr && choice->is_string() && choice->get_string() == "none";
  if (support == ChatSupport::text) {
    if (count > 0 && !declined)
      request.fail(not_supported(
          "\"tools\": this model has no tool format; send \"tool_choice\":\"none\" to go on without"));
    if (!format.empty())
      request.fail(not_supported("\"response_format\": this model answers in plain text only"));
    return;
  }
  if (!format.empty() && format != "json_object" && format != "json_schema")
    request.refuse("response_format.type", "must be text, json_object or json_schema");
  if (count > kMaxTools) return request.refuse("tools", fmt::format("has more than {} entries", kMaxTools));
  for (size_t i = 0; i < count && !request.error(); ++i)
    check_tool((*tools)[i], request, fmt::format("tools[{}]", i));
}

std::string chat_json(const JsonReader& request, std::string_view body) {
  json::object renamed;  // made only where it is needed
  const json::array& messages = request.find("messages")->get_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const json::string& role = messages[i].get_object().at("role").get_string();
    const std::string_view known = template_role({role.data(), role.size()});
    if (known == std::string_view(role.data(), role.size())) continue;
    if (renamed.empty()) renamed = request.all();
    renamed["messages"].get_array()[i].get_object()["role"] = json::string_view(known.data(), known.size());
  }
  return renamed.empty() ? std::string(body) : json::serialize(renamed);
}

}  // namespace strata
