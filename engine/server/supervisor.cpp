#include "engine/server/supervisor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace strata {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr size_t kShownLineBytes = 80;
constexpr uint32_t kFreeFailures = 3;  // in a row; from then on starts are spaced out

// A line is shown only in part: it may be megabytes long, or anything at all.
std::string shown(std::string_view line) {
  std::string text(line.substr(0, kShownLineBytes));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  return line.size() > kShownLineBytes ? text + "…" : text;
}

ApiError too_many() { return unavailable("too many requests are waiting"); }

}  // namespace

Supervisor::Supervisor(EngineProcess& process, Clock& clock, Log& log, SupervisorOptions options)
    : process_(process), clock_(clock), log_(log), options_(options) {
  process_.on_line = [this](std::string_view line) { on_line(line); };
  process_.on_end = [this](const std::string& how) { on_end(how); };
}

// ---- life of the process

Status Supervisor::start() { return launch(); }

Status Supervisor::launch() {
  info_.clear();
  end_reason_.clear();
  allowance_ns_ = 0;
  query_sent_ = false;
  said_bye_ = leaving_ = false;
  fatal_ns_.reset();
  if (Status started = process_.start(); !started.ok()) return started;
  state_ = State::starting;
  started_ns_ = last_beat_ns_ = clock_.monotonic_ns();
  if (was_ready_) {
    ++restarts_;
    log_.write(LogLevel::info, "strata: engine is started again");
  }
  return {};
}

uint64_t Supervisor::backoff_until_ns() const {
  if (failures_ < kFreeFailures) return 0;
  const uint32_t doublings = std::min(failures_ - kFreeFailures, 16u);
  return failed_ns_ + std::min(options_.backoff_ns << doublings, options_.max_backoff_ns);
}

std::optional<ApiError> Supervisor::ensure_running() {
  if (quitting_) return unavailable("the server is shutting down");
  if (loading()) return unavailable("Loading model");
  if (state_ != State::stopped) return std::nullopt;  // an engine that is ending is followed by the next one
  const uint64_t now = clock_.monotonic_ns();
  if (now < backoff_until_ns()) {
    const auto wait_s = static_cast<uint32_t>((backoff_until_ns() - now) / kSecondNs + 1);
    ApiError error = unavailable(fmt::format(
        "the engine ended {} times in a row, last: {}; next start in {} s", failures_, end_reason_, wait_s));
    error.retry_after_s = wait_s;
    return error;
  }
  if (const Status started = launch(); !started.ok()) {
    ++failures_;
    failed_ns_ = now;
    end_reason_ = started.error().message;
    return server_error(end_reason_);
  }
  return std::nullopt;
}

void Supervisor::on_end(const std::string& how) {
  const State before = std::exchange(state_, State::stopped);
  const bool clean = said_bye_ && !fatal_ns_;
  const bool given_up = before == State::ending || leaving_;
  if (end_reason_.empty()) end_reason_ = clean ? "the engine was shut down" : "the engine " + how;
  const std::string why = end_reason_;
  if (!clean) {
    ++failures_;
    failed_ns_ = clock_.monotonic_ns();
    // The first engine's failure is the server's: whoever started it says it, once.
    if (was_ready_ || quitting_)
      log_.write(LogLevel::error, fmt::format("strata: engine ended ({}): {}", how, why));
  }
  if (quitting_) {
    lose_everything(why);
    if (on_stopped) on_stopped(clean);
  } else if (!was_ready_) {
    if (on_start_failed) on_start_failed(why);
  } else {
    if (before == State::starting)
      lose_everything(why);
    else if (!given_up)
      lose_begun(why);
    if (!anything_open()) return;
    if (const auto refused = ensure_running(); refused) lose_everything(refused->message);
  }
}

