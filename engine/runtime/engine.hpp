// Engine: a step machine over all open requests. Each step moves every transfer, places what can be placed,
// and decodes one batch: the next token of every answering slot and a bounded part of the prompts being read,
// so that a long prompt never stops another slot's tokens, nor makes them wait much longer (PromptPacer). No
// call waits for one request.
//
// The last generated token of an answer is never decoded: the slot then holds prompt + generated − 1 tokens,
// which is a prefix of whatever the next turn's prompt continues the answer with, and costs that turn one
// token of reading. End-of-generation tokens are neither emitted nor counted nor decoded: templates spell
// them differently in a history.
//
// Ownership: the ports outlive the engine. Thread-safety: one thread. Errors: a request that is refused or
// fails gets one Failed event and ends; the others and the model go on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/lines.hpp"
#include "core/log.hpp"
#include "core/metrics.hpp"
#include "core/model.hpp"
#include "core/random.hpp"
#include "core/sampling.hpp"
#include "engine/runtime/event_sink.hpp"
#include "engine/runtime/prompt_pacer.hpp"
#include "tiers/tier_stack.hpp"

namespace strata {

struct EngineOptions {
  uint32_t prompt_tokens_while_answering =
      64;  // at most in one step, over all slots, while somebody waits for a token
  uint32_t prompt_tokens_alone = 256;           // otherwise
  uint64_t progress_interval_ns = 500'000'000;  // between two PP events of one request
};

struct EnginePorts {
  Model& model;
  TierStack& tiers;
  Clock& clock;
  Random& random;  // seeds of requests that name none
  Log& log;
  Metrics& metrics;
  EventSink& events;
};

struct RequestView {  // one open request, for STATUS
  RequestId id = 0;
  SlotId slot = kNoSlot;  // until it is placed
  uint32_t prompt_tokens = 0;
  uint32_t reused_tokens = 0;
  uint32_t read_tokens = 0;
  uint32_t generated_tokens = 0;
};

enum class Pace : uint8_t {
  idle,     // nothing to do until a message arrives
  waiting,  // transfers move by themselves: step again soon
  busy,     // step again at once
};

class Engine {
 public:
  Engine(const EnginePorts& ports, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void generate(lines::Generate ask);
  // At the next step; what was read stays in the slot. Unknown ids are ignored.
  void stop(RequestId id);
  void stop_all();
  Pace step();

  [[nodiscard]] size_t open_requests() const { return requests_.size(); }
  [[nodiscard]] std::vector<RequestView> requests() const;

 private:
  struct Request;
  struct Batch;
  using RequestRef = std::unique_ptr<Request>;

  void refuse(RequestId id, const Error& error);
  bool place(Request& request);
  bool decode_step();
  Batch compose_batch();
  void add_answers(Batch& batch);
  void add_prompts(Batch& batch);
  [[nodiscard]] uint32_t prompt_budget(uint32_t answers) const;
  bool decode(Batch& batch);
  void observe(const Batch& batch, uint64_t duration_ns);
  void decode_one_by_one(const Batch& batch);
  void advance(Request& request, std::span<const Token> tokens, std::span<const float> logits);
  void prompt_finished(Request& request, std::span<const float> logits);
  Result<SampledToken> sample(Request& request, std::span<const float> logits);
  void choose_token(Request& request, std::span<const float> logits);
  void report_progress(Request& request, uint64_t now_ns);
  void finish(Request& request, lines::Finish how);
  void fail(Request& request, const Error& error);
  void drop_ended();
  void publish_gauges();
  [[nodiscard]] bool may_decode(Request& request);

  EnginePorts ports_;
  EngineOptions options_;
  std::vector<RequestRef> requests_;  // in the order of arrival
  PromptPacer pacer_;
  uint64_t steps_ = 0;
};

}  // namespace strata
