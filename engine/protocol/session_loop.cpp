#include "engine/protocol/session_loop.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <variant>

#include "core/limits.hpp"
#include "engine/protocol/status_json.hpp"

namespace strata {
namespace {

using namespace std::chrono_literals;

constexpr auto kTransferPoll = 500us;  // while copies, reads or writes move by themselves
constexpr auto kIdleTick = 1s;         // expiry and other housekeeping of the tiers
constexpr uint64_t kDrainReportNs = 1'000'000'000;

}  // namespace

bool SessionLoop::run() {
  serve();
  actions_.cancel_all();
  drain();
  ports_.output.emit(lines::Bye{});
  ports_.output.flush();
  return !actions_.fatal();
}

void SessionLoop::serve() {
  while (true) {
    take_messages();
    if (ending_ == Ending::now) {
      ports_.engine.stop_all();
      actions_.cancel_all();
    }
    const Pace pace = ports_.engine.step();
    actions_.step();
    ports_.output.flush();
    if (ports_.output.closed() || actions_.fatal()) ending_ = Ending::now;
    const bool open_requests = ports_.engine.open_requests() > 0 || actions_.open();
    ports_.beat(open_requests);
    if (ending_ != Ending::no && !open_requests) return;
    const bool moving = pace == Pace::waiting || (pace == Pace::idle && actions_.open());
    if (moving) ports_.mailbox.wait(kTransferPoll);
    if (pace == Pace::idle && !moving) ports_.mailbox.wait(kIdleTick);
  }
}

void SessionLoop::drain() {
  const uint64_t begin_ns = ports_.clock.monotonic_ns();
  draining_ = true;
  ports_.tiers.begin_shutdown();
  DrainProgress progress = ports_.tiers.drain_progress();
  while (!progress.finished && !hurry_) {
    ports_.tiers.step();
    progress = ports_.tiers.drain_progress();
    report_drain(progress, false);
    take_messages();
    ports_.output.flush();
    if (!progress.finished) ports_.mailbox.wait(kTransferPoll);
  }
  report_drain(progress, true);
  const double seconds = static_cast<double>(ports_.clock.monotonic_ns() - begin_ns) / 1e9;
  ports_.log.write(
      LogLevel::info,
      fmt::format("strata: shutdown: {} conversations, {:.1f} MiB to the disk in {:.1f} s{}",
                  progress.conversations, static_cast<double>(progress.done_bytes) / limits::kMiB, seconds,
                  progress.finished ? "" : ", ended before all was written"));
}

void SessionLoop::report_drain(const DrainProgress& progress, bool last) {
  const uint64_t now_ns = ports_.clock.monotonic_ns();
  if (!asked_) return;
  if (!last && drain_report_ns_ != 0 && now_ns - drain_report_ns_ < kDrainReportNs) return;
  if (last && drain_reported_ == std::pair(progress.done_bytes, progress.total_bytes)) return;
  drain_report_ns_ = now_ns;
  drain_reported_ = std::pair(progress.done_bytes, progress.total_bytes);
  ports_.output.emit(lines::Drain{progress.done_bytes, progress.total_bytes});
}

void SessionLoop::take_messages() {
  for (Input& input : ports_.mailbox.take_all()) handle(input);
}

void SessionLoop::handle(Input& input) {
  if (auto* command = std::get_if<lines::Command>(&input))
    std::visit([this](auto& known) { handle(known); }, *command);
  else if (auto* bad = std::get_if<BadLine>(&input))
    ports_.output.emit(lines::Failed{bad->id, bad->reason});
  else if (std::holds_alternative<Terminate>(input))
    terminate();
  else
    input_ended();
}

void SessionLoop::handle(lines::Generate& ask) {
  if (ending_ == Ending::no)
    ports_.engine.generate(std::move(ask));
  else
    ports_.output.emit(lines::Failed{ask.id, "the engine is shutting down"});
}

void SessionLoop::handle(const lines::QueryStatus& /*query*/) {
  const std::vector<RequestView> requests = ports_.engine.requests();
  ports_.output.emit(lines::StatusReport{
      status_json(ports_.tiers.status(), requests, ports_.context_tokens, ports_.metrics.prometheus())});
}

void SessionLoop::handle(const lines::ListSessions& /*query*/) {
  ports_.output.emit(lines::Sessions{sessions_json(ports_.tiers.conversations())});
}

void SessionLoop::handle(const lines::Forget& forget) {
  if (const Status done = ports_.tiers.forget(forget.conversation); !done.ok()) return refuse(done.error());
  ports_.output.emit(lines::Acknowledged{"FORGET " + to_hex(forget.conversation)});
}

void SessionLoop::handle(const lines::Pin& pin) {
  if (const Status done = ports_.tiers.pin(pin.conversation, pin.pinned); !done.ok())
    return refuse(done.error());
  ports_.output.emit(
      lines::Acknowledged{fmt::format("PIN {} {}", to_hex(pin.conversation), pin.pinned ? 1 : 0)});
}

void SessionLoop::handle(const lines::Quit& /*quit*/) {
  asked_ = true;
  ending_ = Ending::now;
}

void SessionLoop::terminate() {
  hurry_ = std::exchange(terminated_, true) && draining_;
  ending_ = Ending::now;
}

void SessionLoop::input_ended() {
  asked_ = true;
  if (ending_ == Ending::no) ending_ = Ending::when_done;
}

void SessionLoop::refuse(const Error& error) {
  const bool full = error.code == ErrorCode::exhausted;
  const char* kind = error.code == ErrorCode::io ? "io" : full ? "storage" : "invalid";
  ports_.output.emit(lines::SlotError{kind, false, error.message});
}

}  // namespace strata
