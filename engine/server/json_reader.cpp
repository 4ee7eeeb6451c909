#include "engine/server/json_reader.hpp"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/parse_options.hpp>
#include <cmath>
#include <limits>

namespace strata {
namespace json = boost::json;
namespace {

constexpr size_t kMaxJsonDepth = 64;

std::string range_text(double lowest, double highest) {
  return fmt::format("must be between {} and {}", lowest, highest);
}

}  // namespace

ApiResult<json::value> parse_json(std::string_view body) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::error_code error;
  json::value value = json::parse({body.data(), body.size()}, error, {}, options);
  if (error) return tl::unexpected(invalid_request("the body is not valid JSON: " + error.message()));
  if (!value.is_object()) return tl::unexpected(invalid_request("the body is not a JSON object"));
  return value;
}

const json::value* JsonReader::find(std::string_view key) const {
  const json::value* value = object_.if_contains({key.data(), key.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonReader::has(std::string_view key) const { return object_.contains({key.data(), key.size()}); }

void JsonReader::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void JsonReader::refuse(std::string_view key, std::string_view what) {
  fail(invalid_request(fmt::format("\"{}\" {}", name(key), what)));
}

std::optional<bool> JsonReader::boolean(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  refuse(key, "must be true or false");
  return std::nullopt;
}

std::optional<double> JsonReader::number(std::string_view key, double lowest, double highest) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    refuse(key, "must be a number");
    return std::nullopt;
  }
  json::error_code error;
  const auto content = value->to_number<double>(error);
  if (error || !(content >= lowest && content <= highest)) {
    refuse(key, range_text(lowest, highest));
    return std::nullopt;
  }
  return content;
}

std::optional<int64_t> JsonReader::integer(std::string_view key, int64_t lowest, int64_t highest) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || (value->is_double() && std::trunc(value->get_double()) != value->get_double())) {
    refuse(key, "must be an integer");
    return std::nullopt;
  }
  json::error_code error;
  const auto content = value->to_number<int64_t>(error);
  if (error || content < lowest || content > highest) {
    if (highest == std::numeric_limits<int64_t>::max())
      refuse(key, fmt::format("must be an integer from {}", lowest));
    else
      refuse(key, fmt::format("must be between {} and {}", lowest, highest));
    return std::nullopt;
  }
  return content;
}

std::optional<std::string> JsonReader::text(std::string_view key) {
  const json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::string(value->get_string());
  refuse(key, "must be a string");
  return std::nullopt;
}

std::string JsonReader::required_text(std::string_view key) {
  if (find(key) == nullptr) refuse(key, "is missing");
  return text(key).value_or(std::string());
}

const json::array* JsonReader::array(std::string_view key) {
  const json::value* value = find(key);
  if (value != nullptr && !value->is_array()) refuse(key, "must be an array");
  return value == nullptr ? nullptr : value->if_array();
}

void JsonReader::each(std::string_view key, const std::function<void(JsonReader& entry)>& read) {
  const json::array* entries = array(key);
  for (size_t i = 0; entries != nullptr && i < entries->size() && !error_; ++i) {
    const std::string where = fmt::format("{}[{}]", key, i);
    const json::object* object = (*entries)[i].if_object();
    if (object == nullptr) return refuse(where, "must be an object");
    JsonReader entry(*object, name(where) + ".");
    read(entry);
    if (entry.error()) fail(*entry.error());
  }
}

const json::object* JsonReader::object(std::string_view key) {
  const json::value* value = find(key);
  if (value != nullptr && !value->is_object()) refuse(key, "must be an object");
  return value == nullptr ? nullptr : value->if_object();
}

}  // namespace strata
