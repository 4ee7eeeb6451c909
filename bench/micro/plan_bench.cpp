// P-7: candidates for a 200,000-token prompt among 10,000 stored conversations. Target: < 1 ms, < 100 MiB.
// Three stores: nothing in common, a shared prefix of 20,000 tokens, and short conversations that share
// everything.
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "tiers/prefix_index.hpp"

namespace strata {
namespace {

constexpr uint32_t kChunk = limits::kPrefixChunkTokens;
constexpr uint32_t kLongTokens = 200'000;
constexpr uint32_t kSharedTokens = 20'000;

enum class Shape : int64_t { distinct, shared_prefix, short_and_equal };

void append_random(std::vector<Token>& tokens, uint32_t count, std::mt19937_64& random) {
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(random() % 150'000));
}

// Only one conversation's tokens are real; the others' links are random numbers behind the real shared part,
// which to the index are the same as hashes of random tokens.
struct Store {
  PrefixIndex index;
  std::vector<Token> prompt;        // continues image 1 by a few tokens
  std::vector<Token> other_prompt;  // the control: shares nothing

  Store(Shape shape, uint32_t conversations) {
    std::mt19937_64 random(42);
    append_random(prompt, kLongTokens, random);
    append_random(other_prompt, kLongTokens, random);
    const std::vector<uint64_t> real = prefix_chain({prompt, {}}, 0);
    index.insert(1, real, kLongTokens);
    for (ImageKey key = 2; key <= conversations; ++key) add(key, shape, real, random);
    append_random(prompt, 500, random);
  }

 private:
  void add(ImageKey key, Shape shape, const std::vector<uint64_t>& real, std::mt19937_64& random) {
    if (shape == Shape::short_and_equal) {
      const uint32_t length = 1 + static_cast<uint32_t>(random() % kSharedTokens);
      index.insert(key, prefix_chain({std::span(prompt).first(length), {}}, 0), length);
      return;
    }
    std::vector<uint64_t> chain(real.size());
    for (uint64_t& link : chain) link = random();
    const uint32_t shared = shape == Shape::shared_prefix ? kSharedTokens / kChunk : 0;
    std::copy_n(real.begin(), shared, chain.begin());
    index.insert(key, std::move(chain), kLongTokens);
  }
};

Store& store(Shape shape, uint32_t conversations) {
  static std::map<std::pair<Shape, uint32_t>, std::unique_ptr<Store>> stores;
  if (!stores.contains({shape, conversations})) {
    stores.clear();  // one at a time in memory
    stores[{shape, conversations}] = std::make_unique<Store>(shape, conversations);
  }
  return *stores[{shape, conversations}];
}

void find_continuation(benchmark::State& state) {
  Store& held = store(Shape{state.range(0)}, static_cast<uint32_t>(state.range(1)));
  std::vector<PrefixIndex::Candidate> candidates;
  for (auto _ : state) {
    candidates = held.index.find({held.prompt, {}}, 0, limits::kMaxPlanCandidates);
    STRATA_CHECK(candidates.front().key == 1 && candidates.front().whole);
  }
  state.counters["MiB"] = static_cast<double>(held.index.memory_bytes()) / static_cast<double>(limits::kMiB);
  state.counters["candidates"] = static_cast<double>(candidates.size());
}

void find_nothing(benchmark::State& state) {
  Store& held = store(Shape{state.range(0)}, static_cast<uint32_t>(state.range(1)));
  for (auto _ : state) {
    const auto candidates = held.index.find({held.other_prompt, {}}, 0, limits::kMaxPlanCandidates);
    STRATA_CHECK(candidates.empty() || candidates.front().at_least == 0);
  }
}

void chain_alone(benchmark::State& state) {
  std::mt19937_64 random(42);
  std::vector<Token> prompt;
  append_random(prompt, kLongTokens, random);
  for (auto _ : state) benchmark::DoNotOptimize(prefix_chain({prompt, {}}, 0));
}

void stores(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"shape", "conversations"})->Unit(benchmark::kMicrosecond);
  for (const int64_t shape : {0, 1, 2}) {
    for (const int64_t conversations : {100, 10'000}) bench->Args({shape, conversations});
  }
}

BENCHMARK(find_continuation)->Apply(stores);
BENCHMARK(find_nothing)->Apply(stores);
BENCHMARK(chain_alone)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace strata
