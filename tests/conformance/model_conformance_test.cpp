// The contract of the Model port (core/model.hpp), for every model plugin, layout, device and decorator.
// "Equal" always means every bit of the logits: equal tokens prove nothing on a small model. Controls leave a
// part out, or put a wrong one in, and must fail or differ. Covers RAM-2, RAM-3, RAM-6, B-4, DISK-11 at the
// port, and invariants 1 and 5 of the architecture.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>

#include "tests/support/model_world.hpp"
#include "tests/support/temporary_folder.hpp"

extern char** environ;

namespace strata::testing {
namespace {

struct ModelCase {
  std::string name;
  ModelWorldOptions options;
  // Logits do not depend on how tokens are grouped into batches. Where they do, whoever compares decodes
  // alike.
  bool batch_invariant = true;
  // Bytes that do not belong to the import's tokens are refused, instead of giving another answer.
  bool checks_imports = false;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

std::vector<ModelCase> cases() {
  std::vector<ModelCase> all;
  const auto add = [&](const char* layout, uint32_t stages, const char* state, TestDevice device,
                       bool faulty) {
    ModelCase c;
    c.options.model = tiny_reference(layout, stages, state);
    c.options.device = device;
    c.options.through_faulty = faulty;
    c.name = std::string("reference_") + layout + (stages == 1 ? "_one_stage_" : "_two_stages_") + state +
             (device == TestDevice::host ? "_host" : "_plain") + (faulty ? "_faulty" : "");
    all.push_back(c);
  };
  for (const char* layout : {"attention", "sliding", "hybrid"}) {
    for (const uint32_t stages : {1U, 2U}) {
      for (const char* state : {"blocks", "whole"}) add(layout, stages, state, TestDevice::host, false);
      add(layout, stages, "blocks", TestDevice::plain, false);
    }
    add(layout, 2, "blocks", TestDevice::host, true);
  }
  for (const uint32_t stages : {1U, 2U}) {
    for (const SyntheticState state :
         {SyntheticState::blocks, SyntheticState::checkpoints, SyntheticState::whole}) {
      ModelCase c;
      c.options = tiny_synthetic(stages, state);
      c.checks_imports = true;
      c.name = std::string("synthetic_") + (stages == 1 ? "one_stage_" : "two_stages_") + to_string(state);
      all.push_back(c);
    }
  }
  for (const std::string& file : llama_models().files) {
    for (const char* granularity : {"auto", "whole"}) {
      ModelCase c;
      c.options = tiny_llama(file, granularity);
      c.batch_invariant = false;
      const size_t slash = file.rfind('/') + 1;
      c.name = "llama_" + file.substr(slash, file.rfind('.') - slash) + "_" + granularity;
      std::ranges::replace(c.name, '-', '_');
      all.push_back(c);
    }
  }
  return all;
}

// One line where a whole family of cases is missing.
TEST(ModelConformanceCases, LlamaCppAndItsTinyModelsAreThere) {
  if (!llama_models().why_not.empty()) GTEST_SKIP() << llama_models().why_not;
  EXPECT_GE(llama_models().files.size(), 10U);
}

constexpr uint32_t kPrompt = 150;    // crosses blocks, windows and the model's own passes
constexpr uint32_t kContinued = 20;  // tokens compared after a restore

class ModelConformance : public ::testing::TestWithParam<ModelCase> {
 protected:
  // What a conversation that was never parked says while it reads on.
  Trace never_parked(std::span<const Token> prompt, std::span<const Token> more) {
    ModelWorld other(GetParam().options);
    other.read(0, prompt);
    return other.step(0, more);
  }
  void expect_code(const Status& status, ErrorCode code) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, code) << status.error().message;
    EXPECT_FALSE(status.error().message.empty());
  }

