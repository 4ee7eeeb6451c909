#include "engine/server/http_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>

namespace strata {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::State {
  State(asio::io_context& context, HttpOptions http_options, HttpHandler& http_handler, Log& server_log)
      : io(context),
        options(std::move(http_options)),
        handler(http_handler),
        log(server_log),
        acceptor(context) {}
  asio::io_context& io;
  HttpOptions options;
  HttpHandler& handler;
  Log& log;
  tcp::acceptor acceptor;
  size_t connections = 0;
  size_t exchanges = 0;
  bool stopping = false;
};

namespace {

constexpr auto kLingerFor = std::chrono::seconds(2);
constexpr size_t kLingerBytes = 8u << 20;
constexpr auto kCancelAgain = std::chrono::milliseconds(100);
constexpr auto kLookEvery = std::chrono::milliseconds(500);

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

}  // namespace

// A connection and the answer to its current request. Kept alive by its coroutine and by who answers.
class Connection;
std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Connection> connection, HttpRequest request);

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServer::State> server, tcp::socket socket)
      : server_(std::move(server)),
        socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        wake_(socket_.get_executor()),
        look_(socket_.get_executor()) {
    ++server_->connections;
    error_code ignored;
    const auto local = socket_.local_endpoint(ignored);
    local_address_ = local.address().to_string();
    socket_.set_option(tcp::no_delay(true), ignored);
  }
  ~Connection() { --server_->connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // ---- the answer
  [[nodiscard]] uint64_t serial() const { return serial_; }

  void respond(HttpResponse response) {
    if (gone_ || answered_) return;
    queue_ = head(response.status, response.content_type, response.headers, response.body.size());
    if (!head_only_) queue_ += response.body;
    answered_ = true;
    wake_.cancel();
  }

  void begin_stream(const std::string& content_type) {
    if (gone_ || answered_ || streaming_) return;
    streaming_ = true;
    chunked_ = http_version_ >= 11;
    if (!chunked_) keep_alive_ = false;
    queue_ =
        head(200, content_type, {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}, std::nullopt);
    wake_.cancel();
  }

  void write(std::string_view bytes) {
    if (gone_ || answered_ || !streaming_ || bytes.empty()) return;
    queue_ += chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes);
    if (queue_.size() > server_->options.max_queued_bytes) return lose_client();
    wake_.cancel();
  }

  void finish() {
    if (gone_ || answered_ || !streaming_) return;
    if (chunked_) queue_ += "0\r\n\r\n";
    answered_ = true;
    wake_.cancel();
  }

  void on_gone(std::function<void()> callback) { on_gone_ = std::move(callback); }

  // ---- the connection's life
  asio::awaitable<void> run() {
    const auto self = shared_from_this();
    bool first = true;
    while (co_await serve_one(first)) first = false;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  asio::awaitable<void> turn_away() {
    const auto self = shared_from_this();
    co_await refuse(server_->handler.protocol_error(503, "too many connections", request_));
  }

 private:
  using Parser = http::request_parser<http::string_body>;
  enum class BodyEnd : uint8_t { complete, refused };

  // ---- time limits: when one is over, what waits on the socket ends with an error and timed_out_ says why
  using TimePoint = std::chrono::steady_clock::time_point;

  void arm(std::chrono::milliseconds limit) { arm_until(std::chrono::steady_clock::now() + limit); }

  void arm_until(TimePoint end) {
    timed_out_ = false;
    wait_for(end, ++stage_);
  }

  void disarm() {
    ++stage_;
    deadline_.cancel();
  }

  // A piece that arrived at the same moment is not cancelled by the first try, so there is another one.
  void wait_for(TimePoint end, uint64_t stage) {
    deadline_.expires_at(end);
    deadline_.async_wait([weak = weak_from_this(), stage](const auto& error) {
      const auto self = weak.lock();
      if (error || !self || self->stage_ != stage) return;
      self->timed_out_ = true;
      error_code ignored;
      self->socket_.cancel(ignored);
      self->wait_for(std::chrono::steady_clock::now() + kCancelAgain, stage);
    });
  }

  // False ends the connection.
  asio::awaitable<bool> serve_one(bool first) {
    const HttpOptions& options = server_->options;
    reset();
    error_code error;
    if (buffer_.size() == 0) {
      arm(first ? options.first_byte_timeout : options.idle_timeout);
      const size_t bytes = co_await socket_.async_read_some(buffer_.prepare(4096), into(error));
      if (error) co_return false;
      buffer_.commit(bytes);
    }
    Parser parser;
    parser.header_limit(options.max_header_bytes);
    parser.body_limit(options.max_body_bytes);
    arm(options.header_timeout);
    co_await http::async_read_header(socket_, buffer_, parser, into(error));
    if (error == http::error::body_limit) (void)take_header(parser);  // whoever answers shall know the path
    if (error) co_return co_await refuse_broken(error);
    if (const char* wrong = take_header(parser); wrong != nullptr)
      co_return co_await refuse(server_->handler.protocol_error(400, wrong, request_));
    if (auto refused = server_->handler.refuse_early(request_); refused)
      co_return co_await answer_early(*std::move(refused), parser);
    if (co_await read_body(parser) == BodyEnd::refused) co_return false;
    request_.body = std::move(parser.get().body());
    co_return co_await exchange();
  }

  void reset() {
    request_ = HttpRequest();
    request_.local_address = local_address_;
    head_only_ = false;
    queue_.clear();
    on_gone_ = nullptr;
    answered_ = streaming_ = false;
    keep_alive_ = false;
    http_version_ = 11;
  }

  // Null when it is fine, else what is wrong with it.
  const char* take_header(const Parser& parser) {
    const auto& message = parser.get();
    http_version_ = message.version();
    keep_alive_ = message.keep_alive() && !server_->stopping;
    request_.method = std::string(message.method_string());
    head_only_ = request_.method == "HEAD";
    for (const auto& field : message)
      request_.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                    std::string(field.value()));
    std::string_view target(message.target().data(), message.target().size());
    if (target.starts_with("http://")) {  // a proxy's absolute form
      const size_t slash = target.find('/', 7);
      target = slash == std::string_view::npos ? "/" : target.substr(slash);
    }
    if (request_.method != "OPTIONS" && !target.starts_with('/')) return "the request target is not a path";
    const size_t mark = std::min(target.find('?'), target.size());
    request_.query = std::string(target.substr(std::min(mark + 1, target.size())));
    const auto path = percent_decoded(target.substr(0, mark), false);
    if (!path) return "the path has a broken escape";
    request_.path = *path;
    size_t hosts = 0;
    for (const auto& [name, value] : request_.headers) hosts += name == "host" ? 1 : 0;
    if (hosts > 1 || (hosts == 0 && http_version_ >= 11)) return "there must be one Host header";
    return nullptr;
  }

  asio::awaitable<bool> refuse_broken(error_code error) {
    HttpHandler& handler = server_->handler;
    if (error == http::error::end_of_stream) co_return false;
    if (timed_out_)
      co_return co_await refuse(
          handler.protocol_error(408, "the request header did not come in time", request_));
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      co_return co_await refuse(handler.protocol_error(431, "the request header is too large", request_));
    if (error == http::error::body_limit) co_return co_await refuse(body_too_large());
    if (error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::partial_message)
      co_return co_await refuse(
          handler.protocol_error(400, "not a valid HTTP request: " + error.message(), request_));
    co_return false;  // the client closed or the network failed
  }

  HttpResponse body_too_large() {
    return server_->handler.protocol_error(
        413, fmt::format("the body is larger than {} MiB", server_->options.max_body_bytes >> 20), request_);
  }

  asio::awaitable<BodyEnd> read_body(Parser& parser) {
    const HttpOptions& options = server_->options;
    error_code error;
    if (!parser.is_done() && lower(request_.header("expect")) == "100-continue") {
      arm(options.write_timeout);
      co_await asio::async_write(socket_, asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")),
                                 into(error));
    }
    const auto deadline = std::chrono::steady_clock::now() + options.body_timeout;
    while (!error && !parser.is_done()) {
      arm_until(std::min(deadline, std::chrono::steady_clock::now() + options.body_idle_timeout));
      co_await http::async_read_some(socket_, buffer_, parser, into(error));
    }
    disarm();
    if (!error) co_return BodyEnd::complete;
    if (timed_out_)
      co_await refuse(server_->handler.protocol_error(408, "the body did not come in time", request_));
    else
      co_await refuse_broken(error);
    co_return BodyEnd::refused;
  }

  // The connection can be kept only when there is no body that nobody read.
  asio::awaitable<bool> answer_early(HttpResponse response, const Parser& parser) {
    if (!parser.is_done()) co_return co_await refuse(std::move(response));
    ++server_->exchanges;
    respond(std::move(response));
    const bool keep = co_await pump();
    --server_->exchanges;
    co_return keep;
  }

  // Answers, then reads on for a moment: a client that is still sending would otherwise lose the answer to a
  // reset.
  asio::awaitable<bool> refuse(HttpResponse response) {
    keep_alive_ = false;
    respond(std::move(response));
    co_await pump();
    error_code error;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    arm(kLingerFor);
    std::array<char, 16 * 1024> scrap{};
    for (size_t read = 0; !error && read < kLingerBytes;)
      read += co_await socket_.async_read_some(asio::buffer(scrap), into(error));
    co_return false;
  }

  asio::awaitable<bool> exchange() {
    ++server_->exchanges;
    ++serial_;
    asio::co_spawn(socket_.get_executor(), watch(shared_from_this(), serial_), asio::detached);
    server_->handler.handle(make_exchange(shared_from_this(), std::move(request_)));
    const bool keep = co_await pump();
    on_gone_ = nullptr;
    ++serial_;  // ends the watcher
    look_.cancel();
    error_code ignored;
    if (keep) socket_.cancel(ignored);
    --server_->exchanges;
    co_return keep;
  }

  // Writes until the answer is complete or the client has gone. True when the connection can be used again.
  asio::awaitable<bool> pump() {
    while (!gone_) {
      if (queue_.empty()) {
        if (answered_) co_return keep_alive_;
        wake_.expires_at(asio::steady_timer::time_point::max());
        error_code woken;
        co_await wake_.async_wait(into(woken));
        continue;
      }
      const std::string bytes = std::exchange(queue_, {});
      arm(server_->options.write_timeout);
      error_code error;
      co_await asio::async_write(socket_, asio::buffer(bytes), into(error));
      disarm();  // the engine may take as long as it needs
      if (error) lose_client();
    }
    co_return false;
  }

  // Sees the client close its end while the answer is being made. A client that has sent its next request
  // already makes the socket readable for ever, so then the connection is looked at twice a second.
  static asio::awaitable<void> watch(std::shared_ptr<Connection> self, uint64_t serial) {
    error_code error;
    while (true) {
      co_await self->socket_.async_wait(tcp::socket::wait_read, into(error));
      if (error || self->serial_ != serial) co_return;
      if (self->client_closed()) co_return self->lose_client();
      self->look_.expires_after(kLookEvery);
      co_await self->look_.async_wait(into(error));
      if (self->serial_ != serial) co_return;
    }
  }

  bool client_closed() {
    char next = 0;
    const ssize_t got = ::recv(socket_.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    pollfd look{socket_.native_handle(), POLLRDHUP, 0};
    return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  void lose_client() {
    if (std::exchange(gone_, true)) return;
    queue_.clear();
    ++serial_;
    const auto callback = std::exchange(on_gone_, nullptr);
    wake_.cancel();
    look_.cancel();
    error_code ignored;
    socket_.cancel(ignored);
    if (callback) callback();
  }

  std::string head(int status, const std::string& content_type, const HttpHeaders& headers,
                   std::optional<size_t> length) const {
    std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: strata\r\n", status, reason_phrase(status));
    if (!content_type.empty()) text += fmt::format("Content-Type: {}\r\n", content_type);
    for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
    text += "X-Content-Type-Options: nosniff\r\n";
    if (length && status != 204)
      text += fmt::format("Content-Length: {}\r\n", *length);
    else if (!length && chunked_)
      text += "Transfer-Encoding: chunked\r\n";
    return text + (keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
  }

  std::shared_ptr<HttpServer::State> server_;
  tcp::socket socket_;
  asio::steady_timer deadline_;  // of the stage at hand
  beast::flat_buffer buffer_;
  asio::steady_timer wake_;
  asio::steady_timer look_;
  std::string local_address_;
  HttpRequest request_;
  std::string queue_;
  std::function<void()> on_gone_;
  uint64_t serial_ = 0;
  unsigned http_version_ = 11;
  bool keep_alive_ = false;
  bool answered_ = false;  // the answer is complete in the queue
  bool streaming_ = false;
  bool chunked_ = false;
  bool head_only_ = false;
  bool gone_ = false;
  bool timed_out_ = false;
  uint64_t stage_ = 0;
};

// One request's hold on its connection: worth nothing once the connection serves the next request.
class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), serial_(connection_->serial()), request_(std::move(request)) {}

  [[nodiscard]] const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override {
    if (current()) connection_->respond(std::move(response));
  }
  void begin_stream(const std::string& content_type) override {
    if (current()) connection_->begin_stream(content_type);
  }
  void write(std::string_view bytes) override {
    if (current()) connection_->write(bytes);
  }
  void finish() override {
    if (current()) connection_->finish();
  }
  void on_gone(std::function<void()> callback) override {
    if (current()) connection_->on_gone(std::move(callback));
  }

 private:
  [[nodiscard]] bool current() const { return connection_->serial() == serial_; }

  std::shared_ptr<Connection> connection_;
  uint64_t serial_;
  HttpRequest request_;
};

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Connection> connection, HttpRequest request) {
  return std::make_shared<ConnectionExchange>(std::move(connection), std::move(request));
}

