#include "plugins/model_llama/self_test.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "plugins/model_llama/context.hpp"
#include "plugins/model_llama/failure.hpp"

namespace strata::llama {
namespace {

constexpr uint32_t kFirst = 4;  // two lengths that give the sizes
constexpr uint32_t kMeasured = 8;
constexpr uint32_t kPrompt = 40;
constexpr uint32_t kContinued = 3;
constexpr uint32_t kBlock = 16;
constexpr llama_seq_id kSource = 1, kTarget = 2, kStaging = 3;

// Their caches end the process when a part of a sequence is copied.
constexpr std::array<std::string_view, 1> kAbortOnParts = {"deepseek4"};

using Logits = std::vector<float>;

class SelfTest {
 public:
  SelfTest(const LoadedModel& model, const Options& options)
      : model_(model), context_(make_context(model, options, {1024, 4, 4})), state_(context_.get()) {}

  StateAbilities run(Granularity wanted);

 private:
  Logits read(llama_seq_id sequence, uint32_t from, uint32_t to);
  std::vector<Logits> go_on(llama_seq_id sequence);
  void measure(StateAbilities& found, bool parts);
  bool equal_after_blocks(const StateLayout& layout);
  bool equal_after_whole();
  void learn_layout(StateAbilities& found);
  void take_out(const StateLayout& layout, bool blocks);
  void try_blocks(StateAbilities& found);
  void try_whole(StateAbilities& found, Granularity wanted);
  [[nodiscard]] uint64_t whole_bytes() const {
    return llama_state_seq_get_size_ext(context_.get(), kSource, LLAMA_STATE_SEQ_FLAGS_NONE);
  }
  bool equal(llama_seq_id restored);

