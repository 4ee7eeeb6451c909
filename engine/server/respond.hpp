// Small answers that every route makes. One thread.
#pragma once

#include <string>
#include <string_view>

#include "core/json_writer.hpp"
#include "engine/server/api_error.hpp"
#include "engine/server/http_message.hpp"

namespace strata {

[[nodiscard]] HttpResponse error_response(const ApiError& error, ErrorShape shape);
// In the form of the endpoint that was asked.
void respond_error(Exchange& exchange, const ApiError& error);
void respond_json(Exchange& exchange, std::string body);
// A token's bytes: text when they are valid UTF-8, else an array of numbers.
void write_piece(JsonWriter& json, std::string_view bytes);

}  // namespace strata
