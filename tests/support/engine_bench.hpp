// Everything an Engine needs, scripted and recorded, for tests that step it by hand.
#pragma once

#include <string>
#include <vector>

#include "engine/runtime/engine.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/recording_log.hpp"
#include "tests/support/scripted_model.hpp"
#include "tests/support/scripted_tier_stack.hpp"

namespace strata::testing {

class EngineBenchEvents final : public EventSink {
 public:
  std::vector<lines::Event> events;
  void emit(lines::Event event) override { events.push_back(std::move(event)); }
  void flush() override {}

  template <class E>
  [[nodiscard]] std::vector<E> of() const {
    std::vector<E> found;
    for (const lines::Event& event : events)
      if (const E* wanted = std::get_if<E>(&event)) found.push_back(*wanted);
    return found;
  }
};

[[nodiscard]] inline lines::Generate ask(RequestId id, uint32_t prompt_tokens, uint32_t max_tokens) {
  lines::Generate request;
  request.id = id;
  request.max_tokens = max_tokens;
  for (uint32_t i = 0; i < prompt_tokens; ++i) request.tokens.push_back(static_cast<Token>(i % 500));
  return request;
}

struct EngineBench {
  explicit EngineBench(uint32_t slots = 4, uint32_t context_tokens = 4096, uint32_t vocabulary = 1000)
      : model(slots, context_tokens, vocabulary),
        tiers(model),
        engine({model, tiers, clock, random, log, metrics, events}, {}) {}

  void run_until_done(uint32_t max_steps = 10'000) {
    while (engine.open_requests() > 0 && max_steps-- > 0) engine.step();
  }

  ScriptedModel model;
  ScriptedTierStack tiers;
  FakeClock clock;
  FakeRandom random;
  RecordingLog log;
  Metrics metrics;
  EngineBenchEvents events;
  Engine engine;
};

}  // namespace strata::testing