  const LoadedModel& model_;
  ContextHandle context_;
  SequenceState state_;
  Batch batch_;
  std::vector<Logits> expected_;
  std::vector<std::byte> whole_;
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<std::byte> side_;
};

int32_t some_token(uint32_t index, uint32_t vocabulary) {
  return static_cast<int32_t>((uint64_t{index} * 2654435761U + 12345U) % vocabulary);
}

Logits SelfTest::read(llama_seq_id sequence, uint32_t from, uint32_t to) {
  batch_.clear();
  for (uint32_t i = from; i < to; ++i)
    batch_.add(some_token(i, model_.vocabulary_size()), i, sequence, i + 1 == to);
  if (llama_decode(context_.get(), batch_.view()) != 0)
    raise(STRATA_UNSUPPORTED, "model %.120s: it cannot decode a short prompt", model_.name().c_str());
  const float* logits = llama_get_logits_ith(context_.get(), batch_.size() - 1);
  if (logits == nullptr) raise(STRATA_UNSUPPORTED, "model %.120s: it gives no logits", model_.name().c_str());
  return {logits, logits + model_.vocabulary_size()};
}

std::vector<Logits> SelfTest::go_on(llama_seq_id sequence) {
  std::vector<Logits> all;
  for (uint32_t i = 0; i < kContinued; ++i) all.push_back(read(sequence, kPrompt + i, kPrompt + i + 1));
  return all;
}

bool SelfTest::equal(llama_seq_id restored) {
  const std::vector<Logits> got = go_on(restored);
  return std::equal(got.begin(), got.end(), expected_.begin(), [](const Logits& a, const Logits& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  });
}

PartSize size_from(uint64_t at_first, uint64_t at_measured) {
  PartSize size;
  size.per_token =
      at_measured > at_first ? (at_measured - at_first + kMeasured - kFirst - 1) / (kMeasured - kFirst) : 0;
  size.base = at_measured - std::min(at_measured, size.per_token * kMeasured);
  return size;
}

// Reads the prompt, and on the way takes the sizes at two lengths.
void SelfTest::measure(StateAbilities& found, bool parts) {
  constexpr uint64_t kFrame = 16;
  const auto side = [&] { return parts ? state_.side_bytes(kSource) : 0; };
  read(kSource, 0, kFirst);
  const uint64_t whole_first = whole_bytes();
  const uint64_t side_first = side();
  read(kSource, kFirst, kMeasured);
  if (parts) found.layout = state_.measure(kSource, kMeasured);
  found.layout.whole = size_from(whole_first, whole_bytes());
  found.layout.whole.base += kFrame;
  if (side_first != 0) {
    found.layout.side = size_from(side_first, side());
    found.layout.side.base += kFrame;
  }
  read(kSource, kMeasured, kPrompt);
}

bool SelfTest::equal_after_blocks(const StateLayout& layout) {
  for (uint32_t first = 0; first < kPrompt; first += kBlock) {
    const uint32_t count = std::min(kBlock, kPrompt - first);
    state_.import_block(layout, kStaging, first, count, count, blocks_[first / kBlock], kSource);
  }
  if (layout.has_side()) state_.import_framed(kStaging, false, side_);
  state_.move(kStaging, kTarget);
  const bool same = equal(kTarget);
  state_.remove(kTarget);
  return same;
}

bool SelfTest::equal_after_whole() {
  state_.import_framed(kStaging, true, whole_);
  state_.move(kStaging, kTarget);
  const bool same = equal(kTarget);
  state_.remove(kTarget);
  return same;
}

// Reads the prompt and finds the sizes, and the reason where blocks are out of the question.
void SelfTest::learn_layout(StateAbilities& found) {
  const std::string architecture = model_.architecture();
  const bool parts = std::ranges::find(kAbortOnParts, architecture) == kAbortOnParts.end();
  if (!parts) found.why_whole = "the cache of " + architecture + " takes whole sequences only";
  try {
    measure(found, parts);
  } catch (const Failure& failure) {
    const llama_pos last = llama_memory_seq_pos_max(llama_get_memory(context_.get()), kSource);
    if (failure.status() != STRATA_UNSUPPORTED || last + 1 < static_cast<llama_pos>(kMeasured)) throw;
    found.why_whole = failure.what();
    read(kSource, kMeasured, kPrompt);
    found.layout.whole = size_from(0, whole_bytes());
  }
  if (!found.why_whole.empty()) return;
  if (!found.layout.has_blocks()) found.why_whole = "the model keeps nothing by token";
  // A cache that forgets what left its window, without a side part that would say so.
  if (found.layout.has_blocks() && !found.layout.has_side() && llama_model_n_swa(model_.get()) > 0)
    found.why_whole = "the cache forgets old tokens and cannot show which";
}

void SelfTest::take_out(const StateLayout& layout, bool blocks) {
  for (uint32_t first = 0; blocks && first < kPrompt; first += kBlock) {
    const uint32_t count = std::min(kBlock, kPrompt - first);
    state_.export_block(layout, kSource, first, count, blocks_.emplace_back(layout.block.of(count)));
  }
  if (blocks && layout.has_side()) {
    side_.resize(layout.side.of(kPrompt));
    side_.resize(state_.export_framed(kSource, kPrompt, false, side_));
  }
  whole_.resize(whole_bytes() + 64);
  whole_.resize(state_.export_framed(kSource, kPrompt, true, whole_));
}

void SelfTest::try_blocks(StateAbilities& found) {
  try {
    found.exact = equal_after_blocks(found.layout);
    found.blocks = true;
  } catch (const Failure& failure) {
    found.why_whole = failure.what();
    state_.remove(kStaging);
    state_.remove(kTarget);
  }
}

// Also where blocks work but are not exact: whole it may be.
void SelfTest::try_whole(StateAbilities& found, Granularity wanted) {
  bool exact = false;
  try {
    exact = equal_after_whole();
  } catch (const Failure& failure) {
    if (!found.blocks)
      raise_about_file(STRATA_UNSUPPORTED, "model", model_.name(),
                       std::string("its state cannot be put back: ") + failure.what());
  }
  if (found.blocks && exact && wanted == Granularity::automatic) {
    found.blocks = false;
    found.why_whole = "put back from blocks the model's next token differs";
  }
  if (!found.blocks) found.exact = exact;
}

StateAbilities SelfTest::run(Granularity wanted) {
  StateAbilities found;
  learn_layout(found);
  const bool blocks = wanted != Granularity::whole && found.why_whole.empty();
  take_out(found.layout, blocks);
  expected_ = go_on(kSource);
  if (blocks) try_blocks(found);
  if (!found.exact) try_whole(found, wanted);
  return found;
}

}  // namespace

StateAbilities test_state(const LoadedModel& model, const Options& options) {
  SelfTest test(model, options);
  return test.run(options.granularity);
}

}  // namespace strata::llama
