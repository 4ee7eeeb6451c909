#include "engine/runtime/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "engine/runtime/constrained_sampler.hpp"
#include "engine/runtime/prompt_share.hpp"
#include "engine/runtime/request_report.hpp"

namespace strata {

enum class Phase : uint8_t { placing, reading, answering, ended };

struct Engine::Request {
  lines::Generate ask;
  Sampler sampler;
  std::unique_ptr<ModelSampler> constrained;  // chooses instead, where there is a grammar
  Phase phase = Phase::placing;
  bool stop = false;
  Placement placement;
  uint32_t position = 0;  // tokens in the slot
  uint32_t generated = 0;
  Token next = 0;  // chosen, not decoded
  uint64_t serving_ns = 0, read_end_ns = 0, progress_ns = 0;

  [[nodiscard]] uint32_t prompt_tokens() const { return static_cast<uint32_t>(ask.tokens.size()); }
  [[nodiscard]] uint32_t read_tokens() const {
    return std::min(position, prompt_tokens()) - placement.reused_tokens;
  }
};

struct Engine::Batch {
  std::vector<Request*> owners;
  std::vector<BatchItem> items;
  std::vector<std::span<const float>> logits;

  void add(Request& request, std::span<const Token> tokens, bool want_logits) {
    owners.push_back(&request);
    items.push_back({request.placement.slot, request.position, tokens, want_logits});
  }
};

Engine::Engine(const EnginePorts& ports, EngineOptions options)
    : ports_(ports), options_(options), pacer_(options.prompt_tokens_while_answering) {
  publish_gauges();
}

Engine::~Engine() = default;

void Engine::generate(lines::Generate ask) {
  const RequestId id = ask.id;
  if (std::ranges::any_of(requests_, [&](const RequestRef& open) { return open->ask.id == id; })) {
    ports_.events.emit(lines::Failed{std::nullopt, fmt::format("request {}: the id is in use", id)});
    return;
  }
  Result<Sampler> sampler = Sampler::make(ask.sampling, ports_.random.next());
  if (!sampler.ok()) return refuse(id, sampler.error());
  sampler->accept(ask.tokens);
  std::unique_ptr<ModelSampler> constrained;
  if (!ask.grammar.empty()) {
    auto made = make_constrained_sampler(ports_.model, ask, ports_.random.next());
    if (!made.ok()) return refuse(id, with_context(made.error(), "grammar"));
    constrained = std::move(*made);
  }
  TierRequest wanted{id, ask.tokens, ask.media, ask.borders, ask.salt, ask.slot, ask.use_cache, ask.keep};
  if (const Status admitted = ports_.tiers.admit(std::move(wanted)); !admitted.ok())
    return refuse(id, admitted.error());
  requests_.push_back(
      std::make_unique<Request>(Request{std::move(ask), std::move(*sampler), std::move(constrained)}));
  publish_gauges();
}

void Engine::refuse(RequestId id, const Error& error) {
  ports_.metrics.add("strata_requests_refused_total", fmt::format("code=\"{}\"", to_string(error.code)));
  ports_.events.emit(lines::Failed{id, error.message});
}

void Engine::stop(RequestId id) {
  for (const RequestRef& request : requests_)
    if (request->ask.id == id) request->stop = true;
}

void Engine::stop_all() {
  for (const RequestRef& request : requests_) request->stop = true;
}

Pace Engine::step() {
  const bool moving = ports_.tiers.step();
  bool progress = false;
  for (const RequestRef& request : requests_) {
    if (request->stop) {
      finish(*request, lines::Finish::cancel);
      progress = true;
    } else if (request->phase == Phase::placing) {
      progress = place(*request) || progress;
    }
  }
  progress = decode_step() || progress;
  drop_ended();
  ++steps_;
  if (progress) return Pace::busy;
  return moving || !requests_.empty() ? Pace::waiting : Pace::idle;
}

bool Engine::place(Request& request) {
  const RequestId id = request.ask.id;
  const RequestState state = ports_.tiers.state(id);
  if (state == RequestState::failed) {
    fail(request, make_error(ErrorCode::internal, ports_.tiers.failure(id)));
    return true;
  }
  if (state != RequestState::serving) return false;
  request.placement = ports_.tiers.placement(id);
  STRATA_CHECK(request.placement.reused_tokens < request.prompt_tokens());
  request.position = request.placement.reused_tokens;
  request.phase = Phase::reading;
  request.serving_ns = ports_.clock.monotonic_ns();
  request.progress_ns = request.serving_ns;
  ports_.events.emit(lines::Resume{id, request.placement.reused_tokens, request.placement.tier,
                                   static_cast<double>(request.placement.placing_ns) / 1e6,
                                   static_cast<uint32_t>(request.placement.slot)});
  ports_.events.emit(lines::PromptProgress{id, request.position, request.prompt_tokens(), 0});
  publish_gauges();
  return true;
}

bool Engine::may_decode(Request& request) {
  const SlotId slot = request.placement.slot;
  return ports_.tiers.may_decode(slot) && ports_.tiers.read_limit(slot) > request.position;
}

void Engine::add_answers(Batch& batch) {
  for (const RequestRef& request : requests_)
    if (request->phase == Phase::answering && may_decode(*request))
      batch.add(*request, {&request->next, 1}, true);
}

// With so many answers in the batch. An answering slot that is being copied is in none, but waits all the
// same.
uint32_t Engine::prompt_budget(uint32_t answers) const {
  if (answers > 0) return pacer_.budget(answers);
  const bool somebody_waits =
      std::ranges::any_of(requests_, [](const RequestRef& open) { return open->phase == Phase::answering; });
  return somebody_waits ? options_.prompt_tokens_while_answering : options_.prompt_tokens_alone;
}

// After the answers.
void Engine::add_prompts(Batch& batch) {
  const uint32_t budget = prompt_budget(static_cast<uint32_t>(batch.items.size()));
  std::vector<Request*> readers;
  std::vector<uint32_t> wanted;
  for (const RequestRef& request : requests_) {
    if (request->phase != Phase::reading || !may_decode(*request)) continue;
    const uint32_t limit =
        std::min(ports_.tiers.read_limit(request->placement.slot), request->prompt_tokens());
    readers.push_back(request.get());
    wanted.push_back(limit - request->position);
  }
  const std::vector<uint32_t> given = share_prompt_tokens(budget, wanted, steps_);
  for (size_t i = 0; i < readers.size(); ++i) {
    if (given[i] == 0) continue;
    Request& request = *readers[i];
    const bool last = request.position + given[i] == request.prompt_tokens();
    batch.add(request, std::span<const Token>(request.ask.tokens).subspan(request.position, given[i]),
              last && request.ask.max_tokens > 0);
  }
}

Engine::Batch Engine::compose_batch() {
  Batch batch;
  add_answers(batch);
  add_prompts(batch);
  return batch;
}

bool Engine::decode_step() {
  Batch batch = compose_batch();
  if (batch.items.empty()) return false;
  if (!decode(batch)) decode_one_by_one(batch);
  return true;
}

// False when the model refused the batch as a whole: no slot has changed then.
bool Engine::decode(Batch& batch) {
  const uint64_t begin_ns = ports_.clock.monotonic_ns();
  const Status decoded = ports_.model.decode(batch.items, batch.logits);
  ports_.metrics.add("llamacpp:n_decode_total");
  if (!decoded.ok()) {
    if (batch.items.size() == 1) fail(*batch.owners.front(), decoded.error());
    return batch.items.size() == 1;
  }
  observe(batch, ports_.clock.monotonic_ns() - begin_ns);
  for (size_t i = 0; i < batch.items.size(); ++i)
    advance(*batch.owners[i], batch.items[i].tokens, batch.logits[i]);
  return true;
}

// Steps that also answer say nothing about the speed of reading, but how much a read makes an answer wait.
void Engine::observe(const Batch& batch, uint64_t duration_ns) {
  uint32_t answers = 0;
  uint32_t prompt_tokens = 0;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    if (batch.owners[i]->phase == Phase::answering)
      ++answers;
    else
      prompt_tokens += static_cast<uint32_t>(batch.items[i].tokens.size());
  }
  if (answers > 0) return pacer_.observe(answers, prompt_tokens, duration_ns);
  ports_.tiers.observe_prompt(prompt_tokens, duration_ns);
}