// An engine that ended by itself takes with it what it had begun. A request it had said nothing about may
// have come after its end, before this server saw that: it is tried once more, and once only, for it may be
// what ended the engine.
void Supervisor::lose_begun(const std::string& why) {
  std::vector<std::shared_ptr<RequestSink>> lost;
  for (auto entry = requests_.begin(); entry != requests_.end();) {
    Request& request = entry->second;
    const bool again = !request.begun && !request.retried && !request.stopped;
    if (again)
      request.retried = std::exchange(request.sent, false);
    else
      lost.push_back(request.sink);
    entry = again ? std::next(entry) : requests_.erase(entry);
  }
  std::vector<std::function<void(const SlotOutcome&)>> failed;
  if (!actions_.empty() && actions_.front().sent) {
    failed.push_back(std::move(actions_.front().answer));
    actions_.pop_front();
  }
  for (const auto& sink : lost) sink->on_lost(server_error(why));
  for (const auto& answer : failed) answer(SlotOutcome(slot_error("io", false, why)));
  for (Query& query : std::exchange(queries_, {})) query.answer(std::nullopt);
}

void Supervisor::end_engine(const std::string& why) {
  if (state_ != State::starting && state_ != State::ready) return;
  end_reason_ = why;
  state_ = State::ending;
  log_.write(LogLevel::error, "strata: engine is ended: " + why);
  process_.kill();
  lose_everything(why);
}

void Supervisor::lose_everything(const std::string& why) {
  const ApiError error = quitting_ ? unavailable("the server is shutting down") : server_error(why);
  for (auto& [id, request] : std::exchange(requests_, {})) request.sink->on_lost(error);
  for (Action& action : std::exchange(actions_, {})) {
    ApiError failed = error;
    if (!quitting_) failed.kind = "io";
    action.answer(failed);
  }
  for (Query& query : std::exchange(queries_, {})) query.answer(std::nullopt);
}

void Supervisor::shut_down() {
  if (std::exchange(quitting_, true)) return;
  quit_ns_ = clock_.monotonic_ns();
  const bool runs = state_ == State::starting || state_ == State::ready;
  if (runs && !leaving_)
    process_.send(lines::encode(lines::Quit{}));  // a second one would cut its writes short
  if (state_ == State::stopped && on_stopped) on_stopped(true);
}

void Supervisor::kill() {
  if (state_ != State::stopped) process_.kill();
}

// ---- requests

ApiResult<uint64_t> Supervisor::generate(lines::Generate request, std::shared_ptr<RequestSink> sink) {
  if (requests_.size() >= options_.max_open) return tl::unexpected(too_many());
  if (auto refused = ensure_running(); refused) return tl::unexpected(*std::move(refused));
  opened();
  const uint64_t id = next_id_++;
  request.id = id;
  Request entry;
  entry.prompt_tokens = static_cast<uint32_t>(request.tokens.size());
  entry.command = std::move(request);
  entry.sink = std::move(sink);
  requests_.emplace(id, std::move(entry));
  flush();
  return id;
}

void Supervisor::stop(uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  if (!found->second.sent) {
    requests_.erase(found);
    return;
  }
  found->second.stopped = true;
  process_.send(lines::encode(lines::Stop{id}));
}

ApiResult<uint64_t> Supervisor::slot_action(lines::SlotAction action,
                                            std::function<void(const SlotOutcome&)> answer) {
  if (actions_.size() >= options_.max_open) return tl::unexpected(too_many());
  if (auto refused = ensure_running(); refused) return tl::unexpected(*std::move(refused));
  opened();
  const uint64_t id = next_action_id_++;
  actions_.push_back({id, std::move(action), std::move(answer)});
  flush();
  return id;
}

void Supervisor::abandon_action(uint64_t id) {
  std::erase_if(actions_, [id](const Action& action) { return action.id == id && !action.sent; });
}

void Supervisor::status(std::function<void(std::optional<std::string>)> answer) {
  if (state_ != State::ready || leaving_) return answer(std::nullopt);
  opened();
  queries_.push_back({clock_.monotonic_ns(), std::move(answer)});
  if (!std::exchange(query_sent_, true)) process_.send(lines::encode(lines::QueryStatus{}));
}

