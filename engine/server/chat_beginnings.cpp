#include "engine/server/chat_beginnings.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "engine/server/json_reader.hpp"

namespace strata {
namespace json = boost::json;

std::vector<std::string> chat_beginnings(const std::string& chat_json, const std::vector<size_t>& counts) {
  std::vector<std::string> beginnings;
  const auto parsed = parse_json(chat_json);
  if (!parsed) return beginnings;
  json::object request = parsed->get_object();
  const json::array messages = request.at("messages").get_array();
  request["add_generation_prompt"] = false;
  for (const size_t count : counts) {
    const size_t kept = std::min(count, messages.size());
    request["messages"] = json::array(messages.begin(), messages.begin() + kept);
    beginnings.push_back(json::serialize(request));
  }
  return beginnings;
}

}  // namespace strata
