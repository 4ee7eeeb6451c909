#include "engine/server/answer_blocks.hpp"

#include <utility>

namespace strata {

// What continues the open call comes before what opens something else.
void BlockSequence::take(const AnswerDelta& delta, BlockWriter& writer) {
  for (const ToolCallDelta& call : delta.tool_calls)
    if (!call.first && is_open_ && blocks_.back().kind == BlockKind::tool_call)
      append(call.arguments, writer);
  if (!delta.reasoning.empty()) add(BlockKind::reasoning, delta.reasoning, writer);
  if (!delta.text.empty()) add(BlockKind::text, delta.text, writer);
  for (const ToolCallDelta& call : delta.tool_calls) {
    if (!call.first) continue;
    open({BlockKind::tool_call, call.id, call.name, {}}, writer);
    append(call.arguments, writer);
  }
}

void BlockSequence::add(BlockKind kind, std::string_view piece, BlockWriter& writer) {
  if (!is_open_ || blocks_.back().kind != kind) open({kind, {}, {}, {}}, writer);
  append(piece, writer);
}

void BlockSequence::open(AnswerBlock block, BlockWriter& writer) {
  finish(writer);
  blocks_.push_back(std::move(block));
  is_open_ = true;
  writer.open(blocks_.size() - 1, blocks_.back());
}

void BlockSequence::append(std::string_view piece, BlockWriter& writer) {
  if (piece.empty()) return;
  blocks_.back().body += piece;
  writer.piece(blocks_.size() - 1, blocks_.back(), piece);
}

void BlockSequence::finish(BlockWriter& writer) {
  if (!std::exchange(is_open_, false)) return;
  writer.close(blocks_.size() - 1, blocks_.back());
}

std::vector<AnswerBlock> blocks_of(const AnswerContent& content) {
  std::vector<AnswerBlock> blocks;
  if (!content.reasoning.empty()) blocks.push_back({BlockKind::reasoning, {}, {}, content.reasoning});
  if (!content.text.empty()) blocks.push_back({BlockKind::text, {}, {}, content.text});
  for (const ToolCall& call : content.tool_calls)
    blocks.push_back({BlockKind::tool_call, call.id, call.name, call.arguments});
  return blocks;
}

}  // namespace strata
