// Parking: a slot's conversation becomes an image in the RAM tier by copying only what is not there yet
// (B-1), or is streamed straight to the disk (DM-1); the same machinery takes checkpoints while a prompt is
// read (RAM-6).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "tiers/part_list.hpp"
#include "tiers/stack.hpp"

namespace strata {

namespace {
double mib(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(limits::kMiB); }
}  // namespace

bool Stack::parks() const {
  const bool state_can_park = !model_.needs_checkpoints || options_.checkpoints_max > 0;
  return (ram_->on() || options_.disk_mode) && state_can_park && !shutdown_parked_;
}

bool Stack::held_by_user(ConversationId id) const {
  const RamTier::Entry* parked = ram_->find(id);
  const DiskTier::Entry* stored = disk_ ? disk_->find(id) : nullptr;
  return (parked != nullptr && parked->held_by_user) || (stored != nullptr && stored->held_by_user);
}

ImageRef Stack::image_of(const Slot& from, uint32_t tokens) {
  auto image = std::make_shared<Image>();
  const bool whole = tokens == from.length();
  image->id = whole ? from.conversation : new_conversation();
  image->generation = whole ? from.generation + 1 : 1;
  if (whole && held_by_user(from.conversation)) {  // what a user holds stays as it is
    image->id = new_conversation();
    image->generation = 1;
  }
  image->tokens.assign(from.tokens.begin(), from.tokens.begin() + tokens);
  for (const MediaMark& mark : from.media) {
    if (mark.start < tokens) image->media.push_back(mark);
  }
  image->salt = from.salt;
  image->created_ns = from.created_ns;
  image->last_used_ns = ports_.clock.wall_ns();
  return image;
}

// A part whose bytes need not come from the slot.
bool Stack::at_hand(const Part& part) const {
  return part.ram != nullptr || (options_.disk_mode && part.disk.has_value());
}

// The image's parts: what the slot inherits and still has unchanged, and new ones for the rest. `fresh` are
// those that need their bytes copied. False when the state at `tokens` cannot be had (a fork point without a
// checkpoint).
bool Stack::collect_parts(const Slot& from, uint32_t tokens, Image& image, std::vector<PartRef>& fresh) {
  const auto add = [&](PartRef part) {
    if (!at_hand(*part)) fresh.push_back(part);
    (void)insert_part(image.parts, std::move(part));
  };
  const uint32_t step = model_.tokens_per_block;
  for (StageId stage = 0; stage < model_.stages && model_.state_in_blocks; ++stage) {
    for (uint32_t first = 0; first < tokens; first += step) {
      const uint32_t count = std::min(step, tokens - first);
      PartRef part = find_block(from.parts, stage, first);
      if (!part || part->count != count) {
        part = std::make_shared<Part>();
        part->stage = stage;
        part->first = first;
        part->count = count;
        part->bytes = ports_.model.block_bytes(stage, count);
      }
      add(std::move(part));
    }
  }
  if (!model_.needs_checkpoints && model_.state_in_blocks) return true;
  for (PartRef& part : kept_checkpoints(from, tokens)) (void)insert_part(image.parts, std::move(part));
  for (StageId stage = 0; stage < model_.stages; ++stage) {
    if (const PartRef known = find_checkpoint(image.parts, stage, tokens); known && at_hand(*known)) continue;
    if (tokens != from.length()) return false;
    auto live = std::make_shared<Part>();
    live->kind = PartKind::checkpoint;
    live->stage = stage;
    live->first = tokens;
    live->bytes = std::max(model_.checkpoint_bytes[stage], kEmptyCheckpointBytes);
    add(std::move(live));
  }
  return true;
}

// The slot's checkpoints up to `tokens` that an image of that length keeps (RAM-6).
std::vector<PartRef> Stack::kept_checkpoints(const Slot& from, uint32_t tokens) const {
  std::vector<PartRef> at_hand;
  for (const PartRef& part : from.parts) {
    if (!part->is_block() && part->first <= tokens && (part->ram || part->disk)) at_hand.push_back(part);
  }
  std::vector<uint32_t> positions = resume_positions(at_hand);
  std::erase(positions, tokens);  // the live state does not count
  const std::vector<uint32_t> keep = checkpoints_to_keep(positions, tokens, from.root, rules());
  std::erase_if(at_hand, [&](const PartRef& part) {
    return part->first != tokens && !std::binary_search(keep.begin(), keep.end(), part->first);
  });
  return at_hand;
}

// A buffer for each part; on a refusal none is held.
std::optional<SkipReason> Stack::allocate_parts(const std::vector<PartRef>& fresh,
                                                std::vector<CopyOut::Item>& items) {
  uint64_t needed = 0;
  for (const PartRef& part : fresh) needed += PinnedPool::class_bytes(part->bytes);
  if (auto refused = room_for(needed)) return refused;
  for (const PartRef& part : fresh) {
    auto buffer = ram_->allocate(part->bytes);
    if (!buffer.ok()) {
      items.clear();
      return SkipReason::budget;
    }
    items.push_back({part, std::move(*buffer)});
  }
  return std::nullopt;
}

CopyOut::Ports Stack::copy_ports() { return {ports_.model, ports_.device, unsettled_, out_stream_}; }

std::unique_ptr<Stack::Parking> Stack::start_parking(Slot& from, uint32_t tokens, SkipReason& why) {
  why = SkipReason::off;
  if (!parks()) {
    if (ram_->on() || options_.disk_mode) why = SkipReason::no_state;
    return nullptr;
  }
  auto parking = std::make_unique<Parking>();
  parking->slot = from.id;
  parking->whole = tokens == from.length();
  parking->started_ns = ports_.clock.monotonic_ns();
  parking->image = image_of(from, tokens);
  why = SkipReason::no_state;
  if (!collect_parts(from, tokens, *parking->image, parking->fresh)) return nullptr;
  ++from.copies_out;                                                   // nothing decodes here meanwhile
  for (const PartRef& part : parking->image->parts) ram_->hold(part);  // what it shares with others stays
  if (options_.disk_mode ? start_stream(*parking, why) : start_copy(*parking, why)) return parking;
  --from.copies_out;
  for (const PartRef& part : parking->image->parts) ram_->release(part);
  remember(*parking->image, why == SkipReason::too_large ? ReadReason::too_large : ReadReason::evicted);
  return nullptr;
}

bool Stack::start_copy(Parking& parking, SkipReason& why) {
  uint64_t whole_bytes = 0;
  for (const PartRef& part : parking.image->parts) whole_bytes += PinnedPool::class_bytes(part->bytes);
  if (whole_bytes > options_.ram_budget_bytes) {
    why = SkipReason::too_large;
    return false;
  }
  std::vector<CopyOut::Item> items;
  if (auto refused = allocate_parts(parking.fresh, items)) {
    why = *refused;
    return false;
  }
  parking.copy = std::make_unique<CopyOut>(copy_ports(), parking.slot, std::move(items));
  return true;
}

bool Stack::start_stream(Parking& parking, SkipReason& why) {
  uint64_t new_bytes = 0;
  for (const PartRef& part : parking.fresh) new_bytes += PinnedPool::class_bytes(part->bytes);
  const uint64_t kept = ram_pool_->allocated_bytes() - ram_pool_->in_use_bytes();
  const uint64_t window = std::min(window_bytes_, new_bytes);
  const auto missing = ram_->short_of_floor(window - std::min(window, kept));
  if (!missing.ok() || *missing > 0) {
    why = missing.ok() ? SkipReason::min_free_ram : SkipReason::memory_unknown;
    return false;
  }
  const StreamOut::Ports ports{ports_.model, ports_.device, unsettled_, out_stream_, *ram_pool_, *disk_};
  parking.stream =
      std::make_unique<StreamOut>(ports, parking.slot, slot(parking.slot).length(), parking.image);
  if (parking.stream->step() != StreamOut::State::failed) return true;
  why = parking.stream->why();
  parking.stream.reset();
  return false;
}

std::optional<SkipReason> Stack::room_for(uint64_t bytes) {
  return options_.disk_mode ? working_room(bytes) : ram_->make_room(bytes);
}

// Disk mode: for checkpoints that wait for their slot to be parked, beside the buffers that parks pass
// through.
std::optional<SkipReason> Stack::working_room(uint64_t bytes) {
  const uint64_t held = ram_pool_->in_use_bytes();
  if (held + bytes > ram_pool_->budget_bytes() - window_bytes_) return SkipReason::budget;
  const uint64_t kept = ram_pool_->allocated_bytes() - held;
  const auto missing = ram_->short_of_floor(bytes - std::min(bytes, kept));
  if (!missing.ok()) return SkipReason::memory_unknown;
  if (*missing > 0) return SkipReason::min_free_ram;
  return std::nullopt;
}

bool Stack::step_parking(Parking& parking) {
  bool done = false;
  if (parking.copy) {
    const CopyOut::State state = parking.copy->step();
    if (state == CopyOut::State::running) return true;
    done = state == CopyOut::State::done;
  } else {
    const StreamOut::State state = parking.stream->step();
    if (state == StreamOut::State::running) return true;
    done = state == StreamOut::State::done;
  }
  --slot(parking.slot).copies_out;
  if (done)
    parked(parking);
  else
    park_failed(parking);
  for (const PartRef& part : parking.image->parts) ram_->release(part);
  return false;
}

// A state of whole conversations takes as much as it has tokens, but its buffer is made for a full context:
// what is much too large is exchanged, as far as there is room for it.
void Stack::fit_buffers(const std::vector<PartRef>& parts) {
  for (const PartRef& part : parts) {
    if (part->is_block() || !part->ram) continue;
    const uint64_t bytes = align_up(part->bytes, limits::kAlignment);
    if (2 * PinnedPool::class_bytes(bytes) > part->ram->bytes().size()) continue;
    auto fitting = ram_->allocate(bytes);
    if (!fitting.ok()) continue;
    std::memcpy((*fitting)->bytes().data(), part->ram->bytes().data(), bytes);
    part->ram = std::move(*fitting);
  }
}

void Stack::parked(Parking& parking) {
  Slot& from = slot(parking.slot);
  fit_buffers(parking.fresh);
  const ImageRef& image = parking.image;
  size_t evictions = 0;
  if (!options_.disk_mode) {
    const uint64_t key = next_key_++;
    const size_t before = ram_->size();
    ram_->admit(key, image);
    index_.insert(key, prefix_chain(image->span(), image->salt), image->length());
    evictions = before + 1 > ram_->size() ? before + 1 - ram_->size() : 0;
    if (!spill_due_ns_) spill_due_ns_ = from.unwritten_since_ns;
  } else {
    for (const PartRef& part : image->parts) {  // its copy that counts is on the disk
      if (part->disk) part->ram.reset();
    }
  }
  if (parking.whole) {
    from.conversation = image->id;
    from.generation = image->generation;
    from.unwritten = false;
    inherit(from, image->parts);
  } else {
    std::vector<PartRef> merged = from.parts;
    for (const PartRef& part : parking.fresh) {
      // A shorter tail made for the fork is not a part of the longer conversation.
      if (part->is_block() && part->count < model_.tokens_per_block) continue;
      (void)insert_part(merged, part);
    }
    inherit(from, std::move(merged));
  }
  ram_->note_parked_bytes(parking.new_bytes());
  log_parked(parking, evictions);
}

void Stack::log_parked(const Parking& parking, size_t evictions) {
  const double ms = static_cast<double>(ports_.clock.monotonic_ns() - parking.started_ns) / 1e6;
  const uint64_t bytes = parking.new_bytes();
  Metrics& metrics = ports_.metrics;
  metrics.add("strata_parks_total");
  metrics.add("strata_parked_bytes_total", {}, static_cast<double>(bytes));
  metrics.add("strata_parked_image_bytes_total", {},
              static_cast<double>(payload_bytes(parking.image->parts)));
  metrics.observe_seconds("strata_park_seconds", {}, ms / 1e3);
  const size_t images = options_.disk_mode ? disk_->entries().size() : ram_->size();
  const uint64_t held = options_.disk_mode ? disk_->charged_bytes() : ram_->in_use_bytes();
  ports_.log.write(
      LogLevel::info,
      fmt::format("strata: conversation cache: parked {} tokens in {:.1f} ms; new_bytes={} parked={} "
                  "bytes={} evictions={}",
                  parking.image->length(), ms, bytes, images, held, evictions));
}

void Stack::park_failed(Parking& parking) {
  if (parking.stream) {
    const SkipReason why = parking.stream->why();
    parking.stream.reset();
    if (why == SkipReason::cancelled) return;  // the slot goes on
    const bool full = why != SkipReason::io_error && why != SkipReason::too_large;
    remember(*parking.image, full                           ? ReadReason::evicted
                             : why == SkipReason::too_large ? ReadReason::too_large
                                                            : ReadReason::io_error);
    return skip_parking(slot(parking.slot), why, 0);
  }
  const std::string message = parking.copy->error().message;
  parking.copy.reset();
  remember(*parking.image, ReadReason::io_error);
  ports_.log.write(LogLevel::warning, "strata: conversation cache: copy out of slot failed: " + message);
  skip_parking(slot(parking.slot), SkipReason::io_error, 0);
}

void Stack::skip_parking(const Slot& from, SkipReason why, uint64_t needed) {
  ports_.metrics.add("strata_skips_total", fmt::format("tier=\"ram\",reason=\"{}\"", label(why)));
  if (why == SkipReason::off) return;
  if (needed == 0) {
    for (StageId stage = 0; stage < model_.stages && model_.state_in_blocks; ++stage) {
      for (uint32_t first = 0; first < from.length(); first += model_.tokens_per_block) {
        needed += ports_.model.block_bytes(stage, std::min(model_.tokens_per_block, from.length() - first));
      }
    }
    for (const uint64_t bytes : model_.checkpoint_bytes) needed += bytes;
  }
  ports_.log.write(
      LogLevel::warning,
      fmt::format("strata: conversation cache: skip parking ({}; need {:.1f} MiB, have {:.1f} MiB)",
                  label(why), mib(needed),
                  mib(options_.disk_mode ? options_.disk_budget_bytes : options_.ram_budget_bytes)));
}

// --- what a slot inherits

void Stack::inherit(Slot& target, std::vector<PartRef> parts) {
  for (const PartRef& part : parts) ram_->hold(part);
  drop_parts(target);
  target.parts = std::move(parts);
}

void Stack::drop_parts_behind(Slot& target, uint32_t tokens) {
  std::vector<PartRef> kept;
  for (const PartRef& part : target.parts) {
    if (part->is_block() ? part->end() <= tokens : part->first <= tokens) kept.push_back(part);
  }
  inherit(target, std::move(kept));
}

// --- checkpoints

void Stack::take_checkpoint(Slot& from) {
  std::vector<PartRef> parts;
  for (StageId stage = 0; stage < model_.stages; ++stage) {
    auto part = std::make_shared<Part>();
    part->kind = PartKind::checkpoint;
    part->stage = stage;
    part->first = from.length();
    part->bytes = std::max(model_.checkpoint_bytes[stage], kEmptyCheckpointBytes);
    parts.push_back(std::move(part));
  }
  std::vector<CopyOut::Item> items;
  ++from.copies_out;
  if (auto refused = allocate_parts(parts, items)) {
    --from.copies_out;
    ports_.metrics.add("strata_skips_total", fmt::format("tier=\"ram\",reason=\"{}\"", label(*refused)));
    return;
  }
  CheckpointCopy taking;
  taking.slot = from.id;
  taking.parts = std::move(parts);
  taking.copy = std::make_unique<CopyOut>(copy_ports(), from.id, std::move(items));
  checkpoints_.push_back(std::move(taking));
}

void Stack::step_checkpoints() {
  for (auto taking = checkpoints_.begin(); taking != checkpoints_.end();) {
    const CopyOut::State state = taking->copy->step();
    if (state == CopyOut::State::running) {
      ++taking;
      continue;
    }
    Slot& from = slot(taking->slot);
    --from.copies_out;
    if (state == CopyOut::State::done) {
      fit_buffers(taking->parts);
      std::vector<PartRef> merged = from.parts;
      for (const PartRef& part : taking->parts) (void)insert_part(merged, part);
      inherit(from, std::move(merged));
      prune_checkpoints(from);
      ports_.metrics.add("strata_checkpoints_total");
    } else {
      ports_.metrics.add("strata_skips_total", "tier=\"ram\",reason=\"io_error\"");
    }
    taking = checkpoints_.erase(taking);
  }
}

void Stack::prune_checkpoints(Slot& from) {
  const std::vector<uint32_t> positions = resume_positions(from.parts);
  const std::vector<uint32_t> keep = checkpoints_to_keep(positions, from.length(), from.root, rules());
  std::vector<PartRef> kept;
  for (const PartRef& part : from.parts) {
    if (part->is_block() || std::binary_search(keep.begin(), keep.end(), part->first)) kept.push_back(part);
  }
  if (kept.size() != from.parts.size()) inherit(from, std::move(kept));
}

}  // namespace strata
