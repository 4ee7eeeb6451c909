// PrefixIndex as a radix tree. A node stands for a run of full-chunk links that all images below it share;
// each node owns its run, so a prefix shared by many images is held once. Images hang on the node where their
// last full chunk ends; what is left of them (less than a chunk) is a tail of that node.
#include "tiers/prefix_index.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/check.hpp"
#include "core/limits.hpp"

namespace strata {
namespace {

constexpr uint32_t kChunk = limits::kPrefixChunkTokens;
// What a hash map entry costs beyond its value: next pointer, cached hash, bucket, allocator header.
constexpr uint64_t kMapEntryBytes = 40;

struct Tail {
  uint32_t tokens = 0;  // beyond the node's last full chunk, less than one chunk
  uint64_t link = 0;    // chain value at the image's end; 0 when tokens is 0
  ImageKey key = 0;
  auto operator<=>(const Tail&) const = default;
};

struct Node {
  std::vector<uint64_t>
      run;  // full-chunk links from the parent's end to this node's end; empty at the root only
  uint32_t end_chunks = 0;  // full chunks from the root to this node's end
  Node* parent = nullptr;
  // Children, the one inserted into or touched last comes first.
  Node* first_child = nullptr;
  Node* previous = nullptr;
  Node* next = nullptr;
  std::vector<Tail> tails;  // sorted

  [[nodiscard]] uint32_t start_chunks() const { return end_chunks - static_cast<uint32_t>(run.size()); }
};

void push_front(Node& parent, Node& child) {
  child.parent = &parent;
  child.previous = nullptr;
  child.next = parent.first_child;
  if (child.next != nullptr) child.next->previous = &child;
  parent.first_child = &child;
}

void unlink(Node& child) {
  if (child.previous != nullptr) child.previous->next = child.next;
  if (child.next != nullptr) child.next->previous = child.previous;
  if (child.parent->first_child == &child) child.parent->first_child = child.next;
  child.previous = child.next = nullptr;
}

struct ChildName {
  const Node* parent = nullptr;
  uint64_t link = 0;
  bool operator==(const ChildName&) const = default;
};

struct ChildNameHash {
  size_t operator()(const ChildName& name) const noexcept {
    return name.link ^ (reinterpret_cast<uintptr_t>(name.parent) * 0x9E3779B97F4A7C15ull);
  }
};

struct ImagePlace {
  Node* node = nullptr;
  Tail tail;
};

// Computes the prompt's chain as far as it is asked for, once.
class LazyChain {
 public:
  LazyChain(TokenSpan prompt, uint64_t salt)
      : prompt_(prompt), full_chunks_(static_cast<uint32_t>(prompt.tokens.size()) / kChunk) {
    values_.push_back(prefix_start(salt));
  }
  [[nodiscard]] bool has(uint32_t chunk) const { return chunk < full_chunks_; }
  [[nodiscard]] uint64_t link(uint32_t chunk) {
    while (values_.size() <= chunk + 1) {
      const auto from = static_cast<uint32_t>(values_.size() - 1) * kChunk;
      values_.push_back(prefix_link(prompt_, from, from + kChunk, values_.back()));
    }
    return values_[chunk + 1];
  }
  // The link of `tokens` tokens behind `chunks` full chunks whose links were asked for.
  [[nodiscard]] uint64_t partial_link(uint32_t chunks, uint32_t tokens) const {
    return prefix_link(prompt_, chunks * kChunk, chunks * kChunk + tokens, values_[chunks]);
  }

 private:
  TokenSpan prompt_;
  uint32_t full_chunks_;
  std::vector<uint64_t> values_;  // [i]: after i full chunks
};

// How far the prompt's chain can be followed down the tree.
struct Walk {
  std::vector<const Node*> nodes;  // passed whole, the root first
  const Node* partly = nullptr;    // a child of the last node of which only a part of the run agrees
  uint32_t chunks = 0;             // full chunks that agree
};

}  // namespace

struct PrefixIndex::Impl {
  Node root;
  std::unordered_map<ChildName, std::unique_ptr<Node>, ChildNameHash> nodes;  // all but the root
  std::unordered_map<ImageKey, ImagePlace> images;
  uint64_t run_links = 0;  // held by all nodes, allocated
  uint64_t tail_capacity = 0;

  Node* child(const Node& parent, uint64_t link) const {
    const auto found = nodes.find(ChildName{&parent, link});
    return found == nodes.end() ? nullptr : found->second.get();
  }

  void set_run(Node& node, std::vector<uint64_t> run) {
    run.shrink_to_fit();
    run_links += run.capacity();
    run_links -= node.run.capacity();
    node.run = std::move(run);
  }

  Node& add_child(Node& parent, std::vector<uint64_t> run) {
    auto& slot = nodes[ChildName{&parent, run.front()}];
    STRATA_CHECK(slot == nullptr);
    slot = std::make_unique<Node>();
    slot->end_chunks = parent.end_chunks + static_cast<uint32_t>(run.size());
    set_run(*slot, std::move(run));
    push_front(parent, *slot);
    return *slot;
  }

