// PrefixIndex: which stored images share a prefix with a prompt, found through their prefix chains (a hint;
// the caller compares tokens). A radix tree over chain values: cost is linear in the prompt's chain, not in
// the number of images. Memory: each image's chain is held once (shared), plus a few nodes per image. One
// thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/token_span.hpp"
#include "core/types.hpp"

namespace strata {

using ImageKey = uint64_t;  // chosen by the caller, unique among inserted images

class PrefixIndex {
 public:
  PrefixIndex();
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // `chain` as prefix_chain() of an image of `length` tokens: full 256-token links, then one for the
  // remainder if any.
  void insert(ImageKey key, std::vector<uint64_t> chain, uint32_t length);
  void erase(ImageKey key);  // no effect when unknown
  // Says that the image was used: among equals find() returns those inserted or touched last. No effect when
  // unknown.
  void touch(ImageKey key);
  [[nodiscard]] bool contains(ImageKey key) const;
  [[nodiscard]] size_t size() const;
  // Bytes of memory held, for the ledger.
  [[nodiscard]] uint64_t memory_bytes() const;

  struct Candidate {
    ImageKey key = 0;
    uint32_t at_least = 0;  // tokens the chains agree on
    uint32_t at_most = 0;   // upper bound of the common prefix (< at_least + 256, ≤ both lengths)
    bool whole = false;     // the image's whole length is a prefix of the prompt, by its chain
  };
  // Best first: larger at_most first. Images whose whole length matches are always among the results; of the
  // others at most `limit` in all. Images sharing less than one chunk are returned too (at_least = 0), last,
  // within the limit; they may be of another salt, which the caller checks. `prompt_salt` as for
  // prefix_chain. The prompt is hashed once, and no further than its chain agrees with one of the images.
  [[nodiscard]] std::vector<Candidate> find(TokenSpan prompt, uint64_t prompt_salt, size_t limit) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
