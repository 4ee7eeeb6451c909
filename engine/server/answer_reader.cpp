#include "engine/server/answer_reader.hpp"

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

namespace strata {
namespace json = boost::json;
namespace {

std::string text_of(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains({key.data(), key.size()});
  if (value == nullptr || value->is_null()) return {};
  return value->is_string() ? std::string(value->get_string()) : json::serialize(*value);
}

ToolCall call_of(const json::value& value) {
  ToolCall call;
  const json::object* object = value.if_object();
  if (object == nullptr) return call;
  call.id = text_of(*object, "id");
  const json::value* function = object->if_contains("function");
  if (function == nullptr || !function->is_object()) return call;
  call.name = text_of(function->get_object(), "name");
  call.arguments = text_of(function->get_object(), "arguments");
  return call;
}

std::optional<AnswerContent> content_of(const std::string& message) {
  json::error_code error;
  const json::value value = json::parse(message, error);
  if (error || !value.is_object()) return std::nullopt;
  const json::object& object = value.get_object();
  AnswerContent content{text_of(object, "content"), text_of(object, "reasoning_content"), {}};
  if (const json::value* calls = object.if_contains("tool_calls"); calls != nullptr && calls->is_array())
    for (const json::value& call : calls->get_array()) content.tool_calls.push_back(call_of(call));
  return content;
}

// The reader always reads the whole text. Of a long answer it is asked again when this share has come to it,
// so that the work for each token is bounded, not its length: up to 2 KiB for every piece, at 100 KiB for
// every ten tokens or so.
constexpr size_t kLeastShare = 2048;

// What `now` adds to `given`; nothing where it is no continuation.
std::string take_new(std::string& given, const std::string& now) {
  if (now.size() <= given.size() || !now.starts_with(given)) return {};
  std::string added = now.substr(given.size());
  given += added;
  return added;
}

}  // namespace

std::optional<AnswerContent> AnswerReader::parse(bool final) {
  const Result<std::string> message = model_.chat_parse(*options_.parser, text_, final);
  return message.ok() ? content_of(*message) : std::nullopt;
}

AnswerDelta AnswerReader::feed(std::string_view text) {
  text_ += text;
  if (!options_.incremental || text.empty()) return {};
  if (!options_.parser) return give({text_, {}, {}});
  if (text_.size() - parsed_ < text_.size() / kLeastShare) return {};
  parsed_ = text_.size();
  const std::optional<AnswerContent> now = parse(false);
  return now ? give(*now) : AnswerDelta{};
}

AnswerDelta AnswerReader::finish() {
  if (!options_.parser) return give({text_, {}, {}});
  std::optional<AnswerContent> now = parse(true);
  if (!now) now = parse(false);
  if (now) return give(*now);
  // An answer that its own model's reader cannot make sense of is still an answer.
  if (given_ == AnswerContent{}) return give({text_, {}, {}});
  return {};
}

AnswerDelta AnswerReader::give(const AnswerContent& now) {
  AnswerDelta delta;
  delta.reasoning = take_new(given_.reasoning, now.reasoning);
  delta.text = take_new(given_.text, now.text);
  for (size_t i = 0; i < now.tool_calls.size(); ++i) {
    if (i == given_.tool_calls.size() && now.tool_calls[i].name.empty()) break;  // not yet known
    if (i > 0 && options_.one_call) break;
    give_call(i, now.tool_calls[i], delta);
  }
  return delta;
}

void AnswerReader::give_call(size_t index, const ToolCall& now, AnswerDelta& delta) {
  ToolCallDelta piece;
  piece.index = index;
  if (index == given_.tool_calls.size()) {
    piece.first = true;
    piece.id = now.id.empty() ? options_.new_call_id() : now.id;
    piece.name = now.name;
    given_.tool_calls.push_back({piece.id, piece.name, {}});
  }
  piece.arguments = take_new(given_.tool_calls[index].arguments, now.arguments);
  if (piece.first || !piece.arguments.empty()) delta.tool_calls.push_back(std::move(piece));
}

}  // namespace strata