// One request's fault must not end the others: whoever fails alone fails for itself.
void Engine::decode_one_by_one(const Batch& batch) {
  for (size_t i = 0; i < batch.items.size(); ++i) {
    Batch alone{{batch.owners[i]}, {batch.items[i]}, {}};
    decode(alone);
  }
}

void Engine::advance(Request& request, std::span<const Token> tokens, std::span<const float> logits) {
  ports_.tiers.appended(request.placement.slot, tokens);
  request.position += static_cast<uint32_t>(tokens.size());
  if (request.phase == Phase::answering) return choose_token(request, logits);
  const uint64_t now_ns = ports_.clock.monotonic_ns();
  if (request.position == request.prompt_tokens()) return prompt_finished(request, logits);
  if (now_ns - request.progress_ns >= options_.progress_interval_ns) report_progress(request, now_ns);
}

void Engine::report_progress(Request& request, uint64_t now_ns) {
  request.progress_ns = now_ns;
  ports_.events.emit(lines::PromptProgress{request.ask.id, request.position, request.prompt_tokens(),
                                           static_cast<double>(now_ns - request.serving_ns) / 1e6});
}

void Engine::prompt_finished(Request& request, std::span<const float> logits) {
  request.read_end_ns = ports_.clock.monotonic_ns();
  report_progress(request, request.read_end_ns);
  request.phase = Phase::answering;
  if (request.ask.max_tokens == 0) return finish(request, lines::Finish::length);
  choose_token(request, logits);
}

