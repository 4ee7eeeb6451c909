// One HTTP request and the ways to answer it, without the library that reads them from a socket.
// One thread. An Exchange is shared between the connection and whoever answers; it may be answered later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;     // percent-decoded, without the query
  std::string query;    // as sent
  HttpHeaders headers;  // names in lower case
  std::string body;
  std::string local_address;  // at which the connection arrived

  [[nodiscard]] std::string_view header(std::string_view lower_case_name) const;  // the first one, or empty
  [[nodiscard]] std::optional<std::string> query_value(std::string_view key) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json; charset=utf-8";
  HttpHeaders headers{};
};

// %XX and, in queries, + are decoded; nothing when an escape is broken.
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space);
[[nodiscard]] std::string_view reason_phrase(int status);

class Exchange {
 public:
  virtual ~Exchange() = default;
  [[nodiscard]] virtual const HttpRequest& request() const = 0;
  // Either one whole response, or a stream: begin, write…, finish. After the client has gone all of it is
  // ignored.
  virtual void respond(HttpResponse response) = 0;
  virtual void begin_stream(const std::string& content_type) = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;
  // Called once when the client goes away before the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // With the header read and the body not: an answer here refuses the request.
  virtual std::optional<HttpResponse> refuse_early(const HttpRequest& request) = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  // What HTTP itself refuses: 400, 408, 413, 431, 503 (too many connections).
  // `request` as far as it was read.
  virtual HttpResponse protocol_error(int status, const std::string& message, const HttpRequest& request) = 0;
};

}  // namespace strata