  // Cuts the node's run after `keep` links; the upper half becomes a new node, which is returned.
  Node& split(Node& node, size_t keep) {
    const auto middle = node.run.begin() + static_cast<std::ptrdiff_t>(keep);
    std::vector<uint64_t> upper(node.run.begin(), middle);
    std::vector<uint64_t> lower(middle, node.run.end());
    Node& parent = *node.parent;
    auto held = nodes.extract(ChildName{&parent, upper.front()});
    unlink(node);
    Node& above = add_child(parent, std::move(upper));
    held.key() = ChildName{&above, lower.front()};
    set_run(node, std::move(lower));
    push_front(above, node);
    nodes.insert(std::move(held));
    return above;
  }

  // The node at which the given full links end, made if need be.
  Node& node_for(std::vector<uint64_t> links) {
    Node* at = &root;
    size_t done = 0;
    while (done < links.size()) {
      Node* next = child(*at, links[done]);
      if (next == nullptr) {
        if (done > 0) links.erase(links.begin(), links.begin() + static_cast<std::ptrdiff_t>(done));
        return add_child(*at, std::move(links));
      }
      const size_t room = std::min(next->run.size(), links.size() - done);
      const auto differs =
          std::mismatch(next->run.begin(), next->run.begin() + static_cast<std::ptrdiff_t>(room),
                        links.begin() + static_cast<std::ptrdiff_t>(done));
      const auto agree = static_cast<size_t>(differs.first - next->run.begin());
      at = agree < next->run.size() ? &split(*next, agree) : next;
      done += agree;
    }
    return *at;
  }

  void bring_to_front(Node& node) {
    for (Node* at = &node; at->parent != nullptr; at = at->parent) {
      if (at->previous == nullptr) continue;
      Node& parent = *at->parent;
      unlink(*at);
      push_front(parent, *at);
    }
  }

  void remove(Node& node) {
    run_links -= node.run.capacity();
    tail_capacity -= node.tails.capacity();
    unlink(node);
    nodes.erase(ChildName{node.parent, node.run.front()});
  }

  // Joins a node that has nothing of its own with its only child.
  void join_with_child(Node& node) {
    Node& below = *node.first_child;
    Node& parent = *node.parent;
    std::vector<uint64_t> run = node.run;
    run.insert(run.end(), below.run.begin(), below.run.end());
    auto held = nodes.extract(ChildName{&node, below.run.front()});
    unlink(below);
    remove(node);
    held.key() = ChildName{&parent, run.front()};
    set_run(below, std::move(run));
    push_front(parent, below);
    nodes.insert(std::move(held));
  }

  // Restores the rule that every node but the root has tails or at least two children.
  void tidy(Node& start) {
    if (start.parent == nullptr || !start.tails.empty()) return;
    Node* node = &start;
    if (node->first_child == nullptr) {
      Node* parent = node->parent;
      remove(*node);
      node = parent;
    }
    const bool only_child = node->first_child != nullptr && node->first_child->next == nullptr;
    if (node->parent != nullptr && node->tails.empty() && only_child) join_with_child(*node);
  }

  Walk walk(LazyChain& chain) const {
    Walk result;
    result.nodes.push_back(&root);
    while (chain.has(result.chunks)) {
      const Node* next = child(*result.nodes.back(), chain.link(result.chunks));
      if (next == nullptr) break;
      size_t agree = 1;
      ++result.chunks;
      while (agree < next->run.size() && chain.has(result.chunks) &&
             chain.link(result.chunks) == next->run[agree]) {
        ++agree;
        ++result.chunks;
      }
      if (agree < next->run.size()) {
        result.partly = next;
        break;
      }
      result.nodes.push_back(next);
    }
    return result;
  }
};

namespace {

// Collects candidates level by level, deepest agreement first; every level is better than all above it.
class Collector {
 public:
  Collector(LazyChain& chain, uint32_t prompt_tokens, size_t limit)
      : chain_(chain), prompt_tokens_(prompt_tokens), limit_(limit) {}

  // Every image in the tree below (and at) `top`, as agreeing on `chunks` full chunks and no more.
  void add_tree(const Node& top, uint32_t chunks) {
    const Candidate shape{0, chunks * kChunk, std::min(chunks * kChunk + kChunk - 1, prompt_tokens_), false};
    const Node* at = &top;
    while (others_ < limit_) {
      for (const Tail& tail : at->tails) add_other(shape, tail.key);
      if (at->first_child != nullptr) {
        at = at->first_child;
        continue;
      }
      while (at != &top && at->next == nullptr) at = at->parent;
      if (at == &top) return;
      at = at->next;
    }
  }

  void add_children(const Node& node, const Node* except) {
    for (const Node* at = node.first_child; at != nullptr && others_ < limit_; at = at->next) {
      if (at != except) add_tree(*at, node.end_chunks);
    }
  }