void Supervisor::flush() {
  if (state_ != State::ready || leaving_) return;
  for (auto& [id, request] : requests_) {
    if (request.sent) continue;
    request.sent = true;
    process_.send(lines::encode(request.command));
  }
  send_next_action();
}

void Supervisor::send_next_action() {
  if (state_ != State::ready || leaving_ || actions_.empty() || actions_.front().sent) return;
  actions_.front().sent = true;
  process_.send(lines::encode(actions_.front().command));
}

bool Supervisor::anything_open() const {
  return !requests_.empty() || !actions_.empty() || !queries_.empty();
}

void Supervisor::opened() {
  if (anything_open()) return;
  last_beat_ns_ = clock_.monotonic_ns();
  allowance_ns_ = 0;
}

// A slot action's allowance is its own: tokens of another slot meanwhile do not use it up.
void Supervisor::beat(const lines::Event& event) {
  last_beat_ns_ = clock_.monotonic_ns();
  const bool of_request =
      std::holds_alternative<lines::Resume>(event) || std::holds_alternative<lines::PromptProgress>(event) ||
      std::holds_alternative<lines::TokenLine>(event) || std::holds_alternative<lines::LogProbs>(event) ||
      std::holds_alternative<lines::Done>(event) || std::holds_alternative<lines::Failed>(event);
  const bool acting = !actions_.empty() && actions_.front().sent;
  if (!of_request || !acting) allowance_ns_ = 0;
}

size_t Supervisor::requests_processing() const {
  return static_cast<size_t>(
      std::count_if(requests_.begin(), requests_.end(), [](const auto& r) { return r.second.begun; }));
}

size_t Supervisor::requests_deferred() const { return requests_.size() - requests_processing(); }

std::string Supervisor::info(std::string_view key) const {
  const auto found = info_.find(key);
  return found == info_.end() ? std::string() : found->second;
}

// ---- watchdogs

void Supervisor::tick() {
  const uint64_t now = clock_.monotonic_ns();
  expire_queries(now);
  if (quitting_) {
    if (state_ != State::stopped && now - quit_ns_ > options_.drain_ns) {
      end_reason_ = fmt::format("the engine did not end within {} s", options_.drain_ns / kSecondNs);
      process_.kill();
    }
    return;
  }
  if (fatal_ns_ && state_ != State::stopped && now - *fatal_ns_ > options_.drain_ns) process_.kill();
  check_silence(now);
}

void Supervisor::check_silence(uint64_t now) {
  if (state_ == State::starting && now - started_ns_ > options_.start_ns)
    return end_engine(fmt::format("the engine was not ready within {} s", options_.start_ns / kSecondNs));
  if (state_ != State::ready || !anything_open()) return;
  const uint64_t allowed = options_.silence_ns + allowance_ns_;
  if (now - last_beat_ns_ > allowed)
    end_engine(fmt::format("the engine was silent for {} s with a request open", allowed / kSecondNs));
}

void Supervisor::expire_queries(uint64_t now) {
  std::vector<Query> late;
  for (auto query = queries_.begin(); query != queries_.end();) {
    if (now - query->asked_ns <= options_.query_ns) {
      ++query;
      continue;
    }
    late.push_back(std::move(*query));
    query = queries_.erase(query);
  }
  for (Query& query : late) query.answer(std::nullopt);
}

// ---- lines

void Supervisor::on_line(std::string_view line) {
  if (state_ != State::starting && state_ != State::ready) return;  // it is being ended
  const Result<lines::Event> event = lines::decode_event(line);
  if (!event.ok())
    return end_engine(fmt::format("out of protocol: {} in \"{}\"", event.error().message, shown(line)));
  // An answered query says nothing about the requests: whoever polls must not hide that they stand still.
  const bool counts =
      !std::holds_alternative<lines::StatusReport>(*event) || (requests_.empty() && actions_.empty());
  if (counts) beat(*event);
  if (const Violation violation = accept(*event); violation)
    end_engine(fmt::format("out of protocol: {} in \"{}\"", *violation, shown(line)));
}