  ModelWorld world_{GetParam().options};
  Model& model_ = world_.model();
  const ModelInfo info_ = model_.info();
  const std::vector<Token> prompt_ = some_tokens(1, kPrompt);
  const std::vector<Token> other_ = some_tokens(2, kPrompt);
  const std::vector<Token> more_ = some_tokens(3, kContinued);
};

INSTANTIATE_TEST_SUITE_P(Models, ModelConformance, ::testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(ModelConformance, InfoAgreesWithItself) {
  ASSERT_EQ(info_.max_block_bytes.size(), info_.stages);
  ASSERT_EQ(info_.checkpoint_bytes.size(), info_.stages);
  EXPECT_FALSE(info_.name.empty());
  EXPECT_FALSE(info_.state_version.empty());
  for (StageId stage = 0; stage < info_.stages; ++stage) {
    if (info_.state_in_blocks) {
      EXPECT_EQ(model_.block_bytes(stage, info_.tokens_per_block), info_.max_block_bytes[stage]);
      EXPECT_LT(model_.block_bytes(stage, 1), info_.max_block_bytes[stage]);
    }
    EXPECT_EQ(info_.checkpoint_bytes[stage] != 0, info_.needs_checkpoints);
  }
  for (SlotId slot = 0; slot < static_cast<SlotId>(info_.slots); ++slot) EXPECT_EQ(model_.length(slot), 0U);
}

TEST_P(ModelConformance, ChunksDoNotChangeLogits) {
  if (!GetParam().batch_invariant) GTEST_SKIP() << "kernels that depend on the batch's shape";
  const Trace steps = world_.step(0, prompt_);
  for (const uint32_t chunk : {2U, 7U, 16U, 64U, 129U, kPrompt}) {
    ASSERT_TRUE(model_.clear(0).ok());
    const Trace trace = world_.read(0, prompt_, chunk);
    for (size_t i = 0; i < trace.size(); ++i) {
      const size_t last = std::min<size_t>((i + 1) * chunk, kPrompt) - 1;
      EXPECT_TRUE(equal_bits({trace[i]}, {steps[last]})) << "chunks of " << chunk << ", token " << last;
    }
  }
}

TEST_P(ModelConformance, NeighboursInTheBatchDoNotChangeLogits) {
  if (!GetParam().batch_invariant) GTEST_SKIP() << "kernels that depend on the batch's shape";
  const Trace alone = world_.step(0, prompt_);
  ASSERT_TRUE(model_.clear(0).ok());
  const std::vector<Token> third = some_tokens(9, kPrompt);
  const std::span<const Token> prompts[] = {prompt_, other_, third};
  std::vector<std::span<const float>> logits;
  for (uint32_t at = 0; at < kPrompt; at += 30) {  // the others read at other lengths and in changing order
    std::vector<BatchItem> batch;
    for (uint32_t i = 0; i < 3; ++i) {
      const uint32_t which = (i + at / 30) % 3;
      const uint32_t count = which == 0 ? 30 : 10 + which;
      const uint32_t from = model_.length(static_cast<SlotId>(which));
      batch.push_back({static_cast<SlotId>(which), from, prompts[which].subspan(from, count), which != 1});
    }
    ASSERT_TRUE(model_.decode(batch, logits).ok());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(logits[i].empty(), !batch[i].want_logits);
      if (batch[i].slot != 0) continue;
      EXPECT_TRUE(equal_bits({{logits[i].begin(), logits[i].end()}}, {alone[at + 29]}))
          << "token " << at + 29;
    }
  }
}

TEST_P(ModelConformance, RestoredIntoAnotherSlotTheAnswerIsEqual) {
  world_.read(0, prompt_);
  world_.read(1, other_);
  const StoredState state = world_.store(0, prompt_);
  const Trace expected = world_.step(0, more_);
  ASSERT_TRUE(world_.restore(1, state).ok());
  EXPECT_EQ(model_.length(1), kPrompt);
  EXPECT_TRUE(equal_bits(world_.step(1, more_), expected));
}

TEST_P(ModelConformance, RestoredIntoItsOwnSlotTheAnswerIsEqual) {
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  const Trace expected = world_.step(0, more_);
  ASSERT_TRUE(world_.restore(0, state).ok());
  EXPECT_TRUE(equal_bits(world_.step(0, more_), expected));
}

TEST_P(ModelConformance, RestoredIntoAnotherInstanceTheAnswerIsEqual) {
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  ModelWorldOptions options = GetParam().options;
  options.device_seed = 77;
  ModelWorld second(options);
  second.read(2, other_);
  ASSERT_TRUE(second.restore(2, state).ok());
  EXPECT_TRUE(equal_bits(second.step(2, more_), never_parked(prompt_, more_)));
}

// A world for each length: llama.cpp adds up attention in the order of cells, and once a sliding window's
// cache has gone round that order depends on everything read before.
TEST_P(ModelConformance, RestoredAtEveryEdgeTheAnswerIsEqual) {
  for (const uint32_t length : {1U, 2U, 15U, 16U, 17U, 22U, 23U, 24U, 25U, 47U, 48U, 127U, 128U, 129U}) {
    const std::span<const Token> prompt = std::span(prompt_).first(length);
    ModelWorld world(GetParam().options);
    world.read(0, prompt);
    const StoredState state = world.store(0, prompt);
    const Trace expected = world.step(0, more_);
    ASSERT_TRUE(world.restore(1, state).ok()) << length;
    EXPECT_TRUE(equal_bits(world.step(1, more_), expected)) << length;
  }
}

TEST_P(ModelConformance, RestoredInAnotherProcessTheAnswerIsEqual) {
  world_.read(0, prompt_);
  const TemporaryFolder folder;
  const std::string stored = folder.path() + "/state";
  const std::string answer = folder.path() + "/answer";
  ASSERT_TRUE(write_state(stored, world_.store(0, prompt_)));
  std::vector<std::string> arguments = {STRATA_MODEL_RESUME, stored, answer, std::to_string(kContinued)};
  arguments.push_back("plugin=" + GetParam().options.plugin);
  if (!GetParam().options.plugin_file.empty())
    arguments.push_back("plugin_file=" + GetParam().options.plugin_file);
  for (const auto& [key, value] : GetParam().options.model) arguments.push_back(key + "=" + value);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  ASSERT_EQ(::posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Trace trace;
  ASSERT_TRUE(read_trace(answer, trace));
  EXPECT_TRUE(equal_bits(trace, world_.step(0, some_tokens(3, kContinued))));
}

TEST_P(ModelConformance, WithoutOnePartAnImportIsRefused_B4) {
  world_.read(0, prompt_);
  world_.read(1, other_);
  const StoredState state = world_.store(0, prompt_);
  std::vector<std::pair<StageId, int>> parts;  // −1: the checkpoint
  for (StageId stage = 0; stage < info_.stages; ++stage) {
    for (size_t i = 0; i < state.blocks[stage].size(); ++i) parts.emplace_back(stage, static_cast<int>(i));
    if (info_.needs_checkpoints) parts.emplace_back(stage, -1);
  }
  for (const auto& missing : parts) {
    const Result<ImportId> import = world_.begin(1, state);
    ASSERT_TRUE(import.ok()) << import.error().message;
    for (const auto& [stage, part] : parts) {
      if (std::pair(stage, part) == missing) continue;
      const Status added = part < 0 ? world_.add_checkpoint(*import, stage, state)
                                    : world_.add_block(*import, stage, static_cast<uint32_t>(part), state);
      ASSERT_TRUE(added.ok()) << added.error().message;
    }
    world_.finish();
    expect_code(model_.import_commit(*import), ErrorCode::invalid);
    expect_code(model_.import_commit(*import), ErrorCode::invalid);  // it was aborted
  }
  EXPECT_EQ(model_.length(1), kPrompt);
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(other_, more_)));
}

