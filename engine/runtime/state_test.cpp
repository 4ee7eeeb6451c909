#include "engine/runtime/state_test.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/digest.hpp"

namespace strata {
namespace {

constexpr uint32_t kAtOnce = 256;   // tokens of one decode
constexpr uint32_t kContinued = 8;  // tokens compared after the restore
constexpr SlotId kSource = 0;
constexpr SlotId kTarget = 1;

using Bytes = std::vector<std::byte>;
using Logits = std::vector<float>;

struct Part {
  StageId stage = 0;
  uint32_t first = 0;
  uint32_t count = 0;  // 0: a checkpoint
  Bytes bytes;
};

std::vector<Token> some_tokens(uint64_t seed, uint32_t count, uint32_t vocabulary) {
  std::vector<Token> tokens(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (Token& token : tokens) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    token = static_cast<Token>((state >> 33) % vocabulary);
  }
  return tokens;
}

class StateTest {
 public:
  StateTest(Model& model, Device& device, Clock& clock) : model_(model), device_(device), clock_(clock) {}
  Result<StateTestReport> run(uint32_t prompt_tokens);

 private:
  Result<Logits> read(SlotId slot, std::span<const Token> tokens);
  Result<std::vector<Logits>> go_on(SlotId slot);
  Result<std::vector<Part>> take_out(SlotId slot, std::span<const Token> tokens);
  Status put_in(SlotId slot, std::span<const Token> tokens, const std::vector<Part>& parts);
  Status run_control(std::span<const Token> prompt, const std::vector<Part>& mixed,
                     const std::vector<Logits>& expected, StateTestReport& report);
  Status add(ImportId import, uint32_t position, const Part& part);
  Status finish();

  Model& model_;
  Device& device_;
  Clock& clock_;
  DeviceStream stream_;
  DeviceEvent event_;
};

Result<Logits> StateTest::read(SlotId slot, std::span<const Token> tokens) {
  Logits last;
  while (!tokens.empty()) {
    const size_t count = std::min<size_t>(tokens.size(), kAtOnce);
    const BatchItem item{slot, model_.length(slot), tokens.first(count), true};
    std::vector<std::span<const float>> logits;
    STRATA_TRY(model_.decode({&item, 1}, logits));
    last.assign(logits[0].begin(), logits[0].end());
    tokens = tokens.subspan(count);
  }
  return last;
}

// One token after the other: kernels depend on the batch's shape.
Result<std::vector<Logits>> StateTest::go_on(SlotId slot) {
  const std::vector<Token> tokens = some_tokens(3, kContinued, model_.info().vocabulary);
  std::vector<Logits> all;
  for (const Token& token : tokens) {
    STRATA_ASSIGN(Logits logits, read(slot, {&token, 1}));
    all.push_back(std::move(logits));
  }
  return all;
}

Status StateTest::finish() {
  STRATA_TRY(device_.record(event_, stream_));
  return device_.wait(event_);
}

Result<std::vector<Part>> StateTest::take_out(SlotId slot, std::span<const Token> tokens) {
  const ModelInfo& info = model_.info();
  const auto length = static_cast<uint32_t>(tokens.size());
  std::vector<Part> parts;
  for (StageId stage = 0; stage < info.stages; ++stage) {
    for (uint32_t first = 0; info.state_in_blocks && first < length; first += info.tokens_per_block) {
      const uint32_t count = std::min(info.tokens_per_block, length - first);
      Part& part = parts.emplace_back(Part{stage, first, count, Bytes(model_.block_bytes(stage, count))});
      STRATA_TRY(model_.export_block(slot, stage, first, count, part.bytes, stream_));
    }
    if (!info.needs_checkpoints) continue;
    Part& part = parts.emplace_back(Part{stage, length, 0, Bytes(info.checkpoint_bytes[stage])});
    STRATA_ASSIGN(const uint64_t used, model_.export_checkpoint(slot, stage, part.bytes, stream_));
    STRATA_TRY(finish());
    part.bytes.resize(used);
  }
  STRATA_TRY(finish());
  return parts;
}

Status StateTest::add(ImportId import, uint32_t position, const Part& part) {
  if (part.count == 0) return model_.import_checkpoint(import, part.stage, position, part.bytes, stream_);
  return model_.import_block(import, part.stage, part.first, part.count, part.bytes, stream_);
}

Status StateTest::put_in(SlotId slot, std::span<const Token> tokens, const std::vector<Part>& parts) {
  STRATA_ASSIGN(const ImportId import, model_.import_begin(slot, tokens));
  for (const Part& part : parts) {
    const Status added = add(import, static_cast<uint32_t>(tokens.size()), part);
    if (added.ok()) continue;
    model_.import_abort(import);
    return added;
  }
  STRATA_TRY(finish());
  return model_.import_commit(import);
}

bool equal_bits(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Logits& x, const Logits& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  });
}

