// Shared prefixes and the prefix chain (RAM-3, B-8).
#include "core/token_span.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "core/limits.hpp"

namespace strata {
namespace {

std::vector<Token> counting(size_t size) {
  std::vector<Token> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(CommonPrefix, EndsAtTheFirstDifferentToken) {
  const std::vector<Token> a = counting(1000);
  for (const size_t at : {0u, 1u, 500u, 999u}) {
    std::vector<Token> b = a;
    b[at] = -1;
    EXPECT_EQ(common_prefix({a, {}}, {b, {}}), at);
    EXPECT_EQ(common_prefix({b, {}}, {a, {}}), at);
  }
  EXPECT_EQ(common_prefix({a, {}}, {a, {}}), 1000u);
  EXPECT_EQ(common_prefix({a, {}}, {std::span(a).first(10), {}}), 10u);
  EXPECT_EQ(common_prefix({a, {}}, {}), 0u);
}

TEST(CommonPrefix, ImagesTakePartByContentAndPosition) {
  const std::vector<Token> tokens = counting(100);
  const std::vector<MediaMark> one = {{10, 1}, {50, 2}};
  const auto with = [&](const std::vector<MediaMark>& other) {
    return common_prefix({tokens, one}, {tokens, other});
  };
  EXPECT_EQ(with({{10, 1}, {50, 2}}), 100u);
  EXPECT_EQ(with({{10, 9}, {50, 2}}), 10u);  // another picture
  EXPECT_EQ(with({{10, 1}, {50, 9}}), 50u);
  EXPECT_EQ(with({{11, 1}, {50, 2}}), 10u);  // another position
  EXPECT_EQ(with({{10, 1}}), 50u);           // only one has a picture there
  EXPECT_EQ(with({}), 10u);
  EXPECT_EQ(with({{10, 1}, {50, 2}, {99, 3}}), 99u);
}

TEST(CommonPrefix, MarksPastTheCommonTokensDoNotCount) {
  const std::vector<Token> a = counting(100);
  std::vector<Token> b = a;
  b[20] = -1;
  const std::vector<MediaMark> marks = {{50, 1}};
  EXPECT_EQ(common_prefix({a, marks}, {b, {}}), 20u);
}

TEST(PrefixChain, OneLinkPer256TokensAndOneForTheRest) {
  const std::vector<Token> tokens = counting(600);
  EXPECT_EQ(prefix_chain({tokens, {}}, 0).size(), 3u);
  EXPECT_EQ(prefix_chain({std::span(tokens).first(512), {}}, 0).size(), 2u);
  EXPECT_EQ(prefix_chain({std::span(tokens).first(1), {}}, 0).size(), 1u);
  EXPECT_TRUE(prefix_chain({}, 0).empty());
}

TEST(PrefixChain, LinksOfASharedPrefixAgreeAndThenNever) {
  const std::vector<Token> a = counting(2000);
  std::vector<Token> b = a;
  b[700] = -1;  // in the third chunk
  const auto chain_a = prefix_chain({a, {}}, 0);
  const auto chain_b = prefix_chain({b, {}}, 0);
  for (size_t i = 0; i < chain_a.size(); ++i) EXPECT_EQ(chain_a[i] == chain_b[i], i < 2) << i;
}

TEST(PrefixChain, SaltSeparatesTenants) {  // B-8
  const std::vector<Token> tokens = counting(600);
  const auto one = prefix_chain({tokens, {}}, 1);
  const auto two = prefix_chain({tokens, {}}, 2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], two[i]);
}

TEST(PrefixChain, ImagesTakePart) {
  const std::vector<Token> tokens = counting(600);
  const std::vector<MediaMark> mark = {{300, 7}};
  const std::vector<MediaMark> other = {{300, 8}};
  const auto plain = prefix_chain({tokens, {}}, 0);
  const auto with = prefix_chain({tokens, mark}, 0);
  EXPECT_EQ(plain[0], with[0]);
  EXPECT_NE(plain[1], with[1]);
  EXPECT_NE(plain[2], with[2]);
  EXPECT_NE(with[1], prefix_chain({tokens, other}, 0)[1]);
}

TEST(PrefixChain, LinkByLinkGivesTheChain) {
  const std::vector<Token> tokens = counting(600);
  const std::vector<MediaMark> marks = {{256, 1}, {511, 2}, {512, 3}};
  const TokenSpan span{tokens, marks};
  uint64_t link = prefix_start(3);
  std::vector<uint64_t> chain;
  for (uint32_t from = 0; from < 600; from += limits::kPrefixChunkTokens) {
    link = prefix_link(span, from, std::min(600u, from + limits::kPrefixChunkTokens), link);
    chain.push_back(link);
  }
  EXPECT_EQ(chain, prefix_chain(span, 3));
}

}  // namespace
}  // namespace strata