TEST_P(ModelConformance, WithoutAWholeStageAnImportIsRefused_DISK11) {
  if (info_.stages == 1) GTEST_SKIP() << "one stage";
  world_.read(0, prompt_);
  StoredState state = world_.store(0, prompt_);
  state.blocks.back().clear();
  if (!state.checkpoints.empty()) state.checkpoints.pop_back();
  expect_code(world_.restore(1, state), ErrorCode::invalid);
  EXPECT_EQ(model_.length(1), 0U);
}

// The control of every comparison above: each part of the state takes part in the answer.
TEST_P(ModelConformance, WithOnePartOfAnotherConversationTheAnswerDiffers) {
  if (GetParam().checks_imports) GTEST_SKIP() << "such an import is refused: the next test";
  world_.read(0, prompt_);
  world_.read(1, other_);
  const StoredState state = world_.store(0, prompt_);
  const StoredState wrong = world_.store(1, other_);
  const Trace expected = world_.step(0, more_);
  for (StageId stage = 0; stage < info_.stages; ++stage) {
    for (size_t i = 0; i < state.blocks[stage].size(); ++i) {
      if (wrong.blocks[stage][i] == state.blocks[stage][i])
        continue;  // positions only: no layer keeps all tokens
      StoredState mixed = state;
      mixed.blocks[stage][i] = wrong.blocks[stage][i];
      ASSERT_TRUE(world_.restore(2, mixed).ok());
      EXPECT_FALSE(equal_bits(world_.step(2, more_), expected)) << "stage " << stage << ", block " << i;
    }
    if (!info_.needs_checkpoints) continue;
    StoredState mixed = state;
    mixed.checkpoints[stage] = wrong.checkpoints[stage];
    ASSERT_TRUE(world_.restore(2, mixed).ok());
    EXPECT_FALSE(equal_bits(world_.step(2, more_), expected)) << "stage " << stage << ", checkpoint";
  }
}

