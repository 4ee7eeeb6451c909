#include "engine/server/server.hpp"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>

#include "core/limits.hpp"
#include "core/posix/clock.hpp"
#include "core/posix/random.hpp"
#include "engine/server/api.hpp"
#include "engine/server/child_process.hpp"
#include "engine/server/http_server.hpp"
#include "engine/server/security.hpp"
#include "engine/server/slot_folder.hpp"
#include "engine/server/supervisor.hpp"

namespace strata {
namespace asio = boost::asio;
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr uint32_t kDrainPersistS = 300;
constexpr uint32_t kDrainS = 20;
constexpr auto kLastAnswers =
    std::chrono::seconds(2);  // for answers still on their way when the engine has ended
constexpr auto kLastAnswersEvery = std::chrono::milliseconds(10);
constexpr int kExitInterrupted = 130;

SupervisorOptions supervisor_options(const ServerOptions& options) {
  SupervisorOptions out;
  out.silence_ns = options.engine_silence_s * kNsPerSecond;
  out.start_ns = options.engine_start_s * kNsPerSecond;
  const uint32_t drain_s = options.engine_drain_s != 0 ? options.engine_drain_s
                           : options.persist           ? kDrainPersistS
                                                       : kDrainS;
  out.drain_ns = drain_s * kNsPerSecond;
  return out;
}

HttpOptions http_options(const ServerOptions& options) {
  HttpOptions out;
  out.host = options.host;
  out.port = options.port;
  out.max_body_bytes = options.max_body_mib * limits::kMiB;
  out.max_connections = options.max_connections;
  out.header_timeout = std::chrono::milliseconds(options.header_timeout_ms);
  out.body_idle_timeout = std::chrono::milliseconds(options.body_idle_timeout_ms);
  return out;
}

Result<KeyRing> load_keys(const ServerOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  for (const std::string& key : keys)
    if (key.empty()) return make_error(ErrorCode::invalid, "--api-key is empty");
  if (!options.api_key_file.empty()) {
    STRATA_ASSIGN(const std::vector<std::string> more, read_key_file(options.api_key_file));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return KeyRing(std::move(keys));
}

// Before anything is started: a server that cannot save would say so only when somebody wants to.
Status prepare_slot_folder(std::string& path, Log& log) {
  if (path.empty()) return {};
  STRATA_ASSIGN(SlotFolder folder, open_slot_folder(path));
  path = std::move(folder.path);
  log.write(LogLevel::info, "strata: sessions by name: " + path);
  if (folder.writable_by_others)
    log.write(
        LogLevel::warning,
        fmt::format("strata: sessions by name: other users may write to {}; files there must be trusted",
                    path));
  return {};
}

std::string shown_host(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

// The parts of one server and the order in which they end.
class Server {
 public:
  Server(const ServerOptions& options, KeyRing keys, Model& vocabulary, Log& log)
      : options_(options),
        log_(log),
        process_(io_, options.engine_argv, limits::kMaxLineBytes),
        supervisor_(process_, clock_, log, supervisor_options(options)),
        api_({supervisor_, vocabulary, clock_, random_}, options, std::move(keys)),
        http_(io_, http_options(options), api_, log),
        signals_(io_, SIGINT, SIGTERM),
        ticker_(io_) {}

  int run() {
    if (const Status listening = http_.listen(); !listening.ok()) return fail(listening.error().message);
    supervisor_.on_stopped = [this](bool clean) { finish(clean); };
    supervisor_.on_start_failed = [this](const std::string& reason) {
      exit_status_ = fail(reason);
      io_.stop();
    };
    supervisor_.on_first_ready = [this] { announce(); };
    log_.write(LogLevel::info,
               fmt::format("strata: loading the model; until it is ready {}/health answers 503", address()));
    if (const Status started = supervisor_.start(); !started.ok()) return fail(started.error().message);
    await_signal();
    tick();
    io_.run();
    return exit_status_;
  }

 private:
  std::string address() const { return fmt::format("http://{}:{}", shown_host(options_.host), http_.port()); }

  // What waits for this line may send its first request: the engine is ready and has said what it took in.
  void announce() {
    fmt::print("strata: listening on {}\n", address());
    std::fflush(stdout);
  }

  int fail(const std::string& reason) {
    log_.write(LogLevel::error, "strata: " + reason);
    return 1;
  }

  void await_signal() {
    signals_.async_wait([this](const auto& error, int signal) {
      if (error) return;
      if (supervisor_.shutting_down()) return end_at_once();
      log_.write(LogLevel::info, fmt::format("strata: {}: shutting down; once more ends at once",
                                             signal == SIGINT ? "Ctrl+C" : "SIGTERM"));
      await_signal();
      http_.stop_accepting();
      supervisor_.shut_down();
    });
  }

  void end_at_once() {
    log_.write(LogLevel::warning, "strata: ended without waiting for the engine");
    exit_status_ = kExitInterrupted;
    supervisor_.kill();
    io_.stop();
  }

  void finish(bool clean) {
    exit_status_ = clean ? 0 : 1;
    log_.write(LogLevel::info,
               clean ? "strata: ended" : "strata: ended, but the engine did not end in order");
    answers_until_ = std::chrono::steady_clock::now() + kLastAnswers;
    await_last_answers();
  }

  void await_last_answers() {
    if (http_.open_exchanges() == 0 || std::chrono::steady_clock::now() >= answers_until_) return io_.stop();
    ticker_.expires_after(kLastAnswersEvery);
    ticker_.async_wait([this](const auto&) { await_last_answers(); });
  }

  void tick() {
    ticker_.expires_after(std::chrono::milliseconds(options_.tick_ms));
    ticker_.async_wait([this](const auto& error) {
      if (error) return;
      supervisor_.tick();
      api_.tick();
      tick();
    });
  }

  const ServerOptions& options_;
  Log& log_;
  asio::io_context io_{1};
  PosixClock clock_;
  PosixRandom random_;
  ChildProcess process_;
  Supervisor supervisor_;
  Api api_;
  HttpServer http_;
  asio::signal_set signals_;
  asio::steady_timer ticker_;
  std::chrono::steady_clock::time_point answers_until_;
  int exit_status_ = 0;
};

}  // namespace

int run_server(const ServerOptions& asked, Model& vocabulary, Log& log) {
  std::signal(SIGPIPE, SIG_IGN);  // an engine or a client that has gone is seen by the error of the write
  ServerOptions options = asked;
  Result<KeyRing> keys = load_keys(options);
  const Status folder = keys.ok() ? prepare_slot_folder(options.slot_save_path, log) : Status(keys.error());
  if (!folder.ok()) {
    log.write(LogLevel::error, "strata: " + folder.error().message);
    return 1;
  }
  return Server(options, std::move(*keys), vocabulary, log).run();
}

}  // namespace strata