  // Images that end inside the chunk behind this node, longest first.
  void add_tails(const Node& node) {
    auto end = node.tails.end();
    while (end != node.tails.begin()) {
      const uint32_t tokens = std::prev(end)->tokens;
      const auto begin = std::lower_bound(node.tails.begin(), end, Tail{tokens, 0, 0});
      add_tails_of(node, tokens, begin, end);
      end = begin;
    }
  }

  // Best first.
  std::vector<PrefixIndex::Candidate> take() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.at_most > b.at_most; });
    return std::move(found_);
  }

 private:
  using Candidate = PrefixIndex::Candidate;
  using TailIterator = std::vector<Tail>::const_iterator;

  // Tails of one length: those with the prompt's own link are whole, the others differ somewhere inside.
  void add_tails_of(const Node& node, uint32_t tokens, TailIterator begin, TailIterator end) {
    const uint32_t first = node.end_chunks * kChunk;
    const uint32_t rest = prompt_tokens_ - first;
    if (tokens > rest) {
      for (auto at = begin; at != end && others_ < limit_; ++at)
        add_other({0, first, prompt_tokens_, false}, at->key);
      return;
    }
    const uint64_t link = tokens == 0 ? 0 : chain_.partial_link(node.end_chunks, tokens);
    const auto whole = std::lower_bound(begin, end, Tail{tokens, link, 0});
    auto behind = whole;
    for (; behind != end && behind->link == link; ++behind) {
      found_.push_back({behind->key, first + tokens, first + tokens, true});
    }
    for (auto at = begin; at != whole && others_ < limit_; ++at)
      add_other({0, first, first + tokens - 1, false}, at->key);
    for (auto at = behind; at != end && others_ < limit_; ++at)
      add_other({0, first, first + tokens - 1, false}, at->key);
  }

  void add_other(Candidate candidate, ImageKey key) {
    if (others_ >= limit_) return;
    ++others_;
    candidate.key = key;
    found_.push_back(candidate);
  }

  LazyChain& chain_;
  uint32_t prompt_tokens_;
  size_t limit_;
  size_t others_ = 0;  // found that are not whole
  std::vector<Candidate> found_;
};

}  // namespace

PrefixIndex::PrefixIndex() : impl_(std::make_unique<Impl>()) {}
PrefixIndex::~PrefixIndex() = default;

void PrefixIndex::insert(ImageKey key, std::vector<uint64_t> chain, uint32_t length) {
  STRATA_CHECK(chain.size() == (length + kChunk - 1) / kChunk);
  Tail tail{length % kChunk, 0, key};
  if (tail.tokens != 0) {
    tail.link = chain.back();
    chain.pop_back();
  }
  Node& node = impl_->node_for(std::move(chain));
  const bool added = impl_->images.emplace(key, ImagePlace{&node, tail}).second;
  STRATA_CHECK(added);
  impl_->tail_capacity -= node.tails.capacity();
  node.tails.insert(std::upper_bound(node.tails.begin(), node.tails.end(), tail), tail);
  impl_->tail_capacity += node.tails.capacity();
  impl_->bring_to_front(node);
}

void PrefixIndex::erase(ImageKey key) {
  const auto found = impl_->images.find(key);
  if (found == impl_->images.end()) return;
  Node& node = *found->second.node;
  node.tails.erase(std::lower_bound(node.tails.begin(), node.tails.end(), found->second.tail));
  if (node.tails.empty()) {
    impl_->tail_capacity -= node.tails.capacity();
    std::vector<Tail>().swap(node.tails);
  }
  impl_->images.erase(found);
  impl_->tidy(node);
}

void PrefixIndex::touch(ImageKey key) {
  const auto found = impl_->images.find(key);
  if (found != impl_->images.end()) impl_->bring_to_front(*found->second.node);
}

bool PrefixIndex::contains(ImageKey key) const { return impl_->images.contains(key); }

size_t PrefixIndex::size() const { return impl_->images.size(); }

uint64_t PrefixIndex::memory_bytes() const {
  const uint64_t per_node = sizeof(Node) + sizeof(ChildName) + sizeof(void*) + kMapEntryBytes;
  const uint64_t per_image = sizeof(ImageKey) + sizeof(ImagePlace) + kMapEntryBytes;
  return sizeof(Impl) + impl_->run_links * sizeof(uint64_t) + impl_->tail_capacity * sizeof(Tail) +
         impl_->nodes.size() * per_node + impl_->images.size() * per_image;
}

std::vector<PrefixIndex::Candidate> PrefixIndex::find(TokenSpan prompt, uint64_t prompt_salt,
                                                      size_t limit) const {
  LazyChain chain(prompt, prompt_salt);
  const Walk walk = impl_->walk(chain);
  Collector collector(chain, static_cast<uint32_t>(prompt.tokens.size()), limit);
  if (walk.partly != nullptr) collector.add_tree(*walk.partly, walk.chunks);
  const Node* below = walk.partly;
  for (auto at = walk.nodes.rbegin(); at != walk.nodes.rend(); ++at) {
    collector.add_children(**at, below);
    collector.add_tails(**at);
    below = *at;
  }
  return collector.take();
}

}  // namespace strata