TEST_P(ModelConformance, AModelThatChecksImportsRefusesEachWrongByte_B4) {
  if (!GetParam().checks_imports) GTEST_SKIP() << "it takes the bytes as they are";
  world_.read(0, prompt_);
  world_.read(1, other_);
  const StoredState state = world_.store(0, prompt_);
  const auto with_wrong_byte = [&](std::vector<std::byte>& part, const StoredState& mixed) {
    for (const size_t at : {size_t{0}, part.size() / 2, part.size() - 1}) {
      part[at] ^= std::byte{1};
      const Result<ImportId> import = world_.begin(1, mixed);
      ASSERT_TRUE(import.ok());
      expect_code(world_.add_parts(*import, mixed), ErrorCode::corrupt);
      model_.import_abort(*import);
      part[at] ^= std::byte{1};
    }
  };
  StoredState mixed = state;
  for (StageId stage = 0; stage < info_.stages; ++stage) {
    for (auto& block : mixed.blocks[stage]) with_wrong_byte(block, mixed);
    if (info_.needs_checkpoints) with_wrong_byte(mixed.checkpoints[stage], mixed);
  }
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(other_, more_)));
  ASSERT_TRUE(world_.restore(1, mixed).ok());  // the control: nothing is wrong any more
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(prompt_, more_)));
}

TEST_P(ModelConformance, AnAbortedImportLeavesTheSlotEqual_SES3) {
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  world_.read(1, other_);
  const Result<ImportId> import = world_.begin(1, state);
  ASSERT_TRUE(import.ok());
  ASSERT_TRUE(world_.add_parts(*import, state).ok());
  if (info_.staged_import) {
    EXPECT_EQ(model_.length(1), kPrompt);
  }
  model_.import_abort(*import);  // while its copies may still be under way
  const Result<ImportId> next = world_.begin(2, state);
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(world_.add_parts(*next, state).ok());
  world_.finish();
  ASSERT_TRUE(model_.import_commit(*next).ok());
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(other_, more_)));
  EXPECT_TRUE(equal_bits(world_.step(2, more_), never_parked(prompt_, more_)));
}

