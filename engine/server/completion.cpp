#include "engine/server/completion.hpp"

#include <fmt/format.h>

#include <utility>

namespace strata {
namespace {

double ms_between(uint64_t from_ns, uint64_t to_ns) {
  return from_ns == 0 ? 0 : static_cast<double>(to_ns - from_ns) / 1e6;
}

}  // namespace

Completion::Completion(Ports ports, const CompletionRequest& request, CompletionHead head,
                       uint32_t prompt_tokens, uint32_t max_tokens, uint64_t ping_ns)
    : ports_(std::move(ports)),
      head_(std::move(head)),
      sampling_(request.sampling),
      stream_(request.stream),
      include_usage_(request.include_usage),
      return_progress_(request.return_progress),
      timings_per_token_(request.timings_per_token),
      ignore_eos_(request.ignore_eos),
      prompt_tokens_(prompt_tokens),
      max_tokens_(max_tokens),
      ping_ns_(ping_ns),
      stops_(request.stop),
      last_write_ns_(ports_.clock.monotonic_ns()) {}

// ---- the stream

void Completion::begin() {
  if (!stream_ || ended_) return;
  if (!std::exchange(streaming_, true)) ports_.exchange->begin_stream("text/event-stream");
  if (std::exchange(role_sent_, true) || !head_.chat) return;
  ChunkParts first;
  first.role = true;
  send(first);
}

void Completion::send(const ChunkParts& parts) { send_event(chunk_body(head_, parts)); }

void Completion::send_event(std::string_view json) {
  ports_.exchange->write(fmt::format("data: {}\n\n", json));
  last_write_ns_ = ports_.clock.monotonic_ns();
}

void Completion::tick(uint64_t now_ns) {
  if (!stream_ || ended_ || now_ns - last_write_ns_ < ping_ns_) return;
  if (!std::exchange(streaming_, true)) ports_.exchange->begin_stream("text/event-stream");
  ports_.exchange->write(":\n\n");
  last_write_ns_ = now_ns;
}

// ---- events

void Completion::on_resume(const lines::Resume& event) {
  resume_ = event;
  begin();
}

void Completion::on_progress(const lines::PromptProgress& event) {
  prompt_ms_ = event.ms;
  begin();
  if (!stream_ || ended_ || !return_progress_) return;
  const Progress progress{event.total, resume_.tokens, event.done, event.ms};
  ChunkParts parts;
  parts.progress = &progress;
  send(parts);
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
  entry.token = {bytes_of(event.token), event.logprob};
  for (const auto& [token, logprob] : event.top) entry.top.push_back({bytes_of(token), logprob});
  entry.text_offset = text_bytes_;
  logprobs_.push_back(std::move(entry));
  append(event.token);
}

std::string Completion::bytes_of(Token token) const {
  Result<std::string> bytes = ports_.model.detokenize({&token, 1});
  return bytes.ok() ? *std::move(bytes) : std::string();
}

void Completion::append(Token token) {
  if (ports_.model.is_end_of_generation(token) && !ignore_eos_) return;
  emit_text(stops_.feed(characters_.feed(bytes_of(token))));
  if (!stops_.matched()) return;
  stopped_ = true;
  ports_.stop();
}

void Completion::emit_text(const std::string& text) {
  text_bytes_ += text.size();
  if (!stream_) {
    text_ += text;
    return;
  }
  if (text.empty()) return;
  ChunkParts parts;
  parts.text = text;
  const std::vector<TokenLogprob> logprobs = std::exchange(logprobs_, {});
  if (wants_logprobs()) parts.logprobs = &logprobs;
  const Timings timings = live_timings();
  if (timings_per_token_) parts.timings = &timings;
  send(parts);
}

Timings Completion::live_timings() const {
  Timings timings;
  timings.cache_n = resume_.tokens;
  timings.prompt_n = prompt_tokens_ - resume_.tokens;
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
  finish(event);
}

void Completion::finish(const lines::Done& done) {
  ended_ = true;
  const Usage usage{done.prompt, done.reused, tokens_};
  Timings timings{done.reused,          done.read,     done.prompt_ms, tokens_, done.decode_ms,
                  to_string(done.tier), done.cache_ms, done.reason};
  const char* reason = stopped_ || done.finish == lines::Finish::stop ? "stop" : "length";
  if (!stream_) {
    HttpResponse response;
    response.body = whole_body(head_, text_, reason, wants_logprobs() ? &logprobs_ : nullptr, usage, timings);
    return ports_.exchange->respond(std::move(response));
  }
  ChunkParts last;
  last.finish_reason = reason;
  if (wants_logprobs() && !logprobs_.empty()) last.logprobs = &logprobs_;
  if (!include_usage_) last.timings = &timings;
  send(last);
  if (include_usage_) send_event(usage_chunk(head_, usage, timings));
  ports_.exchange->write("data: [DONE]\n\n");
  ports_.exchange->finish();
}

void Completion::on_refused(const std::string& reason) {
  fail(server_error("the engine refused the request: " + reason));
}

void Completion::on_lost(const ApiError& error) { fail(error); }

// A stream that has begun can only say it in the stream; it then ends without [DONE], so that no client takes
// the part for the whole.
void Completion::fail(const ApiError& error) {
  if (std::exchange(ended_, true)) return;
  if (!streaming_) {
    HttpResponse response;
    response.status = error.status;
    response.body = to_json(error);
    return ports_.exchange->respond(std::move(response));
  }
  ports_.exchange->write(fmt::format("data: {}\n\n", to_json(error)));
  ports_.exchange->finish();
}

void Completion::client_gone() {
  if (std::exchange(ended_, true)) return;
  ports_.stop();
}

}  // namespace strata
