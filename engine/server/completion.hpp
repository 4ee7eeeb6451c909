// One completion from the engine's first event to the last byte of its HTTP answer: tokens become text (whole
// characters, stop strings), text becomes content, reasoning and tool calls, and those one body or a stream
// in the form of the request's API family. A stream's status line is held back until the engine has begun
// with the request, so that a refusal still has its own status. Ownership: shared by the supervisor and the
// exchange; model and clock must outlive it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/model.hpp"
#include "engine/server/answer.hpp"
#include "engine/server/answer_reader.hpp"
#include "engine/server/api_request.hpp"
#include "engine/server/http_message.hpp"
#include "engine/server/prompt_builder.hpp"
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
    std::function<std::string()> new_call_id;
  };
  struct Plan {
    std::unique_ptr<AnswerFormat> format;
    std::vector<std::string> model_stops;  // of the chat format; the request has its own
    std::optional<std::string> parser;     // of the chat format
    uint32_t prompt_tokens = 0;
    uint32_t max_tokens = 0;
    uint64_t ping_ns = 0;
  };
  Completion(Ports ports, CompletionRequest request, Plan plan);

  void on_resume(const lines::Resume& event) override;
  void on_progress(const lines::PromptProgress& event) override;
  void on_token(const lines::TokenLine& event) override;
  void on_logprobs(const lines::LogProbs& event) override;
  void on_done(const lines::Done& event) override;
  void on_refused(const std::string& reason) override;
  void on_lost(const ApiError& error) override;

  void tick(uint64_t now_ns);  // a sign of life when the stream was silent for ping_ns
  void client_gone();

  [[nodiscard]] uint32_t decoded() const { return tokens_; }
  [[nodiscard]] uint32_t max_tokens() const { return plan_.max_tokens; }
  [[nodiscard]] const lines::SamplingParams& sampling() const { return request_.sampling; }

 private:
  void begin();  // status line and what the format starts with
  void send(const std::string& bytes);
  void append(Token token);
  void emit_text(const std::string& text);
  void emit(AnswerDelta delta);
  void fail(const ApiError& error);
  void finish(const lines::Done& done);
  [[nodiscard]] AnswerEnd end_of(const lines::Done& done);
  [[nodiscard]] Timings live_timings() const;
  [[nodiscard]] std::string bytes_of(Token token) const;
  [[nodiscard]] TokenText token_text(Token token, double logprob) const;
  [[nodiscard]] bool wants_logprobs() const { return request_.sampling.logprobs.has_value(); }

  Ports ports_;
  Plan plan_;
  CompletionRequest request_;  // without its prompt

  Utf8Stream characters_;
  StopMatcher stops_;
  AnswerReader reader_;
  size_t text_bytes_ = 0;
  std::vector<TokenLogprob> logprobs_;  // not given out yet
  std::vector<Token> new_tokens_;       // not given out yet
  uint32_t tokens_ = 0;
  lines::Resume resume_;
  uint64_t first_token_ns_ = 0;
  double prompt_ms_ = 0;
  uint64_t last_write_ns_;
  bool streaming_ = false;
  bool started_ = false;
  bool stopped_ = false;  // by a stop string
  bool ended_ = false;
};

}  // namespace strata