void measure(const std::vector<Part>& parts, bool in_blocks, StateTestReport& report) {
  for (const Part& part : parts)
    (part.count == 0 ? report.checkpoint_bytes : report.block_bytes) += part.bytes.size();
  report.bytes_per_token =
      static_cast<double>(in_blocks ? report.block_bytes : report.checkpoint_bytes) / report.tokens;
}

// A model may look at what it imports: then it must refuse, else answer differently.
Status StateTest::run_control(std::span<const Token> prompt, const std::vector<Part>& mixed,
                              const std::vector<Logits>& expected, StateTestReport& report) {
  const Status put = put_in(kTarget, prompt, mixed);
  report.control_refused = !put.ok() && put.error().code == ErrorCode::corrupt;
  if (report.control_refused) return {};
  STRATA_TRY(put);
  STRATA_ASSIGN(const auto control, go_on(kTarget));
  report.control_differs = !equal_bits(control, expected);
  return {};
}

Result<StateTestReport> StateTest::run(uint32_t prompt_tokens) {
  STRATA_ASSIGN(stream_, device_.create_stream());
  STRATA_ASSIGN(event_, device_.create_event());
  StateTestReport report;
  report.tokens = prompt_tokens;
  const uint32_t vocabulary = model_.info().vocabulary;
  const std::vector<Token> prompt = some_tokens(1, prompt_tokens, vocabulary);
  const std::vector<Token> other = some_tokens(2, prompt_tokens, vocabulary);
  const auto timed = [&](uint64_t& ns, auto&& step) {
    const uint64_t begin_ns = clock_.monotonic_ns();
    auto result = step();
    ns = clock_.monotonic_ns() - begin_ns;
    return result;
  };
  STRATA_TRY(timed(report.read_ns, [&] { return read(kSource, prompt); }));
  STRATA_TRY(take_out(kSource, prompt));  // the first touch of fresh memory is not the model's speed
  STRATA_ASSIGN(const std::vector<Part> parts,
                timed(report.export_ns, [&] { return take_out(kSource, prompt); }));
  measure(parts, model_.info().state_in_blocks, report);
  timed(report.digest_ns, [&] {
    uint64_t all = 0;
    for (const Part& part : parts) all ^= hash_bytes(part.bytes, all);
    return all;
  });
  STRATA_TRY(read(kTarget, other));
  STRATA_ASSIGN(const std::vector<Part> wrong, take_out(kTarget, other));
  STRATA_ASSIGN(const auto expected, go_on(kSource));
  STRATA_TRY(timed(report.import_ns, [&] { return put_in(kTarget, prompt, parts); }));
  STRATA_ASSIGN(const auto restored, go_on(kTarget));
  report.equal = equal_bits(restored, expected);
  std::vector<Part> mixed = parts;
  mixed.back() = wrong.back();
  STRATA_TRY(run_control(prompt, mixed, expected, report));
  STRATA_TRY(model_.clear(kSource));
  STRATA_TRY(model_.clear(kTarget));
  device_.destroy_event(event_);
  device_.destroy_stream(stream_);
  return report;
}

}  // namespace

Result<StateTestReport> test_state(Model& model, Device& device, Clock& clock, uint32_t prompt_tokens) {
  return StateTest(model, device, clock).run(prompt_tokens);
}

}  // namespace strata