Supervisor::Violation Supervisor::accept(const lines::Event& event) {
  const bool any_time =
      std::holds_alternative<lines::Info>(event) || std::holds_alternative<lines::Ready>(event) ||
      std::holds_alternative<lines::Failed>(event) || std::holds_alternative<lines::Fatal>(event) ||
      std::holds_alternative<lines::SessionWait>(event) || std::holds_alternative<lines::Drain>(event) ||
      std::holds_alternative<lines::Bye>(event);
  if (state_ == State::starting && !any_time) return "not allowed before READY";
  if (said_bye_) return "nothing may follow BYE";
  const bool of_its_end =
      std::holds_alternative<lines::Drain>(event) || std::holds_alternative<lines::Bye>(event);
  if (fatal_ns_ && !of_its_end) return {};  // of what was answered here already
  return std::visit([this](const auto& line) { return take(line); }, event);
}

Supervisor::Violation Supervisor::take(const lines::Info& event) {
  if (state_ != State::starting) return "INFO after READY";
  for (const auto& [key, value] : event.values) info_[key] = value;
  return {};
}

Supervisor::Violation Supervisor::take(const lines::Ready& event) {
  if (state_ != State::starting) return "READY twice";
  if (event.slots == 0 || event.slots > limits::kMaxSlots || event.context == 0)
    return "no slots or no context";
  ready_ = event;
  state_ = State::ready;
  const bool first = !std::exchange(was_ready_, true);
  log_.write(LogLevel::info,
             fmt::format("strata: engine is ready: {} slots of {} tokens, after {:.1f} s", event.slots,
                         event.context, static_cast<double>(clock_.monotonic_ns() - started_ns_) / 1e9));
  if (first && on_first_ready) on_first_ready();
  flush();
  return {};
}

Supervisor::Request* Supervisor::open_request(uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || !found->second.sent) return nullptr;
  found->second.begun = true;
  found->second.command.tokens = {};
  return &found->second;
}

Supervisor::Violation Supervisor::take(const lines::Resume& event) {
  Request* request = open_request(event.id);
  if (request == nullptr) return "no such request";
  if (request->tokens > 0) return "RESUME after a token";
  if (event.tokens >= std::max(request->prompt_tokens, 1u)) return "more tokens than the prompt allows";
  request->sink->on_resume(event);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::PromptProgress& event) {
  Request* request = open_request(event.id);
  if (request == nullptr) return "no such request";
  if (event.done > event.total || event.total > request->prompt_tokens)
    return "more tokens than the prompt has";
  request->sink->on_progress(event);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::TokenLine& event) {
  Request* request = open_request(event.id);
  if (request == nullptr) return "no such request";
  if (request->awaits_logprobs) return "a token whose LP line is missing";
  if (++request->tokens > request->command.max_tokens) return "more tokens than were asked for";
  if (request->command.sampling.logprobs) request->awaits_logprobs = event.token;
  request->sink->on_token(event);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::LogProbs& event) {
  Request* request = open_request(event.id);
  if (request == nullptr) return "no such request";
  if (request->awaits_logprobs != event.token) return "LP does not belong to the last token";
  request->awaits_logprobs.reset();
  request->sink->on_logprobs(event);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::Done& event) {
  const Request* request = open_request(event.id);
  if (request == nullptr) return "no such request";
  if (event.generated > request->command.max_tokens) return "more tokens than were asked for";
  if (event.reused > event.prompt) return "more reused than the prompt has";
  const std::shared_ptr<RequestSink> sink = request->sink;
  requests_.erase(event.id);
  failures_ = 0;
  sink->on_done(event);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::Failed& event) {
  if (!event.id) {
    if (state_ != State::starting) return "ERR without a request";
    end_reason_ = event.reason;
    return {};
  }
  const Request* request = open_request(*event.id);
  if (request == nullptr) return "no such request";
  const std::shared_ptr<RequestSink> sink = request->sink;
  requests_.erase(*event.id);
  sink->on_refused(event.reason);
  return {};
}

