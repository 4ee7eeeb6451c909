// HTTP/1.1 on one port: reads requests with limits and a time limit per stage, hands them to a handler,
// writes what it answers, and notices when a client goes away. Everything runs on the thread of the
// io_context, which must outlive the server; so must the handler.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/log.hpp"
#include "core/result.hpp"
#include "engine/server/http_message.hpp"

namespace strata {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  uint64_t max_body_bytes = uint64_t{64} << 20;
  uint32_t max_header_bytes = 32 * 1024;
  uint32_t max_connections = 512;
  uint64_t max_queued_bytes = uint64_t{16} << 20;  // of an answer that its client does not read
  std::chrono::milliseconds first_byte_timeout{30'000};
  std::chrono::milliseconds idle_timeout{75'000};       // between two requests
  std::chrono::milliseconds header_timeout{15'000};     // from its first byte to its last
  std::chrono::milliseconds body_idle_timeout{30'000};  // between two pieces of a body
  std::chrono::milliseconds body_timeout{600'000};      // the whole body
  std::chrono::milliseconds write_timeout{60'000};      // a client that does not read
};

class HttpServer {
 public:
  HttpServer(boost::asio::io_context& io, HttpOptions options, HttpHandler& handler, Log& log);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  Status listen();  // unavailable: the address is in use or not ours
  [[nodiscard]] uint16_t port() const;
  void stop_accepting();
  [[nodiscard]] size_t open_exchanges() const;  // requests that are not answered to the last byte

  struct State;  // shared with the connections

 private:
  std::shared_ptr<State> state_;
};

}  // namespace strata
