#include "engine/server/responses_request.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <limits>

#include "engine/server/chat_translation.hpp"
#include "engine/server/json_reader.hpp"

namespace strata {
namespace json = boost::json;
namespace {

// What needs a store of answers, or a service behind it.
void refuse_stored(JsonReader& request) {
  for (const std::string_view key : {"previous_response_id", "conversation", "prompt"})
    if (request.find(key) != nullptr)
      request.refuse(key, "is not supported: answers are not stored; send the whole input");
  if (request.boolean("background").value_or(false))
    request.refuse("background", "must be false: answers are not stored");
}

void add_system(json::array& turns, const std::string& text) {
  // Templates know one system turn, at the beginning.
  if (turns.size() == 1 && turns[0].get_object().at("role") == "system") {
    json::value& content = turns[0].get_object()["content"];
    content = to_json_text(std::string(content.get_string()) + "\n\n" + text);
    return;
  }
  turns.push_back(chat_turn("system", text));
}

void take_message(JsonReader& item, json::array& turns) {
  const std::string role = item.required_text("role");
  const json::value* content = item.find("content");
  if (content == nullptr) return item.refuse("content", "is missing");
  const std::string text =
      text_parts(*content, item, "content", {"input_text", "output_text", "text", "refusal"});
  if (role == "system" || role == "developer") return add_system(turns, text);
  if (!item.error() && role != "user" && role != "assistant")
    item.refuse("role", "must be user, assistant, system or developer");
  turns.push_back(chat_turn(role, text));
}

void take_call(JsonReader& item, json::array& turns) {
  const std::string id = item.required_text("call_id");
  const std::string name = item.required_text("name");
  add_tool_call(turns, id, name, item.required_text("arguments"));
}

void take_output(JsonReader& item, json::array& turns) {
  const std::string id = item.required_text("call_id");
  const json::value* output = item.find("output");
  if (output == nullptr) return item.refuse("output", "is missing");
  json::object turn =
      chat_turn("tool", text_parts(*output, item, "output", {"input_text", "output_text", "text"}));
  turn["tool_call_id"] = to_json_text(id);
  turns.push_back(std::move(turn));
}

void take_item(const json::value& value, JsonReader& request, const std::string& where, json::array& turns) {
  if (!value.is_object()) return request.refuse(where, "must be an object");
  JsonReader item(value.get_object(), request.name(where) + ".");
  const std::string type = item.text("type").value_or("message");
  if (type == "message")
    take_message(item, turns);
  else if (type == "function_call")
    take_call(item, turns);
  else if (type == "function_call_output")
    take_output(item, turns);
  else if (type != "reasoning" && !item.error())  // models read none of earlier turns
    item.refuse("type", fmt::format("is \"{}\": not supported", type));
  if (item.error()) request.fail(*item.error());
}

json::array read_input(JsonReader& request) {
  json::array turns;
  if (const auto instructions = request.text("instructions"); instructions && !instructions->empty())
    turns.push_back(chat_turn("system", *instructions));
  const json::value* input = request.find("input");
  if (input == nullptr) {
    request.refuse("input", "is missing");
  } else if (input->is_string()) {
    turns.push_back(chat_turn("user", std::string(input->get_string())));
  } else if (!input->is_array() || input->get_array().empty()) {
    request.refuse("input", "must be a string or an array of items");
  } else {
    const json::array& items = input->get_array();
    for (size_t i = 0; i < items.size() && !request.error(); ++i)
      take_item(items[i], request, fmt::format("input[{}]", i), turns);
  }
  return turns;
}

// Tools that only the maker's own service can run are left out: the model is not told of them.
json::array read_tools(JsonReader& request) {
  json::array tools;
  request.each("tools", [&tools](JsonReader& tool) {
    if (tool.required_text("type") != "function") return;
    const std::string name = tool.required_text("name");
    (void)tool.text("description");
    (void)tool.object("parameters");
    tools.push_back(chat_tool(name, tool.find("description"), tool.find("parameters")));
  });
  return tools;
}

void read_choice(JsonReader& request, json::object& chat) {
  const json::value* choice = request.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    chat["tool_choice"] = *choice;
    return;
  }
  const json::object* named = request.object("tool_choice");
  if (named == nullptr) return;
  JsonReader reader(*named, "tool_choice.");
  if (const std::string type = reader.required_text("type"); !reader.error() && type != "function")
    reader.refuse("type", fmt::format("is \"{}\": must be \"function\"", type));
  json::object function;
  function["name"] = to_json_text(reader.required_text("name"));
  json::object translated;
  translated["type"] = "function";
  translated["function"] = std::move(function);
  chat["tool_choice"] = std::move(translated);
  if (reader.error()) request.fail(*reader.error());
}

// text.format → response_format, which has the schema one level deeper.
void read_format(JsonReader& request, json::object& chat) {
  const json::object* text = request.object("text");
  if (text == nullptr) return;
  JsonReader outer(*text, "text.");
  if (const json::object* given = outer.object("format"); given != nullptr) {
    JsonReader format(*given, "text.format.");
    const std::string type = format.required_text("type");
    json::object translated;
    translated["type"] = to_json_text(type);
    if (type == "json_schema") {
      json::object schema;
      copy_keys(format, {"name", "description", "schema", "strict"}, schema);
      translated["json_schema"] = std::move(schema);
    }
    chat["response_format"] = std::move(translated);
    if (format.error()) outer.fail(*format.error());
  }
  if (outer.error()) request.fail(*outer.error());
}

void read_reasoning(JsonReader& request, json::object& chat) {
  const json::object* given = request.object("reasoning");
  if (given == nullptr) return;
  JsonReader reasoning(*given, "reasoning.");
  if (const auto effort = reasoning.text("effort"); effort) chat["reasoning_effort"] = to_json_text(*effort);
  if (reasoning.error()) request.fail(*reasoning.error());
}

std::vector<std::pair<std::string, std::string>> echo_of(const JsonReader& request) {
  static constexpr std::pair<const char*, const char*> kMembers[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"parallel_tool_calls", "true"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"temperature", "null"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", "\"auto\""},
      {"tools", "[]"},
      {"top_p", "null"},
      {"truncation", "\"disabled\""},
      {"metadata", "{}"},
  };
  std::vector<std::pair<std::string, std::string>> echo;
  for (const auto& [key, otherwise] : kMembers) {
    const json::value* value = request.find(key);
    echo.emplace_back(key, value == nullptr ? std::string(otherwise) : json::serialize(*value));
  }
  return echo;
}

}  // namespace

ApiResult<ResponsesRequest> chat_from_responses(std::string_view body) {
  const auto parsed = parse_json(body);
  if (!parsed) return tl::unexpected(parsed.error());
  JsonReader request(parsed->get_object(), "");
  refuse_stored(request);
  json::object chat;
  chat["messages"] = read_input(request);
  if (json::array tools = read_tools(request); !tools.empty()) chat["tools"] = std::move(tools);
  read_choice(request, chat);
  read_format(request, chat);
  copy_keys(
      request,
      {"model", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
       "parallel_tool_calls", "stream", "stop", "id_slot", "cache_prompt", "ignore_eos"},
      chat);
  read_reasoning(request, chat);
  constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  if (const auto limit = request.integer("max_output_tokens", 1, kUnbounded); limit)
    chat["max_tokens"] = *limit;
  if (request.error()) return tl::unexpected(*request.error());
  return ResponsesRequest{json::serialize(chat), echo_of(request)};
}

}  // namespace strata