Supervisor::Violation Supervisor::finish_action(lines::SlotActionKind kind, const SlotOutcome& outcome) {
  if (actions_.empty() || !actions_.front().sent) return "no slot action is open";
  const bool failed = std::holds_alternative<lines::SlotError>(outcome);
  if (!failed && actions_.front().command.kind != kind) return "another slot action is open";
  const auto answer = std::move(actions_.front().answer);
  actions_.pop_front();
  failures_ = 0;
  send_next_action();
  // What QUIT cut short is answered as requests are then.
  const auto* error = std::get_if<lines::SlotError>(&outcome);
  const bool cut_short = quitting_ && error != nullptr && error->kind == "io" && !error->published;
  answer(cut_short ? SlotOutcome(unavailable("the server is shutting down")) : outcome);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::Saved& event) {
  return finish_action(lines::SlotActionKind::save, event);
}
Supervisor::Violation Supervisor::take(const lines::Restored& event) {
  return finish_action(lines::SlotActionKind::restore, event);
}
Supervisor::Violation Supervisor::take(const lines::Erased& event) {
  return finish_action(lines::SlotActionKind::erase, event);
}
Supervisor::Violation Supervisor::take(const lines::SlotError& event) {
  return finish_action(lines::SlotActionKind::save, event);
}

// It can go on with nothing, but it still writes what it holds for others, so it is not killed at once.
Supervisor::Violation Supervisor::take(const lines::Fatal& event) {
  if (state_ == State::starting) {
    end_engine("the engine failed: " + event.reason);
    return {};
  }
  end_reason_ = "the engine failed: " + event.reason;
  fatal_ns_ = clock_.monotonic_ns();
  leaving_ = true;
  lose_everything(end_reason_);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::SessionProgress& event) {
  if (actions_.empty() || !actions_.front().sent) return "no slot action is open";
  Action& action = actions_.front();
  if (action.command.kind == lines::SlotActionKind::erase) return "nothing is moved to erase a slot";
  if (event.done > event.total) return "more done than there is";
  if (event.done < action.moved_bytes) return "less done than before";
  action.moved_bytes = event.done;
  return {};
}

Supervisor::Violation Supervisor::take(const lines::SessionWait& event) {
  if (event.seconds == 0 || event.seconds > 3600) return "an allowance out of range";
  allowance_ns_ = event.seconds * kSecondNs;
  return {};
}

Supervisor::Violation Supervisor::take(const lines::Drain& event) {
  if (event.done > event.total) return "more done than there is";
  log_.write(LogLevel::info,
             fmt::format("strata: conversations are moved to disk: {} of {}", event.done, event.total));
  leave();
  return {};
}

// DRAIN and BYE without QUIT: a signal to the whole process group reached the engine before this server had
// seen it. What was open gets no answer any more; what comes now waits for the next engine.
void Supervisor::leave() {
  if (quitting_ || std::exchange(leaving_, true)) return;
  lose_everything("the engine is shutting down");
}

Supervisor::Violation Supervisor::take(const lines::StatusReport& event) {
  if (!std::exchange(query_sent_, false)) return "STATUS was not asked for";
  for (Query& query : std::exchange(queries_, {})) query.answer(event.json);
  return {};
}

Supervisor::Violation Supervisor::take(const lines::Sessions&) { return "SESSIONS was not asked for"; }
Supervisor::Violation Supervisor::take(const lines::Acknowledged&) {
  return "nothing was asked that this answers";
}

Supervisor::Violation Supervisor::take(const lines::Bye&) {
  said_bye_ = true;
  leave();
  return {};
}

}  // namespace strata
