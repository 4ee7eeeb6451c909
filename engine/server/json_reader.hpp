// Typed access to a parsed JSON object: each reader takes a key, refuses a wrong type or range with a 400
// that names the key, and treats null as absent. The first error sticks; later reads then answer "absent".
// Only the request parsers include this (Boost.JSON is slow to compile). One thread at a time.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/server/api_error.hpp"

namespace strata {

// Depth, size and UTF-8 are checked while parsing.
ApiResult<boost::json::value> parse_json(std::string_view body);

class JsonReader {
 public:
  // path: what stands before a key in messages, "" at the top.
  JsonReader(const boost::json::object& object, std::string path) : object_(object), path_(std::move(path)) {}

  [[nodiscard]] const boost::json::value* find(std::string_view key) const;  // null is absent
  [[nodiscard]] bool has(std::string_view key) const;                        // null counts
  std::optional<bool> boolean(std::string_view key);
  std::optional<double> number(std::string_view key, double lowest, double highest);
  std::optional<int64_t> integer(std::string_view key, int64_t lowest, int64_t highest);
  std::optional<std::string> text(std::string_view key);
  std::string required_text(std::string_view key);
  const boost::json::array* array(std::string_view key);
  const boost::json::object* object(std::string_view key);
  // Each entry of the array in turn, which must be an object, through a reader of its own; ends at the first
  // error.
  void each(std::string_view key, const std::function<void(JsonReader& entry)>& read);

  [[nodiscard]] const boost::json::object& all() const { return object_; }

  void refuse(std::string_view key, std::string_view what);  // "key: what"
  void fail(ApiError error);
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
  [[nodiscard]] std::string name(std::string_view key) const { return path_ + std::string(key); }

 private:
  const boost::json::object& object_;
  std::string path_;
  std::optional<ApiError> error_;
};

}  // namespace strata
