#include "tiers/pinned_pool.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "core/limits.hpp"

namespace strata {
namespace {

constexpr auto kPage = std::align_val_t{limits::kAlignment};
// Smaller slabs come from the allocator: they would be no huge pages, and each would be a mapping of its own.
constexpr uint64_t kMinSlabFromSystem = 2 * limits::kMiB;
constexpr uint64_t kTouchedAtOnce = 2 * limits::kMiB;

struct Slab {
  std::span<std::byte> memory;
  bool registered = false;
  bool from_system = false;
  bool for_transfers = false;  // registered with the queue
};

}  // namespace

class PinnedPool::State : public std::enable_shared_from_this<PinnedPool::State> {
 public:
  State(Device& device, Log& log, uint64_t budget_bytes, const Backing& backing)
      : device_(device), log_(log), budget_bytes_(budget_bytes), backing_(backing) {}
  ~State() { close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<HostBufferRef> allocate(uint64_t bytes);
  void release(const Slab& slab);
  void trim(uint64_t bytes);
  bool grow_ahead(uint64_t bytes);
  // Nothing is kept from now on.
  void close() {
    closed_ = true;
    drop_growing();
    while (!kept_.empty()) destroy_oldest();
  }

  [[nodiscard]] uint64_t in_use_bytes() const { return in_use_bytes_; }
  [[nodiscard]] uint64_t allocated_bytes() const {
    return in_use_bytes_ + kept_bytes_ + growing_.memory.size();
  }
  [[nodiscard]] uint64_t budget_bytes() const { return budget_bytes_; }
  [[nodiscard]] uint64_t unallocated_bytes() const { return budget_bytes_ - allocated_bytes(); }

 private:
  Result<Slab> create(uint64_t class_size);
  Result<Slab> take_memory(uint64_t class_size);
  void register_everywhere(Slab& slab);
  bool start_growing(uint64_t class_size);
  bool touch_growing();
  void drop_growing();
  void keep(const Slab& slab);
  [[nodiscard]] uint64_t kept_class_for(uint64_t class_size) const;  // 0: none
  Slab take_kept(uint64_t class_size);
  void destroy_oldest();
  void destroy(const Slab& slab);
  [[nodiscard]] bool register_memory(std::span<std::byte> memory);
  [[nodiscard]] bool register_transfers(std::span<std::byte> memory);

  Device& device_;
  Log& log_;
  const uint64_t budget_bytes_;
  const Backing backing_;
  uint64_t in_use_bytes_ = 0;
  uint64_t kept_bytes_ = 0;
  bool registering_ = true;  // until the first refusal
  bool registering_transfers_ = true;
  bool closed_ = false;
  Slab growing_;                                                             // being touched
  uint64_t touched_bytes_ = 0;                                               // of it
  std::list<Slab> kept_;                                                     // released longest ago first
  std::map<uint64_t, std::deque<std::list<Slab>::iterator>> kept_by_class_;  // same order within a class
};

namespace {

class PooledBuffer final : public HostBuffer {
 public:
  PooledBuffer(std::shared_ptr<void> state, Slab slab, void (*release)(void*, const Slab&))
      : state_(std::move(state)), slab_(slab), release_(release) {}
  ~PooledBuffer() override { release_(state_.get(), slab_); }
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const override { return slab_.memory; }

