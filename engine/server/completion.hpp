// One completion from the engine's first event to the last byte of its HTTP answer: tokens become text (whole
// characters, stop strings), text becomes one body or a stream of chunks. A stream's status line is held back
// until the engine has begun with the request, so that a refusal still has its own status. Ownership: shared
// by the supervisor and the exchange; model and clock must outlive it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/model.hpp"
#include "engine/server/api_request.hpp"
#include "engine/server/completion_body.hpp"
#include "engine/server/http_message.hpp"
#include "engine/server/stop_matcher.hpp"
#include "engine/server/supervisor.hpp"
#include "engine/server/utf8.hpp"

namespace strata {

class Completion final : public RequestSink {
 public:
  struct Ports {
    Model& model;
    Clock& clock;
    std::shared_ptr<Exchange> exchange;
    std::function<void()> stop;  // asks the engine to end the request
  };
  Completion(Ports ports, const CompletionRequest& request, CompletionHead head, uint32_t prompt_tokens,
             uint32_t max_tokens, uint64_t ping_ns);

  void on_resume(const lines::Resume& event) override;
  void on_progress(const lines::PromptProgress& event) override;
  void on_token(const lines::TokenLine& event) override;
  void on_logprobs(const lines::LogProbs& event) override;
  void on_done(const lines::Done& event) override;
  void on_refused(const std::string& reason) override;
  void on_lost(const ApiError& error) override;

  void tick(uint64_t now_ns);  // a comment line when the stream was silent for ping_ns
  void client_gone();

  [[nodiscard]] uint32_t decoded() const { return tokens_; }
  [[nodiscard]] uint32_t max_tokens() const { return max_tokens_; }
  [[nodiscard]] const lines::SamplingParams& sampling() const { return sampling_; }

 private:
  void begin();  // status line and role chunk
  void send(const ChunkParts& parts);
  void send_event(std::string_view json);
  void append(Token token);
  void emit_text(const std::string& text);
  void fail(const ApiError& error);
  void finish(const lines::Done& done);
  [[nodiscard]] Timings live_timings() const;
  [[nodiscard]] std::string bytes_of(Token token) const;
  [[nodiscard]] bool wants_logprobs() const { return sampling_.logprobs.has_value(); }

  Ports ports_;
  CompletionHead head_;
  lines::SamplingParams sampling_;
  bool stream_, include_usage_, return_progress_, timings_per_token_, ignore_eos_;
  uint32_t prompt_tokens_, max_tokens_;
  uint64_t ping_ns_;

  Utf8Stream characters_;
  StopMatcher stops_;
  std::string text_;  // given out so far (a stream counts it only)
  size_t text_bytes_ = 0;
  std::vector<TokenLogprob> logprobs_;  // not given out yet
  uint32_t tokens_ = 0;
  lines::Resume resume_;
  uint64_t first_token_ns_ = 0;
  double prompt_ms_ = 0;
  uint64_t last_write_ns_;
  bool streaming_ = false;
  bool role_sent_ = false;
  bool stopped_ = false;  // by a stop string
  bool ended_ = false;
};

}  // namespace strata
