#include "engine/server/completion.hpp"

#include <algorithm>
#include <utility>

#include "engine/server/respond.hpp"

namespace strata {
namespace {

double ms_between(uint64_t from_ns, uint64_t to_ns) {
  return from_ns == 0 ? 0 : static_cast<double>(to_ns - from_ns) / 1e6;
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  for (const std::string& stop : second)
    if (!stop.empty()) first.push_back(stop);
  return first;
}

// What is needed after the prompt was made: a long conversation is not kept twice.
CompletionRequest without_prompt(CompletionRequest request) {
  request.messages.clear();
  request.chat_json.clear();
  request.prompt.clear();
  request.prompt_tokens.reset();
  return request;
}

}  // namespace

Completion::Completion(Ports ports, CompletionRequest request, Plan plan)
    : ports_(std::move(ports)),
      plan_(std::move(plan)),
      request_(without_prompt(std::move(request))),
      stops_(joined(request_.stop, plan_.model_stops)),
      reader_(ports_.model, {plan_.parser, request_.stream, ports_.new_call_id, !request_.parallel_calls}),
      last_write_ns_(ports_.clock.monotonic_ns()) {}

// ---- the stream

void Completion::begin() {
  if (!request_.stream || ended_) return;
  if (!std::exchange(streaming_, true)) ports_.exchange->begin_stream("text/event-stream");
  if (std::exchange(started_, true)) return;
  send(plan_.format->start({plan_.prompt_tokens, resume_.tokens, 0}));
}

void Completion::send(const std::string& bytes) {
  if (bytes.empty()) return;
  ports_.exchange->write(bytes);
  last_write_ns_ = ports_.clock.monotonic_ns();
}

void Completion::tick(uint64_t now_ns) {
  if (!request_.stream || ended_ || now_ns - last_write_ns_ < plan_.ping_ns) return;
  if (!std::exchange(streaming_, true)) ports_.exchange->begin_stream("text/event-stream");
  send(plan_.format->ping());
}

// ---- events

void Completion::on_resume(const lines::Resume& event) {
  resume_ = event;
  begin();
}

void Completion::on_progress(const lines::PromptProgress& event) {
  prompt_ms_ = event.ms;
  begin();
  if (!request_.stream || ended_ || !request_.return_progress) return;
  send(plan_.format->progress({event.total, resume_.tokens, event.done, event.ms}));
}

void Completion::on_token(const lines::TokenLine& event) {
  if (ended_ || stopped_) return;
  begin();
  if (tokens_++ == 0) first_token_ns_ = ports_.clock.monotonic_ns();
  if (!wants_logprobs()) append(event.token);
}

void Completion::on_logprobs(const lines::LogProbs& event) {
  if (ended_ || stopped_) return;
  TokenLogprob entry;
  entry.token = token_text(event.token, event.logprob);
  for (const auto& [token, logprob] : event.top) entry.top.push_back(token_text(token, logprob));
  entry.text_offset = text_bytes_;
  logprobs_.push_back(std::move(entry));
  append(event.token);
}

std::string Completion::bytes_of(Token token) const {
  Result<std::string> bytes = ports_.model.detokenize({&token, 1});
  return bytes.ok() ? *std::move(bytes) : std::string();
}

TokenText Completion::token_text(Token token, double logprob) const {
  return {token, bytes_of(token), logprob};
}

void Completion::append(Token token) {
  if (request_.return_tokens) new_tokens_.push_back(token);
  if (ports_.model.is_end_of_generation(token) && !request_.ignore_eos) return;
  emit_text(stops_.feed(characters_.feed(bytes_of(token))));
  if (!stops_.matched()) return;
  stopped_ = true;
  ports_.stop();
}

void Completion::emit_text(const std::string& text) {
  text_bytes_ += text.size();
  emit(reader_.feed(text));
}

void Completion::emit(AnswerDelta delta) {
  if (!request_.stream || delta.empty()) return;
  AnswerStep step;
  step.delta = std::move(delta);
  step.usage = {plan_.prompt_tokens, resume_.tokens, tokens_};
  step.slot = static_cast<SlotId>(resume_.slot);
  step.tokens = std::exchange(new_tokens_, {});
  step.logprobs = std::exchange(logprobs_, {});
  step.has_logprobs = wants_logprobs();
  const Timings timings = live_timings();
  if (request_.timings_per_token) step.timings = &timings;
  send(plan_.format->step(step));
}

Timings Completion::live_timings() const {
  Timings timings;
  timings.cache_n = resume_.tokens;
  timings.prompt_n = plan_.prompt_tokens - resume_.tokens;
  timings.prompt_ms = prompt_ms_;
  timings.predicted_n = tokens_;
  timings.predicted_ms = ms_between(first_token_ns_, ports_.clock.monotonic_ns());
  timings.cache_tier = to_string(resume_.tier);
  timings.cache_ms = resume_.ms;
  return timings;
}

// ---- ends

void Completion::on_done(const lines::Done& event) {
  if (ended_) return;
  if (event.finish == lines::Finish::cancel && !stopped_)
    return fail(unavailable("the request was cancelled because the server is shutting down"));
  begin();
  if (!stopped_) {
    std::string rest = stops_.feed(characters_.finish());
    if (!stops_.matched()) rest += stops_.finish();
    stopped_ = stops_.matched();
    emit_text(rest);
  }
  AnswerDelta rest = reader_.finish();
  emit(std::move(rest));
  finish(event);
}

AnswerEnd Completion::end_of(const lines::Done& done) {
  AnswerEnd end;
  const std::vector<std::string>& asked = request_.stop;
  const bool asked_for = std::find(asked.begin(), asked.end(), stops_.match()) != asked.end();
  if (stopped_ && asked_for) {
    end.cause = StopCause::stop_string;
    end.stop_string = stops_.match();
  } else if (!stopped_ && done.finish == lines::Finish::length) {
    end.cause = StopCause::limit;
  }
  end.tool_calls = !reader_.content().tool_calls.empty();
  end.usage = {done.prompt, done.reused, tokens_};
  end.timings = {done.reused,          done.read,     done.prompt_ms, tokens_, done.decode_ms,
                 to_string(done.tier), done.cache_ms, done.reason};
  end.slot = static_cast<SlotId>(done.slot);
  end.tokens = std::exchange(new_tokens_, {});
  end.logprobs = std::exchange(logprobs_, {});
  end.has_logprobs = wants_logprobs();
  return end;
}

void Completion::finish(const lines::Done& done) {
  ended_ = true;
  const AnswerEnd end = end_of(done);
  if (!request_.stream) return respond_json(*ports_.exchange, plan_.format->whole(reader_.content(), end));
  send(plan_.format->end(end));
  ports_.exchange->finish();
}

void Completion::on_refused(const std::string& reason) {
  fail(server_error("the engine refused the request: " + reason));
}

void Completion::on_lost(const ApiError& error) { fail(error); }

// A stream that has begun can only say it in the stream.
void Completion::fail(const ApiError& error) {
  if (std::exchange(ended_, true)) return;
  if (!streaming_) return respond_error(*ports_.exchange, error);
  send(plan_.format->failure(error));
  ports_.exchange->finish();
}

void Completion::client_gone() {
  if (std::exchange(ended_, true)) return;
  ports_.stop();
}

}  // namespace strata
