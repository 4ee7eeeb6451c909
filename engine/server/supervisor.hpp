// Keeps one engine process and talks the line protocol with it (SRV-1): starts it, checks every line against
// what is open, ends an engine that is silent or out of protocol, answers what was open with an error, and
// starts the next one when the next request comes. Ownership: sinks are shared until their request has ended;
// the process, clock and log must outlive the supervisor. One thread; a state machine without waiting: time
// comes in through tick().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/clock.hpp"
#include "core/limits.hpp"
#include "core/lines.hpp"
#include "core/log.hpp"
#include "engine/server/api_error.hpp"
#include "engine/server/engine_process.hpp"

namespace strata {

// Receives one request's events in order, ended by exactly one of on_done, on_refused, on_lost.
class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void on_resume(const lines::Resume& event) = 0;
  virtual void on_progress(const lines::PromptProgress& event) = 0;
  virtual void on_token(const lines::TokenLine& event) = 0;
  virtual void on_logprobs(const lines::LogProbs& event) = 0;
  virtual void on_done(const lines::Done& event) = 0;
  virtual void on_refused(const std::string& reason) = 0;  // ERR: the engine goes on
  virtual void on_lost(const ApiError& error) = 0;         // the engine ended
};

using SlotOutcome = std::variant<lines::Saved, lines::Restored, lines::Erased, lines::SlotError, ApiError>;

struct SupervisorOptions {
  uint64_t silence_ns = 300'000'000'000;  // with something open
  uint64_t start_ns = 1'800'000'000'000;  // until READY
  uint64_t drain_ns = 20'000'000'000;     // after QUIT or FATAL
  uint64_t query_ns = 10'000'000'000;     // a STATUS answer
  uint64_t backoff_ns = 1'000'000'000;    // doubled with every failure after the third in a row
  uint64_t max_backoff_ns = 30'000'000'000;
  uint32_t max_open = limits::kMaxQueuedRequests;
};

class Supervisor {
 public:
  Supervisor(EngineProcess& process, Clock& clock, Log& log, SupervisorOptions options);

  Status start();  // the first engine
  void tick();     // watchdogs; call at least once a second

  // --- requests. They wait when the engine is being started again.
  ApiResult<uint64_t> generate(lines::Generate request,
                               std::shared_ptr<RequestSink> sink);  // the id is given here
  void stop(uint64_t id);  // unknown ids are ignored; a request that was not sent yet ends without an event
  // One at a time reaches the engine, because its answers carry no id; `answer` is called once.
  ApiResult<uint64_t> slot_action(lines::SlotAction action, std::function<void(const SlotOutcome&)> answer);
  // Nobody waits for it any more. What the engine has already got is carried out; the rest is not, and has no
  // answer: it would change a slot that somebody else uses by then.
  void abandon_action(uint64_t id);
  // {"slots":[…],"tiers":{…},"metrics":"…"} as the engine says it; nothing when it is not running or does not
  // answer.
  void status(std::function<void(std::optional<std::string>)> answer);

  // QUIT; on_stopped(clean) follows when the engine has ended.
  void shut_down();
  void kill();
  std::function<void(bool clean)> on_stopped;
  // The first engine ended before READY: there is nothing to serve.
  std::function<void(const std::string& reason)> on_start_failed;
  std::function<void()> on_first_ready;

  [[nodiscard]] bool ready() const { return state_ == State::ready; }
  [[nodiscard]] bool loading() const { return !was_ready_; }  // the first start is not through
  [[nodiscard]] bool shutting_down() const { return quitting_; }
  [[nodiscard]] bool starting() const { return state_ == State::starting; }
  [[nodiscard]] uint32_t context() const { return ready_.context; }
  [[nodiscard]] uint32_t slots() const { return ready_.slots; }
  [[nodiscard]] std::string info(std::string_view key) const;  // of the INFO lines; empty when absent
  [[nodiscard]] size_t requests_processing() const;            // the engine has begun with them
  [[nodiscard]] size_t requests_deferred() const;              // accepted, not begun
  [[nodiscard]] uint64_t restarts() const { return restarts_; }

