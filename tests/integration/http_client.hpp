// A small raw HTTP client: sends bytes as they are, reads whole answers. Loopback only; every wait ends after
// 20 s.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::test {

struct HttpAnswer {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool send(std::string_view bytes);  // false when the server has closed
  HttpAnswer read_answer(bool head_only = false);
  std::string read_until(std::string_view text);  // raw bytes up to and including it, or what came
  bool closed_by_server();                        // waits for the end of the connection
  void finish_sending();                          // half a close: the server sees the client leave
  void close();

  HttpAnswer get(const std::string& target, const std::string& headers = "");
  HttpAnswer post(const std::string& target, const std::string& body, const std::string& headers = "");

 private:
  bool receive();
  std::optional<std::string> take_line();
  std::optional<std::string> take_bytes(size_t count);
  int socket_ = -1;
  std::string buffer_;
};

HttpAnswer get(uint16_t port, const std::string& target, const std::string& headers = "");
HttpAnswer post(uint16_t port, const std::string& target, const std::string& body,
                const std::string& headers = "");
std::vector<std::string> events_of(
    const std::string& stream);  // the data of each server-sent event, and ":" comments

}  // namespace strata::test
