// PrefixIndex against a search through all images, over random sequences with many shared prefixes (RAM-3,
// P-7).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "core/limits.hpp"
#include "tiers/prefix_index.hpp"

namespace strata {
namespace {

constexpr uint32_t kChunk = limits::kPrefixChunkTokens;
using Candidate = PrefixIndex::Candidate;

struct Conversation {
  std::vector<Token> tokens;
  std::vector<MediaMark> media;
  uint64_t salt = 0;
  [[nodiscard]] TokenSpan span() const { return {tokens, media}; }
  [[nodiscard]] uint32_t length() const { return static_cast<uint32_t>(tokens.size()); }
};

// Marks beyond a cut are cut, too.
Conversation cut(Conversation conversation, uint32_t length) {
  conversation.tokens.resize(length);
  std::erase_if(conversation.media, [&](const MediaMark& mark) { return mark.start >= length; });
  return conversation;
}

// What find() must say about one image.
Candidate expected(ImageKey key, const Conversation& image, const Conversation& prompt) {
  const uint32_t common = image.salt == prompt.salt ? common_prefix(image.span(), prompt.span()) : 0;
  if (common == image.length() && image.salt == prompt.salt) return {key, common, common, true};
  const uint32_t chunks = common / kChunk;
  uint32_t at_most = std::min(chunks * kChunk + kChunk - 1, prompt.length());
  const bool ends_in_chunk = image.length() / kChunk == chunks;
  if (ends_in_chunk)
    at_most = std::min(prompt.length(), image.length() > prompt.length() ? ~0u : image.length() - 1);
  return {key, chunks * kChunk, at_most, false};
}

bool same(const Candidate& a, const Candidate& b) {
  return a.key == b.key && a.at_least == b.at_least && a.at_most == b.at_most && a.whole == b.whole;
}

class Model {
 public:
  explicit Model(uint32_t seed) : random_(seed) {}

  // Grows from a random earlier conversation, cut at a random place, often near a chunk's end.
  Conversation make() {
    Conversation result;
    if (!images.empty() && pick(8) != 0) {
      const Conversation& parent =
          std::next(images.begin(), static_cast<int>(pick(static_cast<uint32_t>(images.size()))))->second;
      uint32_t keep = pick(parent.length() + 1);
      if (pick(2) == 0) keep = std::min(parent.length(), keep / kChunk * kChunk + pick(3));
      result = cut(parent, keep);
    }
    result.salt = pick(10) == 0 ? 1 : result.salt;
    const uint32_t more = pick(4) == 0 ? 0 : pick(3 * kChunk);
    if (more > 4 && pick(5) == 0) result.media.push_back({result.length() + pick(more), pick(2)});
    for (uint32_t i = 0; i < more; ++i) result.tokens.push_back(static_cast<Token>(pick(2)));
    if (result.tokens.empty()) result.tokens.push_back(0);
    return result;
  }

  void insert() {
    const ImageKey key = next_key_++;
    Conversation image = make();
    index.insert(key, prefix_chain(image.span(), image.salt), image.length());
    images.emplace(key, std::move(image));
  }
  void erase_one() {
    if (images.empty()) return;
    const auto at = std::next(images.begin(), static_cast<int>(pick(static_cast<uint32_t>(images.size()))));
    index.erase(at->first);
    ASSERT_FALSE(index.contains(at->first));
    images.erase(at);
  }

  void check(const Conversation& prompt, size_t limit) {
    const auto found = index.find(prompt.span(), prompt.salt, limit);
    std::vector<Candidate> all;
    for (const auto& [key, image] : images) all.push_back(expected(key, image, prompt));
    size_t others = 0;
    for (const Candidate& candidate : found) {
      const auto right =
          std::find_if(all.begin(), all.end(), [&](const Candidate& c) { return c.key == candidate.key; });
      ASSERT_NE(right, all.end()) << "unknown or twice: " << candidate.key;
      ASSERT_TRUE(same(candidate, *right))
          << candidate.at_least << ".." << candidate.at_most << " instead of " << right->at_least << ".."
          << right->at_most << (right->whole ? " whole" : "");
      others += candidate.whole ? 0 : 1;
      all.erase(right);
    }
    ASSERT_EQ(others, std::min(limit, others + all.size()))
        << "fewer than the limit although there were more";
    ASSERT_TRUE(std::is_sorted(found.begin(), found.end(),
                               [](const Candidate& a, const Candidate& b) { return a.at_most > b.at_most; }));
    uint32_t worst_other = ~0u;
    for (const Candidate& candidate : found) {
      if (!candidate.whole) worst_other = candidate.at_most;
    }
    for (const Candidate& missing : all) {
      ASSERT_FALSE(missing.whole) << "a whole match is never left out";
      if (limit > 0) {
        ASSERT_LE(missing.at_most, worst_other) << "a better one was left out";
      }
    }
  }