 private:
  enum class State : uint8_t { stopped, starting, ready, ending };
  struct Request {
    lines::Generate command;  // tokens are dropped once begun
    std::shared_ptr<RequestSink> sink;
    uint32_t prompt_tokens = 0;
    uint32_t tokens = 0;
    bool sent = false;
    bool begun = false;    // the engine has said something about it
    bool stopped = false;  // nobody waits for it any more
    bool retried = false;  // its first engine ended before it had begun
    std::optional<Token> awaits_logprobs;
  };
  struct Action {
    uint64_t id;
    lines::SlotAction command;
    std::function<void(const SlotOutcome&)> answer;
    bool sent = false;
    uint64_t moved_bytes = 0;  // of the last SESSION
  };
  struct Query {
    uint64_t asked_ns;
    std::function<void(std::optional<std::string>)> answer;
  };
  using Violation = std::optional<std::string>;

  void on_line(std::string_view line);
  void on_end(const std::string& how);
  Violation accept(const lines::Event& event);
  Violation take(const lines::Info& event);
  Violation take(const lines::Ready& event);
  Violation take(const lines::Resume& event);
  Violation take(const lines::PromptProgress& event);
  Violation take(const lines::TokenLine& event);
  Violation take(const lines::LogProbs& event);
  Violation take(const lines::Done& event);
  Violation take(const lines::Failed& event);
  Violation take(const lines::Saved& event);
  Violation take(const lines::Restored& event);
  Violation take(const lines::Erased& event);
  Violation take(const lines::SlotError& event);
  Violation take(const lines::Fatal& event);
  Violation take(const lines::SessionProgress& event);
  Violation take(const lines::SessionWait& event);
  Violation take(const lines::Drain& event);
  Violation take(const lines::StatusReport& event);
  Violation take(const lines::Sessions& event);
  Violation take(const lines::Acknowledged& event);
  Violation take(const lines::Bye& event);
  Violation finish_action(lines::SlotActionKind kind, const SlotOutcome& outcome);
  Request* open_request(uint64_t id);

  Status launch();
  std::optional<ApiError> ensure_running();
  void flush();  // sends what waits, once the engine is ready
  void send_next_action();
  void end_engine(const std::string& why);  // kills; what was open answers 500
  void leave();
  void lose_begun(const std::string& why);
  void lose_everything(const std::string& why);
  void opened();  // something to watch begins
  void beat(const lines::Event& event);
  [[nodiscard]] bool anything_open() const;
  [[nodiscard]] uint64_t backoff_until_ns() const;
  void check_silence(uint64_t now);
  void expire_queries(uint64_t now);

  EngineProcess& process_;
  Clock& clock_;
  Log& log_;
  SupervisorOptions options_;
  State state_ = State::stopped;
  bool was_ready_ = false;
  bool quitting_ = false;
  bool said_bye_ = false;
  bool leaving_ = false;  // it shuts down although nobody asked here: it got the signal too, or said FATAL
  std::optional<uint64_t> fatal_ns_;  // when it said so
  lines::Ready ready_;
  std::map<std::string, std::string, std::less<>> info_;
  std::map<uint64_t, Request> requests_;
  std::deque<Action> actions_;
  std::vector<Query> queries_;
  bool query_sent_ = false;
  uint64_t next_id_ = 1;
  uint64_t next_action_id_ = 1;  // of this side only; the engine never sees it
  uint64_t last_beat_ns_ = 0;
  uint64_t allowance_ns_ = 0;  // of the last SWAIT
  uint64_t started_ns_ = 0;
  uint64_t quit_ns_ = 0;
  uint64_t failed_ns_ = 0;
  uint32_t failures_ = 0;  // ends in a row without a finished request or slot action between them
  uint64_t restarts_ = 0;
  std::string end_reason_;  // why the engine is being ended, or what it said about that itself
};

}  // namespace strata
