// Pieces that the translators from other families' requests into OpenAI's chat form share. Included by
// request parsers only. Pure, thread-safe.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string>
#include <string_view>

#include "engine/server/json_reader.hpp"

namespace strata {

inline boost::json::string_view to_json_text(std::string_view text) { return {text.data(), text.size()}; }

// {"role":…,"content":…}
[[nodiscard]] boost::json::object chat_turn(std::string_view role, std::string_view content);
// Adds a call to the assistant's turn at the end, which is made when there is none.
void add_tool_call(boost::json::array& messages, std::string_view id, std::string_view name,
                   std::string_view arguments);
// {"type":"function","function":{…}}; null and absent parts are left out.
[[nodiscard]] boost::json::object chat_tool(std::string_view name, const boost::json::value* description,
                                            const boost::json::value* parameters);
// Members that mean the same in both forms, and the server's own.
void copy_keys(const JsonReader& from, std::initializer_list<std::string_view> keys, boost::json::object& to);

// The text of a string, or of an array of text parts of the given types; errors go to the reader.
[[nodiscard]] std::string text_parts(const boost::json::value& content, JsonReader& reader,
                                     const std::string& where, std::initializer_list<std::string_view> types);

}  // namespace strata
