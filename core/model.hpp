// Port: a language model with slots, and its state as blocks and checkpoints.
//
// Vocabulary: a *block* is the K/V bytes of tokens [first, first+count) of one stage, first a multiple of
// tokens_per_block; a *checkpoint* is the state of one stage that exists only at one position (recurrent
// state, sliding window). A model without blocks (state_in_blocks false) has one checkpoint per stage holding
// everything.
//
// Contract, held by tests/conformance/model_*:
//  - export → import into another slot, another instance and another process gives bit-equal logits for the
//  next
//    token where exact_import is set;
//  - import is staged: with staged_import the slot is untouched until import_commit, and import_abort leaves
//  it
//    bit-equal; one import per slot, several slots may import at once up to staged_imports;
//  - truncate(n) then continue equals never having read more; refused (unsupported) when the state cannot be
//  cut there;
//  - wrong size, stage or position is an error, never a partial import;
//  - the bytes of a block are stable until the slot changes below first+count.
// Copies that export_* and import_* queue run on `stream`: the caller records an event and waits for it
// before it reads exported bytes, frees import sources, commits the import, or lets the slot change below the
// exported range. Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "core/result.hpp"
#include "core/types.hpp"

namespace strata {

struct ModelInfo {
  std::string name;           // for people: "reference attention 1.2M"
  std::string state_version;  // part of the identity: changes when exported bytes mean something else
  uint32_t stages = 1;
  uint32_t slots = 1;
  uint32_t context_tokens = 0;  // per slot
  uint32_t vocabulary = 0;
  uint32_t tokens_per_block = 0;
  uint64_t parameters = 0;
  uint64_t weight_bytes = 0;
  std::vector<uint64_t> max_block_bytes;   // per stage, of a full block
  std::vector<uint64_t> checkpoint_bytes;  // per stage, at most; 0: none
  uint32_t staged_imports = 1;             // imports that may be open at once
  bool can_truncate = false;               // to any position
  bool needs_checkpoints = false;          // a position can be resumed only where a checkpoint exists
  bool state_in_blocks = true;
  bool staged_import = true;
  bool exact_import = true;
  bool chat = false;      // chat_format / chat_parse work
  bool sampling = false;  // make_sampler works
  bool tokenizer = true;
};

// One field of the configuration identity (ID-2): typed by the caller, length-prefixed when digested.
struct IdentityField {
  std::string name;
  std::string value;
  bool operator==(const IdentityField&) const = default;
};
// One file whose content is part of the model identity (ID-1).
struct ModelFile {
  std::string role;
  std::string path;
};

struct ChatMessage {
  std::string role;
  std::string content;
};

struct BatchItem {
  SlotId slot = 0;
  uint32_t position = 0;  // = length(slot)
  std::span<const Token> tokens;
  bool want_logits = false;  // of the last token
};

// A chat request made ready for the model (models with `chat`).
struct ChatPrompt {
  std::string prompt;              // text, to be tokenized with parse_special
  std::vector<std::string> stops;  // further stop strings
  std::string grammar;             // constrains the answer; empty: none. For make_sampler's parameters
  bool grammar_lazy = false;       // applies only after a trigger
  std::string parser;              // opaque; goes back into chat_parse
};

// A model's own sampler for one request (models with `sampling`): what core's cannot do, grammars above all.
// Dies before its model. One thread at a time, the model's.
class ModelSampler {
 public:
  virtual ~ModelSampler() = default;
  // From the logits that the last decode gave this slot.
  virtual Result<Token> sample(SlotId slot) = 0;
  // A token that stands in the conversation now; generated: it was sampled here, so a grammar moves with it.
  virtual Status accept(Token token, bool generated) = 0;
};

using ImportId = uint64_t;

class Model {
 public:
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelInfo& info() const = 0;
  virtual Result<std::vector<IdentityField>> identity_fields() = 0;
  virtual Result<std::vector<ModelFile>> files() = 0;

  virtual Result<std::vector<Token>> tokenize(std::string_view text, bool add_special,
                                              bool parse_special) = 0;
  virtual Result<std::string> detokenize(
      std::span<const Token> tokens) = 0;  // bytes; may end inside a UTF-8 character
  [[nodiscard]] virtual bool is_end_of_generation(Token token) const = 0;
  // The model's chat template as text for /props, and messages → prompt text ending where the assistant's
  // answer begins.
  [[nodiscard]] virtual std::string chat_template() const = 0;
  virtual Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                                  bool add_generation_prompt) = 0;

  // info().chat: `request_json` has OpenAI's chat.completions form (messages, tools, tool_choice,
  // response_format …). unsupported without chat; invalid: what the template or the request is missing, in
  // words for the client.
  virtual Result<ChatPrompt> chat_format(const std::string& request_json);
  // The answer's text so far → message JSON {"role","content","reasoning_content","tool_calls":[…]}. `final`:
  // it ended.
  virtual Result<std::string> chat_parse(const std::string& parser, std::string_view text, bool final);

  // info().sampling: `params_json` has the keys of GEN (docs/engine-protocol.md), logit_bias [[token, bias]],
  // and grammar, which is ChatPrompt::grammar or a grammar's own text. unsupported without sampling; invalid:
  // the grammar is none.
  virtual Result<std::unique_ptr<ModelSampler>> make_sampler(const std::string& params_json);

  // Appends tokens to slots. logits[i] is for batch[i]: vocabulary floats borrowed until the next decode,
  // empty unless want_logits. On an error no slot has changed.
  virtual Status decode(std::span<const BatchItem> batch, std::vector<std::span<const float>>& logits) = 0;
  [[nodiscard]] virtual uint32_t length(SlotId slot) const = 0;
  virtual Status truncate(SlotId slot, uint32_t tokens) = 0;
  virtual Status clear(SlotId slot) = 0;

  // Bytes a block of `count` tokens occupies.
  [[nodiscard]] virtual uint64_t block_bytes(StageId stage, uint32_t count) const = 0;
  virtual Status export_block(SlotId slot, StageId stage, uint32_t first, uint32_t count,
                              std::span<std::byte> to,
                              DeviceStream stream) = 0;  // to.size() == block_bytes(stage, count)
  // State at the slot's current length; returns the bytes used.
  virtual Result<uint64_t> export_checkpoint(SlotId slot, StageId stage, std::span<std::byte> to,
                                             DeviceStream stream) = 0;

  // `tokens`: all tokens the slot will hold after the commit.
  virtual Result<ImportId> import_begin(SlotId slot, std::span<const Token> tokens) = 0;
  // A block may reach past the import's tokens: only its leading tokens are taken.
  virtual Status import_block(ImportId import, StageId stage, uint32_t first, uint32_t count,
                              std::span<const std::byte> from, DeviceStream stream) = 0;
  virtual Status import_checkpoint(ImportId import, StageId stage, uint32_t position,
                                   std::span<const std::byte> from, DeviceStream stream) = 0;
  virtual Status import_commit(
      ImportId import) = 0;  // invalid when a part is missing; the import is then aborted
  virtual void import_abort(ImportId import) = 0;
};

}  // namespace strata
