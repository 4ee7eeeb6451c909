#include "tests/support/stack_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/model_world.hpp"

namespace strata::testing {

namespace {
constexpr int kMaxSteps = 200'000;
constexpr uint64_t kStepNs = 50'000;
}  // namespace

PluginOptions tiny_model(const StackWorldOptions& options) {
  PluginOptions model = options.model;
  if (!options.gguf.empty()) {
    model.insert({{"path", options.gguf},
                  {"state_granularity", options.whole ? "whole" : "auto"},
                  {"slots", std::to_string(options.slots)},
                  {"context", std::to_string(options.context)},
                  {"tokens_per_block", "16"},
                  {"threads", "1"}});
    return model;
  }
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

std::vector<Token> followed_by(std::vector<Token> from, uint64_t seed, uint32_t tokens) {
  const std::vector<Token> more = prompt_of(seed, tokens);
  from.insert(from.end(), more.begin(), more.end());
  return from;
}

std::vector<Token> next_prompt(const std::vector<Token>& prompt, const Answer& answer, uint64_t seed,
                               uint32_t tokens) {
  std::vector<Token> next = prompt;
  next.insert(next.end(), answer.tokens.begin(), answer.tokens.end());
  return followed_by(std::move(next), seed, tokens);
}

StackWorld::StackWorld(StackWorldOptions options)
    : options_(std::move(options)),
      faulty_files_(options_.files != nullptr ? *options_.files : recorded_files_),
      random_(options_.seed) {
  open();
}

StackWorld::~StackWorld() = default;

void StackWorld::open() {
  const PluginOptions device{{"device_host.poison", "1"},
                             {"device_host.seed", std::to_string(options_.seed)}};
  device_ = std::move(*plugins_.registry.make_device("host", device));
  auto model = make_model();
  ASSERT_TRUE(model.ok()) << model.error().message;
  model_ = std::move(*model);
  FakeIoQueue::Options io;
  io.seed = options_.seed;
  faulty_device_ = std::make_unique<FaultyDevice>(*device_);
  faulty_model_ = std::make_unique<FaultyModel>(*model_);
  if (!options_.staged_import) faulty_model_->say_not_staged();
  reader_ = std::make_unique<FakeIoQueue>(faulty_files_, clock_, io);
  writer_io_ = std::make_unique<FakeIoQueue>(faulty_files_, clock_, io);
  disk_writer_ = std::make_unique<DiskWriter>(faulty_files_, *writer_io_, clock_);
  queue_ = std::make_unique<SteppedWriteQueue>(*disk_writer_);
  identity_.fields = *model_->identity_fields();
  identity_.configuration = configuration_digest(identity_.fields);
  identity_.model = Digest{options_.model_identity, 2};
  const TierPorts ports{*faulty_model_, *faulty_device_, clock_,         memory_,       random_,
                        log_,           metrics_,        &faulty_files_, reader_.get(), queue_.get(),
                        options_.pages, options_.worker};
  auto stack = TierStack::open(options_.tiers, ports, identity_);
  opened = stack.ok() ? Status() : Status(stack.error());
  if (stack.ok()) stack_ = std::move(*stack);
}

Result<std::unique_ptr<Model>> StackWorld::make_model() {
  if (options_.gguf.empty()) return plugins_.registry.make_model("reference", tiny_model(options_), *device_);
  if (!llama_loaded_) STRATA_TRY(plugins_.registry.load(installed_plugin(llama_models().plugin_file)));
  llama_loaded_ = true;
  return plugins_.registry.make_model("llama", tiny_model(options_), *device_);
}

void StackWorld::restart() {
  const Status started = try_restart();
  ASSERT_TRUE(started.ok()) << started.error().message;
}

Status StackWorld::try_restart() {
  halt();
  open();
  return opened;
}

void StackWorld::halt() {
  stack_.reset();
  files_.drop_locks();
  queue_.reset();
  reader_.reset();
  faulty_model_.reset();
  model_.reset();
  faulty_device_.reset();
  device_.reset();
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

// One batch of the request; false when nothing could be read now or there is nothing more to read.
bool StackWorld::decode(InFlight& request) {
  const SlotId slot = request.answer.placement.slot;
  if (request.done || !stack_->may_decode(slot)) return false;
  const uint32_t length = model_->length(slot);
  const size_t count = std::min<size_t>(
      {request.todo.size() - request.at, options_.tokens_at_once, stack_->read_limit(slot) - length});
  const BatchItem item{slot, length, std::span(request.todo).subspan(request.at, count), true};
  std::vector<std::span<const float>> logits;
  const Status decoded = model_->decode(std::span(&item, 1), logits);
  EXPECT_TRUE(decoded.ok()) << decoded.error().message;
  if (!decoded.ok()) {
    request.done = true;
    return false;
  }
  stack_->appended(slot, item.tokens);
  request.at += count;
  if (request.at < request.todo.size()) return true;
  Answer& answer = request.answer;
  request.done = answer.tokens.size() == request.generate;
  if (request.done) return true;
  answer.logits.emplace_back(logits[0].begin(), logits[0].end());
  const auto best = std::max_element(logits[0].begin(), logits[0].end());
  answer.tokens.push_back(static_cast<Token>(best - logits[0].begin()));
  request.todo = {answer.tokens.back()};
  request.at = 0;
  return true;
}

Answer StackWorld::answer(RequestId id, const std::vector<Token>& prompt, uint32_t generate) {
  InFlight request;
  request.id = id;
  request.prompt = prompt;
  request.generate = generate;
  if (stack_->state(id) == RequestState::failed) {
    request.answer.failure = stack_->failure(id);
    return request.answer;
  }
  const Placement& placement = request.answer.placement = stack_->placement(id);
  request.todo.assign(prompt.begin() + placement.reused_tokens, prompt.end());
  EXPECT_EQ(model_->length(placement.slot), placement.reused_tokens);
  EXPECT_FALSE(request.todo.empty());
  for (int guard = 0; guard < kMaxSteps && !request.done; ++guard) {
    if (!decode(request)) step();
  }
  return request.answer;
}

InFlight StackWorld::launch(const std::vector<Token>& prompt, uint32_t generate, TierRequest extra) {
  InFlight request;
  request.id = begin(prompt, std::move(extra));
  request.prompt = prompt;
  request.generate = generate;
  return request;
}

void StackWorld::move(InFlight& request) {
  if (request.done) return;
  const RequestState state = stack_->state(request.id);
  if (state == RequestState::failed) {
    request.answer.failure = "failed: " + stack_->failure(request.id);
    request.done = true;
  } else if (state == RequestState::serving && !request.serving) {
    request.serving = true;
    request.answer.placement = stack_->placement(request.id);
    request.todo.assign(request.prompt.begin() + request.answer.placement.reused_tokens,
                        request.prompt.end());
  } else if (request.serving) {
    (void)decode(request);
  }
  if (request.done) stack_->finish(request.id);
}

void StackWorld::run(std::vector<InFlight>& requests) {
  const auto done = [](const InFlight& request) { return request.done; };
  for (int i = 0; i < kMaxSteps; ++i) {
    if (std::all_of(requests.begin(), requests.end(), done)) return step();
    step();
    for (InFlight& request : requests) move(request);
  }
  ADD_FAILURE() << "a request never ends";
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
