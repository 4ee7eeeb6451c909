#include "tests/support/stack_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace strata::testing {

namespace {
constexpr int kMaxSteps = 200'000;
constexpr uint64_t kStepNs = 50'000;
}  // namespace

PluginOptions tiny_model(const StackWorldOptions& options) {
  PluginOptions model = options.model;
  model.insert({{"layout", options.layout},
                {"stages", std::to_string(options.stages)},
                {"state", options.whole ? "whole" : "blocks"},
                {"slots", std::to_string(options.slots)},
                {"context", std::to_string(options.context)},
                {"layers", "4"},
                {"dim", "64"},
                {"heads", "4"},
                {"kv_heads", "2"},
                {"ffn", "48"},
                {"window", "24"},
                {"tokens_per_block", "16"},
                {"threads", "1"}});
  return model;
}

TierOptions ram_tier(uint64_t budget_bytes) {
  TierOptions tiers;
  tiers.ram_budget_bytes = budget_bytes;
  tiers.ram_min_free_bytes = 0;
  return tiers;
}

TierOptions ram_and_disk(uint64_t ram_bytes, uint64_t disk_bytes) {
  TierOptions tiers = ram_tier(ram_bytes);
  tiers.disk_folder = StackWorld::kFolder;
  tiers.disk_budget_bytes = disk_bytes;
  tiers.disk_min_free_bytes = 0;
  tiers.disk_persist = true;
  return tiers;
}

std::vector<Token> prompt_of(uint64_t seed, uint32_t tokens) {
  FakeRandom random(seed * 7919 + 1);
  std::vector<Token> prompt(tokens);
  for (Token& token : prompt) token = static_cast<Token>(32 + random.next() % 90);
  return prompt;
}

StackWorld::StackWorld(StackWorldOptions options) : options_(std::move(options)), random_(options_.seed) {
  open();
}

StackWorld::~StackWorld() = default;

void StackWorld::open() {
  const PluginOptions device{{"device_host.poison", "1"},
                             {"device_host.seed", std::to_string(options_.seed)}};
  device_ = std::move(*plugins_.registry.make_device("host", device));
  auto model = plugins_.registry.make_model("reference", tiny_model(options_), *device_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  model_ = std::move(*model);
  FakeIoQueue::Options io;
  io.seed = options_.seed;
  reader_ = std::make_unique<FakeIoQueue>(files_, clock_, io);
  writer_io_ = std::make_unique<FakeIoQueue>(files_, clock_, io);
  disk_writer_ = std::make_unique<DiskWriter>(files_, *writer_io_, clock_);
  queue_ = std::make_unique<SteppedWriteQueue>(*disk_writer_);
  identity_.fields = *model_->identity_fields();
  identity_.configuration = configuration_digest(identity_.fields);
  identity_.model = Digest{1, 2};
  const TierPorts ports{*model_, *device_, clock_,  memory_,       random_,
                        log_,    metrics_, &files_, reader_.get(), queue_.get()};
  auto stack = TierStack::open(options_.tiers, ports, identity_);
  opened = stack.ok() ? Status() : Status(stack.error());
  if (stack.ok()) stack_ = std::move(*stack);
}

void StackWorld::restart() {
  stack_.reset();
  files_.drop_locks();
  queue_.reset();
  reader_.reset();
  model_.reset();
  device_.reset();
  open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
}

void StackWorld::shutdown() {
  stack_->begin_shutdown();
  for (int i = 0; i < kMaxSteps && !stack_->drain_progress().finished; ++i) {
    queue_->run_all();
    step();
  }
  EXPECT_TRUE(stack_->drain_progress().finished);
}

void StackWorld::step(int times) {
  for (int i = 0; i < times; ++i) {
    clock_.advance(kStepNs);
    if (options_.writes_run) queue_->run_all();
    stack_->step();
    if (after_step) after_step(*this);
  }
}

void StackWorld::settle() {
  for (int i = 0; i < kMaxSteps; ++i) {
    queue_->run_all();
    clock_.advance(kStepNs);
    const bool busy = stack_->step();
    if (after_step) after_step(*this);
    if (!busy && queue_->waiting() == 0 && stack_->status().disk_queue_jobs == 0) return;
  }
  ADD_FAILURE() << "never settles";
}

RequestId StackWorld::begin(const std::vector<Token>& prompt, TierRequest extra) {
  extra.id = next_request_++;
  extra.tokens = prompt;
  const RequestId id = extra.id;
  const Status admitted = stack_->admit(std::move(extra));
  EXPECT_TRUE(admitted.ok()) << admitted.error().message;
  return id;
}

bool StackWorld::place(RequestId id) {
  for (int i = 0; i < kMaxSteps; ++i) {
    const RequestState state = stack_->state(id);
    if (state == RequestState::serving || state == RequestState::failed) return true;
    step();
  }
  return false;
}

Answer StackWorld::answer(RequestId id, const std::vector<Token>& prompt, uint32_t generate) {
  Answer result;
  if (stack_->state(id) == RequestState::failed) {
    result.failure = stack_->failure(id);
    return result;
  }
  result.placement = stack_->placement(id);
  const SlotId slot = result.placement.slot;
  std::vector<Token> todo(prompt.begin() + result.placement.reused_tokens, prompt.end());
  EXPECT_EQ(model_->length(slot), result.placement.reused_tokens);
  EXPECT_FALSE(todo.empty());
  size_t at = 0;
  for (int guard = 0; guard < kMaxSteps; ++guard) {
    if (!stack_->may_decode(slot)) {
      step();
      continue;
    }
    const uint32_t length = model_->length(slot);
    const size_t count = std::min<size_t>({todo.size() - at, 40, stack_->read_limit(slot) - length});
    const BatchItem item{slot, length, std::span(todo).subspan(at, count), true};
    std::vector<std::span<const float>> logits;
    const Status decoded = model_->decode(std::span(&item, 1), logits);
    EXPECT_TRUE(decoded.ok()) << decoded.error().message;
    if (!decoded.ok()) break;
    stack_->appended(slot, item.tokens);
    at += count;
    if (at < todo.size()) continue;
    if (result.tokens.size() == generate) break;
    result.logits.emplace_back(logits[0].begin(), logits[0].end());
    const auto best = std::max_element(logits[0].begin(), logits[0].end());
    result.tokens.push_back(static_cast<Token>(best - logits[0].begin()));
    todo = {result.tokens.back()};
    at = 0;
  }
  return result;
}

void StackWorld::end(RequestId id) {
  stack_->finish(id);
  step();
}

Answer StackWorld::ask(const std::vector<Token>& prompt, uint32_t generate, TierRequest extra) {
  const RequestId id = begin(prompt, std::move(extra));
  EXPECT_TRUE(place(id)) << "request is never placed";
  Answer result = answer(id, prompt, generate);
  end(id);
  return result;
}

}  // namespace strata::testing