namespace {

asio::awaitable<void> accept_loop(std::shared_ptr<HttpServer::State> state) {
  while (!state->stopping) {
    error_code error;
    tcp::socket socket = co_await state->acceptor.async_accept(into(error));
    if (state->stopping || error == asio::error::operation_aborted) co_return;
    if (error) {  // out of descriptors, mostly: give the open connections time to end
      state->log.write(LogLevel::warning, "strata: a connection could not be accepted: " + error.message());
      asio::steady_timer pause(state->io, std::chrono::milliseconds(100));
      co_await pause.async_wait(into(error));
      continue;
    }
    const bool room = state->connections < state->options.max_connections;
    const auto connection = std::make_shared<Connection>(state, std::move(socket));
    asio::co_spawn(state->io, room ? connection->run() : connection->turn_away(), asio::detached);
  }
}

}  // namespace

HttpServer::HttpServer(asio::io_context& io, HttpOptions options, HttpHandler& handler, Log& log)
    : state_(std::make_shared<State>(io, std::move(options), handler, log)) {}

HttpServer::~HttpServer() { stop_accepting(); }

Status HttpServer::listen() {
  const HttpOptions& options = state_->options;
  const std::string where = fmt::format("cannot listen on {}:{}", options.host, options.port);
  error_code error;
  tcp::resolver resolver(state_->io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) return make_error(ErrorCode::unavailable, where + ": " + error.message());
  const tcp::endpoint endpoint = *found.begin();
  tcp::acceptor& acceptor = state_->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return make_error(ErrorCode::unavailable, where + ": " + error.message());
  asio::co_spawn(state_->io, accept_loop(state_), asio::detached);
  return {};
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return state_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::stop_accepting() {
  state_->stopping = true;
  error_code ignored;
  state_->acceptor.close(ignored);
}

size_t HttpServer::open_exchanges() const { return state_->exchanges; }

}  // namespace strata