TEST_P(ModelConformance, TruncatedTheSlotIsAsIfItHadNeverReadMore) {
  const std::span<const Token> prompt = prompt_;
  world_.read(0, prompt);
  for (const uint32_t kept : {120U, 64U, 37U, 1U}) {
    const uint32_t before = model_.length(0);
    const Status status = model_.truncate(0, kept);
    if (!status.ok()) {  // a state that cannot be cut anywhere may still be cut where nothing is lost yet
      EXPECT_FALSE(info_.can_truncate);
      expect_code(status, ErrorCode::unsupported);
      EXPECT_EQ(model_.length(0), before);
      continue;
    }
    EXPECT_EQ(model_.length(0), kept);
    EXPECT_TRUE(equal_bits(world_.step(0, more_), never_parked(prompt.first(kept), more_))) << kept;
    ASSERT_TRUE(model_.truncate(0, kept).ok());
  }
  const uint32_t length = model_.length(0);
  ASSERT_TRUE(model_.truncate(0, length).ok());  // nothing to cut: works for every model
  expect_code(model_.truncate(0, length + 1), ErrorCode::invalid);
  EXPECT_EQ(model_.length(0), length);
  if (length == prompt.size()) {
    EXPECT_TRUE(equal_bits(world_.step(0, more_), never_parked(prompt, more_)));
  }
}

TEST_P(ModelConformance, ClearedTheSlotIsFresh) {
  world_.read(0, other_);
  ASSERT_TRUE(model_.clear(0).ok());
  EXPECT_EQ(model_.length(0), 0U);
  world_.read(0, prompt_);
  EXPECT_TRUE(equal_bits(world_.step(0, more_), never_parked(prompt_, more_)));
}

TEST_P(ModelConformance, OfALongerBlockOnlyTheLeadingTokensAreTaken_B2) {
  if (!info_.state_in_blocks) GTEST_SKIP() << "no blocks";
  constexpr uint32_t kUsed = 101;  // five tokens into the seventh block
  const std::span<const Token> used = std::span(prompt_).first(kUsed);
  world_.read(0, used);
  StoredState state = world_.store(0, used);
  world_.read(0, std::span(prompt_).subspan(kUsed));
  const uint32_t last = world_.block_count(kUsed) - 1;
  const uint32_t size = info_.tokens_per_block;
  const Result<ImportId> import = world_.begin(1, state);
  ASSERT_TRUE(import.ok());
  for (StageId stage = 0; stage < info_.stages; ++stage) {
    for (uint32_t i = 0; i < last; ++i) ASSERT_TRUE(world_.add_block(*import, stage, i, state).ok());
    const std::vector<std::byte> longer = world_.store_block(0, stage, last * size, size);
    ASSERT_TRUE(model_.import_block(*import, stage, last * size, size, longer, world_.stream()).ok());
    if (info_.needs_checkpoints) {
      ASSERT_TRUE(world_.add_checkpoint(*import, stage, state).ok());
    }
    world_.finish();
  }
  ASSERT_TRUE(model_.import_commit(*import).ok());
  EXPECT_EQ(model_.length(1), kUsed);
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(used, more_)));
}

TEST_P(ModelConformance, ABlockWithTooFewTokensDoesNotComplete) {
  if (!info_.state_in_blocks) GTEST_SKIP() << "no blocks";
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  const Result<ImportId> import = world_.begin(1, state);
  ASSERT_TRUE(import.ok());
  ASSERT_TRUE(world_.add_parts(*import, state).ok());
  const std::vector<std::byte> part = world_.store_block(0, 0, 0, 5);
  ASSERT_TRUE(
      model_.import_block(*import, 0, 0, 5, part, world_.stream()).ok());  // takes the whole one's place
  world_.finish();
  expect_code(model_.import_commit(*import), ErrorCode::invalid);
}