  PrefixIndex index;
  std::map<ImageKey, Conversation> images;

 private:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  std::mt19937 random_;
  ImageKey next_key_ = 1;
};

TEST(PrefixIndex, RAM3_EqualsASearchThroughAllImages) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    Model model(seed);
    std::mt19937 random(seed + 1000);
    for (int step = 0; step < 120; ++step) {
      if (random() % 4 == 0) {
        ASSERT_NO_FATAL_FAILURE(model.erase_one());
      } else {
        model.insert();
      }
      if (random() % 5 == 0 && !model.images.empty()) model.index.touch(model.images.begin()->first);
      ASSERT_EQ(model.index.size(), model.images.size());
      const size_t limit = random() % 3 == 0 ? random() % 6 : 1000;
      ASSERT_NO_FATAL_FAILURE(model.check(model.make(), limit)) << "seed " << seed << " step " << step;
    }
    while (!model.images.empty()) ASSERT_NO_FATAL_FAILURE(model.erase_one());
    EXPECT_EQ(model.index.memory_bytes(), PrefixIndex().memory_bytes()) << "nothing is left behind";
    EXPECT_TRUE(model.index.find(model.make().span(), 0, 10).empty());
  }
}

std::vector<Token> random_tokens(std::mt19937& random, uint32_t count) {
  std::vector<Token> result(count);
  for (Token& token : result) token = static_cast<Token>(random() % 50000);
  return result;
}

TEST(PrefixIndex, AmongEqualsTheLastUsedComeFirst) {
  std::mt19937 random(5);
  const std::vector<Token> root = random_tokens(random, 4 * kChunk);
  PrefixIndex index;
  for (ImageKey key = 1; key <= 100; ++key) {
    Conversation image{root, {}, 0};
    const auto tail = random_tokens(random, 2 * kChunk);
    image.tokens.insert(image.tokens.end(), tail.begin(), tail.end());
    index.insert(key, prefix_chain(image.span(), 0), image.length());
  }
  index.touch(17);
  const auto found = index.find({root, {}}, 0, 3);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].key, 17u);
  EXPECT_EQ(found[1].key, 100u);
  EXPECT_EQ(found[2].key, 99u);
}

TEST(PrefixIndex, RAM3_ManyWholeMatchesOfDifferentLengthsAreAllFound) {
  std::mt19937 random(6);
  const std::vector<Token> tokens = random_tokens(random, 3 * kChunk);
  PrefixIndex index;
  for (uint32_t length = 1; length <= tokens.size(); ++length) {
    const TokenSpan span{std::span(tokens).first(length), {}};
    index.insert(length, prefix_chain(span, 9), length);
  }
  const auto found = index.find({std::span(tokens).first(700), {}}, 9, 0);
  ASSERT_EQ(found.size(), 700u);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].whole);
    EXPECT_EQ(found[i].at_least, 700 - i);
  }
  EXPECT_TRUE(index.find({tokens, {}}, 8, 0).empty()) << "another tenant's prompt matches nothing whole";
}

// P-7: sharing a prefix costs it once.
TEST(PrefixIndex, SharedPrefixesAreHeldOnce) {
  std::mt19937 random(7);
  const std::vector<Token> root = random_tokens(random, 400 * kChunk);
  PrefixIndex index;
  for (ImageKey key = 1; key <= 200; ++key) {
    Conversation image{root, {}, 0};
    const auto tail = random_tokens(random, kChunk);
    image.tokens.insert(image.tokens.end(), tail.begin(), tail.end());
    index.insert(key, prefix_chain(image.span(), 0), image.length());
  }
  EXPECT_LT(index.memory_bytes(), 400 * sizeof(uint64_t) + 200 * 400);
}

TEST(PrefixIndex, UnknownKeysAreNoProblemAndAWrongChainIsABug) {
  PrefixIndex index;
  index.erase(1);
  index.touch(1);
  index.insert(1, {5}, 3);
  EXPECT_TRUE(index.contains(1));
  EXPECT_DEATH(index.insert(1, {5}, 3), "internal error");
  EXPECT_DEATH(index.insert(2, {5}, 300), "internal error");
}

}  // namespace
}  // namespace strata
