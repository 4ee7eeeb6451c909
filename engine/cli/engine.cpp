// strata engine: the engine alone, on the line protocol.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>

#include "engine/cli/commands.hpp"
#include "engine/cli/logging.hpp"
#include "engine/cli/options.hpp"
#include "engine/cli/version.hpp"
#include "engine/protocol/command_reader.hpp"
#include "engine/protocol/event_writer.hpp"
#include "engine/protocol/session_loop.hpp"
#include "engine/runtime/engine_host.hpp"
#include "engine/runtime/watchdog.hpp"

namespace strata::cli {
namespace {

constexpr size_t kMailboxMessages = 256;
constexpr uint64_t kDefaultWatchdogSeconds = 60;
constexpr uint64_t kSecondNs = 1'000'000'000;

// SIGTERM becomes readable on the returned descriptor, in every thread started later. SIGINT is ignored:
// Ctrl+C reaches the whole process group, and it is the server that decides what it means.
int take_signals() {
  std::signal(SIGINT, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Protocol lines get a descriptor of their own; what a library prints to standard output goes to standard
// error.
int take_standard_output() {
  const int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return output;
}

uint64_t watchdog_ns() {
  const char* text = std::getenv("STRATA_WATCHDOG_S");
  if (text == nullptr) return kDefaultWatchdogSeconds * kSecondNs;
  uint64_t seconds = 0;
  const std::string_view digits(text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return (whole && seconds >= 1 && seconds <= 86'400 ? seconds : kDefaultWatchdogSeconds) * kSecondNs;
}

int fail_to_start(EventWriter& output, const Error& error) {
  output.emit(lines::Failed{std::nullopt, error.message});
  output.flush();
  return 1;
}

bool serve_session(EngineHost& host, InputMailbox& mailbox, EventWriter& output, Log& log, int signals) {
  output.emit(host.info(release()));
  output.emit(lines::Ready{host.model().info().context_tokens, host.model().info().slots});
  output.flush();
  const uint64_t allowance_ns = watchdog_ns();
  Watchdog watchdog(host.clock(), allowance_ns, [&log, allowance_ns] {
    log.write(LogLevel::error,
              fmt::format("strata: engine: no progress for {} s with a request open; aborting",
                          allowance_ns / kSecondNs));
    std::abort();
  });
  CommandReader reader(STDIN_FILENO, signals, mailbox);
  Engine engine({host.model(), host.tiers(), host.clock(), host.random(), log, host.metrics(), output}, {});
  SessionLoop loop({engine, host.tiers(), host.clock(), log, host.metrics(), output, mailbox,
                    host.model().info().context_tokens,
                    [&watchdog](bool open_requests) { watchdog.beat(open_requests); }});
  return loop.run();
}

int run_engine(const Settings& settings) {
  const int signals = take_signals();
  EventWriter output(take_standard_output());
  auto log = open_log(settings.log);
  if (!log.ok()) return fail_to_start(output, log.error());
  InputMailbox mailbox(kMailboxMessages);
  auto host = EngineHost::open(engine_settings(settings), **log, [&mailbox] { mailbox.wake(); });
  if (!host.ok()) {
    // Under a server it is the server that tells the person, once.
    if (!settings.only_command_line) (*log)->write(LogLevel::error, "strata: " + host.error().message);
    return fail_to_start(output, host.error());
  }
  return serve_session(**host, mailbox, output, **log, signals) ? 0 : 1;
}

}  // namespace

void add_engine_command(CLI::App& app, int& exit_status, Settings& settings) {
  CLI::App* command = app.add_subcommand("engine", "the engine alone, on the line protocol (stdin/stdout)");
  add_source_options(*command, settings);
  add_engine_options(*command, settings, RamDefault::off);
  command->callback([&exit_status, &settings] {
    if (!settings.ram.cache_mib) settings.ram.cache_mib = 0;
    refuse_contradiction(settings);
    exit_status = run_engine(settings);
  });
}

}  // namespace strata::cli