TEST_P(ModelConformance, AWrongPartIsAnErrorAndTheImportGoesOn) {
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  const Result<ImportId> import = world_.begin(1, state);
  ASSERT_TRUE(import.ok());
  const auto stages = static_cast<StageId>(info_.stages);
  if (info_.state_in_blocks) {
    const uint32_t size = info_.tokens_per_block;
    const std::span<const std::byte> bytes = state.blocks[0][0];
    const auto block = [&](StageId stage, uint32_t first, uint32_t count, std::span<const std::byte> from) {
      return model_.import_block(*import, stage, first, count, from, world_.stream());
    };
    expect_code(block(0, 0, size, bytes.first(bytes.size() - 1)), ErrorCode::invalid);
    expect_code(block(0, 0, size, {}), ErrorCode::invalid);
    expect_code(block(0, 0, size - 1, bytes), ErrorCode::invalid);
    expect_code(block(0, 1, size, bytes), ErrorCode::invalid);
    expect_code(block(0, 0, 0, {}), ErrorCode::invalid);
    expect_code(block(0, 0, 2 * size, bytes), ErrorCode::invalid);
    expect_code(block(stages, 0, size, bytes), ErrorCode::invalid);
    expect_code(block(0, world_.block_count(kPrompt) * size, size, bytes), ErrorCode::invalid);
    expect_code(block(0, UINT32_MAX / size * size, size, bytes), ErrorCode::invalid);
    expect_code(model_.import_block(*import + 100, 0, 0, size, bytes, world_.stream()), ErrorCode::invalid);
  }
  if (info_.needs_checkpoints) {
    const std::span<const std::byte> bytes = state.checkpoints[0];
    const auto checkpoint = [&](StageId stage, uint32_t position, std::span<const std::byte> from) {
      return model_.import_checkpoint(*import, stage, position, from, world_.stream());
    };
    expect_code(checkpoint(0, kPrompt - 1, bytes), ErrorCode::invalid);
    expect_code(checkpoint(0, kPrompt + 1, bytes), ErrorCode::invalid);
    expect_code(checkpoint(0, kPrompt, bytes.first(bytes.size() - 4)), ErrorCode::invalid);
    expect_code(checkpoint(0, kPrompt, {}), ErrorCode::invalid);
    expect_code(checkpoint(stages, kPrompt, bytes), ErrorCode::invalid);
  } else {
    expect_code(model_.import_checkpoint(*import, 0, kPrompt, {}, world_.stream()), ErrorCode::unsupported);
  }
  ASSERT_TRUE(world_.add_parts(*import, state).ok());
  world_.finish();
  ASSERT_TRUE(model_.import_commit(*import).ok());
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(prompt_, more_)));
}

TEST_P(ModelConformance, AWrongExportIsAnErrorAndWritesNothing) {
  world_.read(0, prompt_);
  const auto stages = static_cast<StageId>(info_.stages);
  const auto slots = static_cast<SlotId>(info_.slots);
  const std::byte untouched{0xab};
  std::vector<std::byte> room(std::max(info_.max_block_bytes[0], info_.checkpoint_bytes[0]) + 64, untouched);
  const uint32_t size = info_.tokens_per_block;
  const auto block = [&](SlotId slot, StageId stage, uint32_t first, uint32_t count, uint64_t bytes) {
    return model_.export_block(slot, stage, first, count, std::span(room).first(bytes), world_.stream());
  };
  if (info_.state_in_blocks) {
    const uint64_t bytes = model_.block_bytes(0, size);
    expect_code(block(slots, 0, 0, size, bytes), ErrorCode::invalid);
    expect_code(block(-1, 0, 0, size, bytes), ErrorCode::invalid);
    expect_code(block(0, stages, 0, size, bytes), ErrorCode::invalid);
    expect_code(block(0, 0, 8, size, bytes), ErrorCode::invalid);
    expect_code(block(0, 0, 0, size, bytes - 1), ErrorCode::invalid);
    expect_code(block(0, 0, 0, size, bytes + 1), ErrorCode::invalid);
    expect_code(block(0, 0, 0, size + 1, bytes), ErrorCode::invalid);
    expect_code(block(0, 0, 144, size, bytes), ErrorCode::invalid);  // ends at 160, the slot holds 150
    expect_code(block(1, 0, 0, size, bytes), ErrorCode::invalid);    // an empty slot
  } else {
    expect_code(block(0, 0, 0, size, 0), ErrorCode::unsupported);
  }
  const auto checkpoint = [&](SlotId slot, StageId stage, uint64_t bytes) -> Status {
    const Result<uint64_t> used =
        model_.export_checkpoint(slot, stage, std::span(room).first(bytes), world_.stream());
    return used.ok() ? Status() : Status(used.error());
  };
  if (info_.needs_checkpoints) {
    expect_code(checkpoint(0, 0, 16), ErrorCode::invalid);
    expect_code(checkpoint(0, stages, room.size()), ErrorCode::invalid);
    expect_code(checkpoint(slots, 0, room.size()), ErrorCode::invalid);
    expect_code(checkpoint(1, 0, room.size()), ErrorCode::invalid);
  } else {
    expect_code(checkpoint(0, 0, room.size()), ErrorCode::unsupported);
  }
  world_.finish();
  EXPECT_EQ(room, std::vector<std::byte>(room.size(), untouched));
}

