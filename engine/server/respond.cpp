#include "engine/server/respond.hpp"

#include <cstdint>
#include <utility>

#include "engine/server/utf8.hpp"

namespace strata {

HttpResponse error_response(const ApiError& error, ErrorShape shape) {
  HttpResponse response;
  response.status = error.status;
  response.body = to_json(error, shape);
  if (error.retry_after_s > 0)
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  return response;
}

void respond_error(Exchange& exchange, const ApiError& error) {
  exchange.respond(error_response(error, error_shape(exchange.request().path)));
}

void respond_json(Exchange& exchange, std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  exchange.respond(std::move(response));
}

void write_piece(JsonWriter& json, std::string_view bytes) {
  if (is_valid_utf8(bytes)) {
    json.value(bytes);
    return;
  }
  json.begin_array();
  for (const char byte : bytes) json.value(static_cast<uint32_t>(static_cast<unsigned char>(byte)));
  json.end_array();
}

}  // namespace strata
