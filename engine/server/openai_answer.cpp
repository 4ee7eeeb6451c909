#include "engine/server/openai_answer.hpp"

#include <vector>

namespace strata {
namespace {

const char* finish_reason(const AnswerEnd& end) {
  if (end.cause == StopCause::limit) return "length";
  return end.tool_calls ? "tool_calls" : "stop";
}

// One chunk each for reasoning, text and every call: clients look at one of them at a time.
std::vector<ChunkParts> chunks_of(const AnswerDelta& delta) {
  std::vector<ChunkParts> chunks;
  if (!delta.reasoning.empty()) chunks.emplace_back().reasoning = delta.reasoning;
  if (!delta.text.empty()) chunks.emplace_back().text = delta.text;
  for (const ToolCallDelta& call : delta.tool_calls) chunks.emplace_back().tool_call = &call;
  return chunks;
}

}  // namespace

std::string OpenAiAnswer::chunk(const ChunkParts& parts) const { return sse_data(chunk_body(head_, parts)); }

std::string OpenAiAnswer::start(const Usage&) {
  if (!head_.chat) return {};
  ChunkParts first;
  first.role = true;
  return chunk(first);
}

std::string OpenAiAnswer::progress(const Progress& progress) {
  ChunkParts parts;
  parts.progress = &progress;
  return chunk(parts);
}

std::string OpenAiAnswer::step(const AnswerStep& step) {
  std::vector<ChunkParts> chunks = chunks_of(step.delta);
  if (chunks.empty()) return {};
  if (step.has_logprobs) chunks.back().logprobs = &step.logprobs;
  chunks.back().timings = step.timings;
  std::string bytes;
  for (const ChunkParts& parts : chunks) bytes += chunk(parts);
  return bytes;
}

std::string OpenAiAnswer::end(const AnswerEnd& end) {
  ChunkParts last;
  last.finish_reason = finish_reason(end);
  if (end.has_logprobs && !end.logprobs.empty()) last.logprobs = &end.logprobs;
  if (!include_usage_) last.timings = &end.timings;
  std::string bytes = chunk(last);
  if (include_usage_) bytes += sse_data(usage_chunk(head_, end.usage, end.timings));
  return bytes + "data: [DONE]\n\n";
}

// Without [DONE], so that no client takes the part for the whole.
std::string OpenAiAnswer::failure(const ApiError& error) { return sse_data(to_json(error)); }

std::string OpenAiAnswer::whole(const AnswerContent& content, const AnswerEnd& end) {
  return whole_body(head_, content, finish_reason(end), end.has_logprobs ? &end.logprobs : nullptr, end.usage,
                    end.timings);
}

}  // namespace strata
