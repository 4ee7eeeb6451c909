// An answer as a row of blocks, one open at a time (reasoning, text, a tool call), for the API families whose
// answers are lists of items. Pieces in, openings, pieces and closings out. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/server/answer.hpp"

namespace strata {

enum class BlockKind : uint8_t { reasoning, text, tool_call };

struct AnswerBlock {
  BlockKind kind = BlockKind::text;
  std::string call_id{};  // tool_call
  std::string name{};     // tool_call
  std::string body{};     // text, or the call's arguments
};

// Says on the wire what happens to the block with that index.
class BlockWriter {
 public:
  virtual ~BlockWriter() = default;
  virtual void open(size_t index, const AnswerBlock& block) = 0;
  virtual void piece(size_t index, const AnswerBlock& block, std::string_view piece) = 0;
  virtual void close(size_t index, const AnswerBlock& block) = 0;
};

class BlockSequence {
 public:
  void take(const AnswerDelta& delta, BlockWriter& writer);
  void finish(BlockWriter& writer);
  [[nodiscard]] const std::vector<AnswerBlock>& blocks() const { return blocks_; }

 private:
  void add(BlockKind kind, std::string_view piece, BlockWriter& writer);
  void open(AnswerBlock block, BlockWriter& writer);
  void append(std::string_view piece, BlockWriter& writer);

  std::vector<AnswerBlock> blocks_;
  bool is_open_ = false;  // the last one
};

[[nodiscard]] std::vector<AnswerBlock> blocks_of(const AnswerContent& content);

}  // namespace strata