Result<SampledToken> Engine::sample(Request& request, std::span<const float> logits) {
  if (request.constrained == nullptr) return request.sampler.sample(logits);
  STRATA_ASSIGN(const Token token, request.constrained->sample(request.placement.slot));
  return request.sampler.describe(token, logits);
}

void Engine::choose_token(Request& request, std::span<const float> logits) {
  const Result<SampledToken> chosen = sample(request, logits);
  if (!chosen.ok()) return fail(request, chosen.error());
  const RequestId id = request.ask.id;
  if (ports_.model.is_end_of_generation(chosen->token) && !request.ask.ignore_end)
    return finish(request, lines::Finish::stop);
  request.sampler.accept(chosen->token);
  if (request.constrained != nullptr)
    if (const Status moved = request.constrained->accept(chosen->token, true); !moved.ok())
      return fail(request, moved.error());
  request.next = chosen->token;
  ++request.generated;
  ports_.events.emit(lines::TokenLine{id, chosen->token});
  if (request.ask.sampling.logprobs)
    ports_.events.emit(lines::LogProbs{id, chosen->token, chosen->logprob, chosen->top});
  const bool context_full = request.prompt_tokens() + request.generated >= ports_.model.info().context_tokens;
  if (request.generated >= request.ask.max_tokens || context_full) finish(request, lines::Finish::length);
}

void Engine::finish(Request& request, lines::Finish how) {
  const uint64_t now_ns = ports_.clock.monotonic_ns();
  RequestReport report;
  report.id = request.ask.id;
  report.finish = how;
  report.prompt_tokens = request.prompt_tokens();
  report.generated_tokens = request.generated;
  report.placement = request.placement;
  if (request.phase != Phase::placing) {
    report.read_tokens = request.read_tokens();
    const uint64_t read_end_ns = request.phase == Phase::answering ? request.read_end_ns : now_ns;
    report.read_ns = read_end_ns - request.serving_ns;
    report.decode_ns = now_ns - read_end_ns;
  }
  ports_.tiers.finish(request.ask.id);
  request.phase = Phase::ended;
  ports_.events.emit(done_event(report));
  ports_.log.write(LogLevel::info, log_line(report));
  count(ports_.metrics, report);
}

void Engine::fail(Request& request, const Error& error) {
  ports_.tiers.finish(request.ask.id);
  request.phase = Phase::ended;
  ports_.metrics.add("strata_requests_failed_total", fmt::format("code=\"{}\"", to_string(error.code)));
  ports_.log.write(LogLevel::error,
                   fmt::format("strata: request {} failed: {}", request.ask.id, error.message));
  ports_.events.emit(lines::Failed{request.ask.id, error.message});
}

void Engine::drop_ended() {
  const auto ended = [](const RequestRef& request) { return request->phase == Phase::ended; };
  if (std::erase_if(requests_, ended) > 0) publish_gauges();
}

void Engine::publish_gauges() {
  const auto placed =
      std::ranges::count_if(requests_, [](const RequestRef& open) { return open->phase != Phase::placing; });
  ports_.metrics.set("llamacpp:requests_processing", {}, static_cast<double>(placed));
  ports_.metrics.set("llamacpp:requests_deferred", {},
                     static_cast<double>(requests_.size()) - static_cast<double>(placed));
}

std::vector<RequestView> Engine::requests() const {
  std::vector<RequestView> views;
  views.reserve(requests_.size());
  for (const RequestRef& request : requests_) {
    RequestView view{request->ask.id,
                     request->placement.slot,
                     request->prompt_tokens(),
                     request->placement.reused_tokens,
                     0,
                     request->generated};
    if (request->phase != Phase::placing) view.read_tokens = request->read_tokens();
    views.push_back(view);
  }
  return views;
}

}  // namespace strata