TEST_P(ModelConformance, AnImportThatCannotBeginIsRefused) {
  world_.read(0, prompt_);
  const auto begin = [&](SlotId slot, std::span<const Token> tokens) -> Status {
    const Result<ImportId> import = model_.import_begin(slot, tokens);
    return import.ok() ? Status() : Status(import.error());
  };
  expect_code(begin(static_cast<SlotId>(info_.slots), prompt_), ErrorCode::invalid);
  expect_code(begin(-1, prompt_), ErrorCode::invalid);
  expect_code(begin(1, {}), ErrorCode::invalid);
  expect_code(begin(1, std::vector<Token>(info_.context_tokens + 1, 32)), ErrorCode::invalid);
  expect_code(begin(1, std::vector<Token>{static_cast<Token>(info_.vocabulary)}), ErrorCode::invalid);
  expect_code(begin(1, std::vector<Token>{-1}), ErrorCode::invalid);
  ASSERT_TRUE(begin(1, prompt_).ok());
  expect_code(begin(1, prompt_), ErrorCode::invalid);  // one import per slot
}

TEST_P(ModelConformance, SeveralSlotsImportAtOnce) {
  ASSERT_GE(info_.staged_imports, 2U);
  world_.read(0, prompt_);
  world_.read(1, other_);
  const StoredState first = world_.store(0, prompt_);
  const StoredState second = world_.store(1, other_);
  const Result<ImportId> a = world_.begin(1, first);  // they exchange their slots
  const Result<ImportId> b = world_.begin(0, second);
  ASSERT_TRUE(a.ok() && b.ok());
  if (info_.staged_imports == 2) {
    const Result<ImportId> one_more = world_.begin(2, first);
    ASSERT_FALSE(one_more.ok());
    EXPECT_EQ(one_more.error().code, ErrorCode::unavailable);
  }
  ASSERT_TRUE(world_.add_parts(*b, second).ok());
  ASSERT_TRUE(world_.add_parts(*a, first).ok());
  world_.finish();
  ASSERT_TRUE(model_.import_commit(*a).ok());
  ASSERT_TRUE(model_.import_commit(*b).ok());
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(prompt_, more_)));
  EXPECT_TRUE(equal_bits(world_.step(0, more_), never_parked(other_, more_)));
}

TEST_P(ModelConformance, WhileOneSlotImportsTheOthersGoOn) {
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  world_.read(1, other_);
  world_.read(2, other_);
  Trace target;
  Trace neighbour;
  const auto step = [&](SlotId slot, size_t i, Trace& trace) {
    trace.push_back(world_.step(slot, std::span(more_).subspan(i, 1)).front());
  };
  const Result<ImportId> import = world_.begin(1, state);
  ASSERT_TRUE(import.ok());
  size_t at = 0;
  for (StageId stage = 0; stage < info_.stages; ++stage) {  // a token of both between any two parts
    for (uint32_t i = 0; i < state.blocks[stage].size(); ++i) {
      ASSERT_TRUE(world_.add_block(*import, stage, i, state).ok());
      if (at < kContinued) {
        step(1, at, target);
        step(2, at++, neighbour);
      }
    }
    if (info_.needs_checkpoints) {
      ASSERT_TRUE(world_.add_checkpoint(*import, stage, state).ok());
    }
  }
  world_.finish();
  ASSERT_TRUE(model_.import_commit(*import).ok());
  while (at < kContinued) step(2, at++, neighbour);
  const Trace expected = never_parked(other_, more_);
  EXPECT_TRUE(equal_bits(neighbour, expected));
  EXPECT_TRUE(
      equal_bits(target, Trace(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(target.size()))));
  EXPECT_TRUE(equal_bits(world_.step(1, more_), never_parked(prompt_, more_)));
}

