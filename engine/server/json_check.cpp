#include "engine/server/json_check.hpp"

#include "engine/server/json_reader.hpp"

namespace strata {

std::string json_object_or_empty(std::string_view text) {
  return parse_json(text) ? std::string(text) : std::string("{}");
}

}  // namespace strata
