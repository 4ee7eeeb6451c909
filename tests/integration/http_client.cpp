#include "tests/integration/http_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

namespace strata::test {
namespace {

constexpr int kPatienceMs = 20'000;

}  // namespace

HttpClient::HttpClient(uint16_t port) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void HttpClient::finish_sending() { ::shutdown(socket_, SHUT_WR); }

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::receive() {
  pollfd ready{socket_, POLLIN, 0};
  if (socket_ < 0 || ::poll(&ready, 1, kPatienceMs) != 1) return false;
  std::array<char, 65536> chunk{};
  const ssize_t got = ::recv(socket_, chunk.data(), chunk.size(), 0);
  if (got <= 0) return false;
  buffer_.append(chunk.data(), static_cast<size_t>(got));
  return true;
}

std::string HttpClient::read_until(std::string_view text) {
  size_t found = buffer_.find(text);
  while (found == std::string::npos && receive()) found = buffer_.find(text);
  const size_t end = found == std::string::npos ? buffer_.size() : found + text.size();
  std::string out = buffer_.substr(0, end);
  buffer_.erase(0, end);
  return out;
}

std::optional<std::string> HttpClient::take_line() {
  std::string line = read_until("\r\n");
  if (!line.ends_with("\r\n")) return std::nullopt;
  line.resize(line.size() - 2);
  return line;
}

std::optional<std::string> HttpClient::take_bytes(size_t count) {
  while (buffer_.size() < count)
    if (!receive()) return std::nullopt;
  std::string out = buffer_.substr(0, count);
  buffer_.erase(0, count);
  return out;
}

HttpAnswer HttpClient::read_answer(bool head_only) {
  HttpAnswer answer;
  const auto first = take_line();
  if (!first || first->size() < 12) return answer;
  for (auto line = take_line(); line && !line->empty(); line = take_line()) {
    const size_t colon = line->find(':');
    std::string name = line->substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.headers[name] = line->substr(std::min(colon + 2, line->size()));
  }
  answer.status = std::stoi(first->substr(9, 3));
  if (head_only) return answer;
  if (answer.headers.contains("content-length"))
    answer.body = take_bytes(std::stoul(answer.headers["content-length"])).value_or("<cut>");
  while (answer.headers.contains("transfer-encoding")) {
    const auto size = take_line();
    if (!size) {
      answer.body += "<cut>";
      break;
    }
    const size_t bytes = std::stoul(*size, nullptr, 16);
    answer.body += take_bytes(bytes).value_or("<cut>");
    (void)take_line();
    if (bytes == 0) break;
  }
  return answer;
}

bool HttpClient::closed_by_server() {
  while (receive()) {
  }
  std::array<char, 1> byte{};
  return ::recv(socket_, byte.data(), 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

HttpAnswer HttpClient::get(const std::string& target, const std::string& headers) {
  send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  return read_answer();
}

HttpAnswer HttpClient::post(const std::string& target, const std::string& body, const std::string& headers) {
  const bool typed = headers.find("Content-Type") != std::string::npos;
  send("POST " + target + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
       (typed ? "" : "Content-Type: application/json\r\n") +
       "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  return read_answer();
}

HttpAnswer get(uint16_t port, const std::string& target, const std::string& headers) {
  return HttpClient(port).get(target, headers);
}

HttpAnswer post(uint16_t port, const std::string& target, const std::string& body,
                const std::string& headers) {
  return HttpClient(port).post(target, body, headers);
}

std::vector<std::string> events_of(const std::string& stream) {
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = std::min(stream.find("\n\n", at), stream.size());
    const std::string event = stream.substr(at, end - at);
    events.push_back(event.starts_with("data: ") ? event.substr(6) : event);
    at = end + 2;
  }
  return events;
}

}  // namespace strata::test