 private:
  std::shared_ptr<void> state_;  // the pool's state is a private type
  Slab slab_;
  void (*release_)(void*, const Slab&);
};

}  // namespace

Result<HostBufferRef> PinnedPool::State::allocate(uint64_t bytes) {
  if (bytes > limits::kMaxCheckpointBytes) {
    return make_error(ErrorCode::exhausted,
                      "pinned memory: " + std::to_string(bytes) + " bytes are more than any part may have");
  }
  const uint64_t size = class_bytes(bytes);
  Slab slab;
  if (const uint64_t kept = kept_class_for(size); kept != 0) {
    slab = take_kept(kept);
  } else {
    STRATA_ASSIGN(slab, create(size));
  }
  in_use_bytes_ += slab.memory.size();
  return HostBufferRef(std::make_shared<PooledBuffer>(
      shared_from_this(), slab,
      [](void* state, const Slab& back) { static_cast<State*>(state)->release(back); }));
}

// Touching a new slab costs more than the quarter that a kept one may be too large, as long as there is room:
// callers reckon with their own class.
uint64_t PinnedPool::State::kept_class_for(uint64_t class_size) const {
  const auto kept = kept_by_class_.lower_bound(class_size);
  if (kept == kept_by_class_.end()) return 0;
  if (kept->first == class_size) return class_size;
  const bool near = class_size >= kMinSlabFromSystem && kept->first - class_size <= class_size / 4;
  return near && in_use_bytes_ <= budget_bytes_ / 2 ? kept->first : 0;
}

Slab PinnedPool::State::take_kept(uint64_t class_size) {
  const auto entry = kept_by_class_.find(class_size);
  const auto newest = entry->second.back();  // the likeliest to be warm in the caches
  const Slab slab = *newest;
  entry->second.pop_back();
  if (entry->second.empty()) kept_by_class_.erase(entry);
  kept_.erase(newest);
  kept_bytes_ -= class_size;
  return slab;
}

Result<Slab> PinnedPool::State::create(uint64_t class_size) {
  const uint64_t available = budget_bytes_ - in_use_bytes_;
  if (class_size > available) {
    return make_error(ErrorCode::exhausted, "pinned memory: " + std::to_string(class_size) +
                                                " bytes wanted, " + std::to_string(available) +
                                                " of the budget left");
  }
  trim(class_size);
  STRATA_ASSIGN(Slab slab, take_memory(class_size));
  register_everywhere(slab);
  return slab;
}

void PinnedPool::State::register_everywhere(Slab& slab) {
  slab.registered = register_memory(slab.memory);
  slab.for_transfers = slab.from_system && register_transfers(slab.memory);
}

Result<Slab> PinnedPool::State::take_memory(uint64_t class_size) {
  if (backing_.pages != nullptr && class_size >= kMinSlabFromSystem) {
    auto memory = backing_.pages->take(class_size);
    if (!memory.ok()) return with_context(memory.error(), "pinned memory");
    return Slab{*memory, false, true, false};
  }
  auto* memory = static_cast<std::byte*>(::operator new(class_size, kPage, std::nothrow));
  if (memory == nullptr) {
    return make_error(ErrorCode::exhausted,
                      "pinned memory: the system has no " + std::to_string(class_size) + " bytes");
  }
  return Slab{{memory, class_size}, false, false, false};
}

// Slabs that are touched as they are taken are worth having before they are needed.
bool PinnedPool::State::grow_ahead(uint64_t bytes) {
  const uint64_t size = class_bytes(bytes);
  if (backing_.pages == nullptr || size < kMinSlabFromSystem) return false;
  if (growing_.memory.size() != size) drop_growing();
  return growing_.memory.empty() ? start_growing(size) : touch_growing();
}

bool PinnedPool::State::start_growing(uint64_t class_size) {
  if (class_size > unallocated_bytes()) return false;
  const auto memory = backing_.pages->reserve(class_size);
  if (!memory.ok()) return false;
  growing_ = Slab{*memory, false, true, false};
  touched_bytes_ = 0;
  return touch_growing();
}

bool PinnedPool::State::touch_growing() {
  const uint64_t piece = std::min<uint64_t>(kTouchedAtOnce, growing_.memory.size() - touched_bytes_);
  if (!backing_.pages->touch(growing_.memory.subspan(touched_bytes_, piece)).ok()) {
    drop_growing();
    return false;
  }
  touched_bytes_ += piece;
  if (touched_bytes_ < growing_.memory.size()) return true;
  Slab slab = std::exchange(growing_, {});
  register_everywhere(slab);
  keep(slab);
  return true;
}

void PinnedPool::State::drop_growing() {
  if (!growing_.memory.empty()) destroy(std::exchange(growing_, {}));
}

bool PinnedPool::State::register_memory(std::span<std::byte> memory) {
  if (!registering_) return false;
  const Status status = device_.register_host(memory);
  if (status.ok()) return true;
  registering_ = false;
  const bool expected = status.error().code == ErrorCode::unsupported;
  log_.write(
      expected ? LogLevel::info : LogLevel::warning,
      "pinned memory: the device registers no host memory, plain memory is used: " + status.error().message);
  return false;
}

// Saves the kernel the work of pinning the pages for every transfer.
bool PinnedPool::State::register_transfers(std::span<std::byte> memory) {
  if (backing_.transfers == nullptr || !registering_transfers_) return false;
  const Status status = backing_.transfers->register_buffer(memory);
  if (status.ok()) return true;
  registering_transfers_ = false;
  if (status.error().code != ErrorCode::unsupported)
    log_.write(LogLevel::warning,
               "pinned memory: not registered for transfers, plain ones are used: " + status.error().message);
  return false;
}

void PinnedPool::State::release(const Slab& slab) {
  const uint64_t size = slab.memory.size();
  in_use_bytes_ -= size;
  if (closed_) {
    destroy(slab);
    return;
  }
  keep(slab);
}

void PinnedPool::State::keep(const Slab& slab) {
  kept_bytes_ += slab.memory.size();
  kept_by_class_[slab.memory.size()].push_back(kept_.insert(kept_.end(), slab));
}

void PinnedPool::State::trim(uint64_t bytes) {
  if (unallocated_bytes() < bytes) drop_growing();
  while (!kept_.empty() && unallocated_bytes() < bytes) destroy_oldest();
}

void PinnedPool::State::destroy_oldest() {
  const Slab slab = kept_.front();
  const auto entry = kept_by_class_.find(slab.memory.size());
  entry->second.pop_front();
  if (entry->second.empty()) kept_by_class_.erase(entry);
  kept_.pop_front();
  kept_bytes_ -= slab.memory.size();
  destroy(slab);
}

void PinnedPool::State::destroy(const Slab& slab) {
  if (slab.registered) {
    if (const Status status = device_.unregister_host(slab.memory); !status.ok()) {
      log_.write(LogLevel::warning, "pinned memory: unregistering failed: " + status.error().message);
    }
  }
  if (slab.for_transfers) {
    if (const Status status = backing_.transfers->unregister_buffer(slab.memory); !status.ok()) {
      log_.write(LogLevel::warning, "pinned memory: unregistering failed: " + status.error().message);
    }
  }
  if (slab.from_system)
    backing_.pages->give_back(slab.memory);
  else
    ::operator delete(slab.memory.data(), kPage);
}

PinnedPool::PinnedPool(Device& device, Log& log, uint64_t budget_bytes, const Backing& backing)
    : state_(std::make_shared<State>(device, log, budget_bytes, backing)) {}

PinnedPool::~PinnedPool() { state_->close(); }

uint64_t PinnedPool::class_bytes(uint64_t bytes) {
  constexpr uint64_t kPageBytes = limits::kAlignment;
  constexpr uint64_t kMaxPages = uint64_t{1} << 50;  // far beyond any budget, and nothing overflows below
  const uint64_t pages = bytes == 0 ? 1 : (bytes - 1) / kPageBytes + 1;
  if (pages > kMaxPages) return std::numeric_limits<uint64_t>::max() / kPageBytes * kPageBytes;
  if (pages <= 4) return pages * kPageBytes;
  const uint64_t step = std::bit_floor(pages - 1) / 4;
  return (pages + step - 1) / step * step * kPageBytes;
}

Result<HostBufferRef> PinnedPool::allocate(uint64_t bytes) { return state_->allocate(bytes); }
uint64_t PinnedPool::in_use_bytes() const { return state_->in_use_bytes(); }
uint64_t PinnedPool::allocated_bytes() const { return state_->allocated_bytes(); }
uint64_t PinnedPool::budget_bytes() const { return state_->budget_bytes(); }
void PinnedPool::trim(uint64_t bytes) { state_->trim(bytes); }
bool PinnedPool::grow_ahead(uint64_t bytes) { return state_->grow_ahead(bytes); }

}  // namespace strata
