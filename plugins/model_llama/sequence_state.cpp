#include "plugins/model_llama/sequence_state.hpp"

#include <cstring>

#include "plugins/model_llama/failure.hpp"

namespace strata::llama {
namespace {

constexpr llama_state_seq_flags kAll = LLAMA_STATE_SEQ_FLAGS_NONE;
constexpr llama_state_seq_flags kSideOnly = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
constexpr uint64_t kHeaderBytes = 8;  // llama.cpp's: a magic number and the sequence id

// In front of side parts and whole states, whose length says nothing about their position.
struct Frame {
  uint32_t magic = 0x31435453;  // "STC1"
  uint32_t position = 0;
  uint64_t bytes = 0;  // that follow
};
static_assert(sizeof(Frame) == 16);

// The scratch sequence holds something for the length of one export or import.
class ScratchUse {
 public:
  explicit ScratchUse(llama_memory_t memory) : memory_(memory) {}
  ~ScratchUse() { llama_memory_seq_rm(memory_, SequenceState::kScratch, -1, -1); }
  ScratchUse(const ScratchUse&) = delete;
  ScratchUse& operator=(const ScratchUse&) = delete;

 private:
  llama_memory_t memory_;
};

unsigned long long wide(uint64_t value) { return value; }

uint8_t* bytes_of(std::span<std::byte> data) { return reinterpret_cast<uint8_t*>(data.data()); }
const uint8_t* bytes_of(std::span<const std::byte> data) {
  return reinterpret_cast<const uint8_t*>(data.data());
}

PartSize rule(uint64_t at_half, uint64_t at_full, uint32_t half, uint32_t full) {
  PartSize size;
  if (at_full < at_half || (at_full - at_half) % (full - half) != 0)
    raise(STRATA_UNSUPPORTED, "the state's size follows no rule: %llu bytes at %u tokens, %llu at %u",
          wide(at_half), half, wide(at_full), full);
  size.per_token = (at_full - at_half) / (full - half);
  if (size.per_token * half > at_half) raise(STRATA_UNSUPPORTED, "the state's size follows no rule");
  size.base = at_half - size.per_token * half;
  return size;
}

}  // namespace

uint64_t SequenceState::side_bytes(llama_seq_id sequence) const {
  const uint64_t all = llama_state_seq_get_size_ext(context_, sequence, kAll);
  const uint64_t side = llama_state_seq_get_size_ext(context_, sequence, kSideOnly);
  return side == all ? 0 : side;
}

uint64_t SequenceState::block_bytes(llama_seq_id sequence, uint32_t first, uint32_t count) {
  const ScratchUse use(memory_);
  llama_memory_seq_cp(memory_, sequence, kScratch, static_cast<llama_pos>(first),
                      static_cast<llama_pos>(first + count));
  const uint64_t all = scratch_size(kAll);
  const uint64_t side = scratch_size(kSideOnly);
  return side == all ? all : all - (side - kHeaderBytes);
}

StateLayout SequenceState::measure(llama_seq_id sequence, uint32_t tokens) {
  StateLayout layout;
  const uint64_t empty_all = scratch_size(kAll);
  const uint64_t empty_side = scratch_size(kSideOnly);
  const uint64_t all = llama_state_seq_get_size_ext(context_, sequence, kAll);
  const uint64_t side = llama_state_seq_get_size_ext(context_, sequence, kSideOnly);
  if (side != all) {
    std::vector<std::byte> data(empty_side);
    read_scratch(data, kSideOnly);
    layout.empty_side.assign(data.begin() + kHeaderBytes, data.end());
    if (empty_all < empty_side || side < kHeaderBytes)
      raise(STRATA_UNSUPPORTED, "the state has an unknown form");
  }
  const uint32_t half = tokens / 2;
  layout.block = rule(block_bytes(sequence, 0, half), block_bytes(sequence, 0, tokens), half, tokens);
  const PartSize odd = rule(block_bytes(sequence, 1, 1), block_bytes(sequence, 1, 3), 1, 3);
  if (odd.base != layout.block.base || odd.per_token != layout.block.per_token)
    raise(STRATA_UNSUPPORTED, "blocks of equal length differ in size");
  return layout;
}

void SequenceState::read_scratch(std::span<std::byte> to, llama_state_seq_flags flags) const {
  const size_t written = llama_state_seq_get_data_ext(context_, bytes_of(to), to.size(), kScratch, flags);
  if (written != to.size())
    raise(STRATA_INTERNAL, "llama.cpp wrote %llu bytes of state, not %llu", wide(written), wide(to.size()));
}

void SequenceState::export_block(const StateLayout& layout, llama_seq_id from, uint32_t first, uint32_t count,
                                 std::span<std::byte> to) {
  const ScratchUse use(memory_);
  llama_memory_seq_cp(memory_, from, kScratch, static_cast<llama_pos>(first),
                      static_cast<llama_pos>(first + count));
  if (!layout.has_side()) return read_scratch(to, kAll);
  buffer_.resize(scratch_size(kAll));
  read_scratch(buffer_, kAll);
  if (buffer_.size() < to.size()) raise(STRATA_INTERNAL, "a block of %u tokens is too short", count);
  std::memcpy(to.data(), buffer_.data(), to.size());
}

void SequenceState::import_block(const StateLayout& layout, llama_seq_id into, uint32_t first, uint32_t count,
                                 uint32_t used, std::span<const std::byte> from, llama_seq_id rest) {
  const ScratchUse use(memory_);
  std::span<const std::byte> data = from;
  if (layout.has_side()) {
    buffer_.resize(from.size() + layout.empty_side.size());
    std::memcpy(buffer_.data(), from.data(), from.size());
    std::memcpy(buffer_.data() + from.size(), layout.empty_side.data(), layout.empty_side.size());
    data = buffer_;
  }
  if (llama_state_seq_set_data_ext(context_, bytes_of(data), data.size(), kScratch, kAll) != data.size())
    raise(STRATA_CORRUPT, "llama.cpp refused the block of %u tokens at %u", count, first);
  llama_memory_seq_cp(memory_, kScratch, into, static_cast<llama_pos>(first),
                      static_cast<llama_pos>(first + used));
  if (used < count)
    llama_memory_seq_cp(memory_, kScratch, rest, static_cast<llama_pos>(first + used),
                        static_cast<llama_pos>(first + count));
}

uint64_t SequenceState::export_framed(llama_seq_id from, uint32_t position, bool whole,
                                      std::span<std::byte> to) {
  const llama_state_seq_flags flags = whole ? kAll : kSideOnly;
  const ScratchUse use(memory_);
  llama_memory_seq_cp(memory_, from, kScratch, -1, -1);
  Frame frame;
  frame.position = position;
  frame.bytes = scratch_size(flags);
  if (to.size() < sizeof frame + frame.bytes)
    raise(STRATA_INVALID, "checkpoint has %llu bytes, more than the %llu there is room for",
          wide(sizeof frame + frame.bytes), wide(to.size()));
  read_scratch(to.subspan(sizeof frame, frame.bytes), flags);
  std::memcpy(to.data(), &frame, sizeof frame);
  return sizeof frame + frame.bytes;
}

bool SequenceState::frame_fits(std::span<const std::byte> from, uint32_t position) {
  Frame frame;
  if (from.size() < sizeof frame) return false;
  std::memcpy(&frame, from.data(), sizeof frame);
  return frame.magic == Frame{}.magic && frame.position == position &&
         frame.bytes == from.size() - sizeof frame;
}

void SequenceState::import_framed(llama_seq_id into, bool whole, std::span<const std::byte> from) {
  const std::span<const std::byte> data = from.subspan(sizeof(Frame));
  const llama_state_seq_flags flags = whole ? kAll : kSideOnly;
  if (llama_state_seq_set_data_ext(context_, bytes_of(data), data.size(), into, flags) != data.size())
    raise(STRATA_CORRUPT, "llama.cpp refused the checkpoint");
}

void SequenceState::lay_anew(llama_seq_id sequence) {
  std::vector<std::byte> data(llama_state_seq_get_size_ext(context_, sequence, kAll));
  const size_t size =
      llama_state_seq_get_data_ext(context_, bytes_of(std::span(data)), data.size(), sequence, kAll);
  remove(sequence);
  if (size != data.size() || llama_state_seq_set_data_ext(context_, bytes_of(std::span(data)), data.size(),
                                                          sequence, kAll) != data.size()) {
    remove(sequence);
    raise(STRATA_INTERNAL, "llama.cpp cannot move a sequence of %llu bytes to other cells",
          wide(data.size()));
  }
}

void SequenceState::move(llama_seq_id from, llama_seq_id to) {
  remove(to);
  llama_memory_seq_cp(memory_, from, to, -1, -1);
  remove(from);
}

}  // namespace strata::llama