TEST_P(ModelConformance, BytesAreStableUntilTheSlotChangesBelowThem_B1) {
  const std::span<const Token> first = std::span(prompt_).first(70);
  world_.read(0, first);
  const StoredState before = world_.store(0, first);
  const StoredState again = world_.store(0, first);
  EXPECT_EQ(before.blocks, again.blocks);
  EXPECT_EQ(before.checkpoints, again.checkpoints);
  world_.read(1, other_);
  world_.read(0, std::span(prompt_).subspan(70));
  if (!info_.state_in_blocks) return;
  for (StageId stage = 0; stage < info_.stages; ++stage)
    for (uint32_t i = 0; i < world_.block_count(70); ++i)
      EXPECT_EQ(world_.store_block(0, stage, i * info_.tokens_per_block, world_.block_tokens(i, 70)),
                before.blocks[stage][i]);
}

// Parked, restored and parked again the bytes are the same, so what a slot inherited need not be copied out.
TEST_P(ModelConformance, RestoredBytesAreTheBytesThatWereStored_B2) {
  world_.read(0, prompt_);
  const StoredState state = world_.store(0, prompt_);
  ASSERT_TRUE(world_.restore(2, state).ok());
  const StoredState again = world_.store(2, prompt_);
  EXPECT_EQ(again.blocks, state.blocks);
  EXPECT_EQ(again.checkpoints, state.checkpoints);
}

TEST_P(ModelConformance, ABadBatchChangesNoSlot) {
  const std::span<const Token> prompt = prompt_;
  world_.read(0, prompt);
  const std::vector<Token> good = {65};
  const std::vector<Token> unknown = {65, static_cast<Token>(info_.vocabulary)};
  const std::vector<Token> negative = {-1};
  const std::vector<Token> long_text(info_.context_tokens, 65);
  const BatchItem fine{1, 0, good, true};
  const std::vector<BatchItem> bad = {{0, kPrompt - 1, good, true},
                                      {0, kPrompt + 1, good, true},
                                      {0, kPrompt, unknown, true},
                                      {0, kPrompt, negative, true},
                                      {0, kPrompt, long_text, true},
                                      {0, kPrompt, {}, true},
                                      {-1, 0, good, true},
                                      {static_cast<SlotId>(info_.slots), 0, good, true},
                                      {1, 0, good, true}};  // the last: slot 1 twice
  std::vector<std::span<const float>> logits;
  for (const BatchItem& item : bad) {
    const BatchItem batch[] = {fine, item};
    expect_code(model_.decode(batch, logits), ErrorCode::invalid);
    EXPECT_EQ(model_.length(0), kPrompt);
    EXPECT_EQ(model_.length(1), 0U);
  }
  EXPECT_TRUE(equal_bits(world_.step(0, more_), never_parked(prompt, more_)));
  EXPECT_EQ(model_.length(static_cast<SlotId>(info_.slots)), 0U);
  expect_code(model_.clear(static_cast<SlotId>(info_.slots)), ErrorCode::invalid);
  expect_code(model_.truncate(-1, 0), ErrorCode::invalid);
}

TEST_P(ModelConformance, TheWholeContextCanBeReadAndRestored) {
  const std::vector<Token> all = some_tokens(5, info_.context_tokens);
  const std::span<const Token> first = std::span(all).first(all.size() - kContinued);
  const std::span<const Token> rest = std::span(all).last(kContinued);
  world_.read(0, first);
  const StoredState state = world_.store(0, first);
  const Trace expected = world_.step(0, rest);
  ASSERT_TRUE(world_.restore(1, state).ok());
  EXPECT_TRUE(equal_bits(world_.step(1, rest), expected));
  std::vector<std::span<const float>> logits;
  const BatchItem one_more{1, info_.context_tokens, std::span(all).first(1), true};
  expect_code(model_.decode({&one_more, 1}, logits), ErrorCode::invalid);
}

}  // namespace
}  // namespace strata::testing
