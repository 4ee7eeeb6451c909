// Parking: a slot's conversation becomes an image in the RAM tier by copying only what is not there yet
// (B-1); the same machinery takes checkpoints while a prompt is read (RAM-6), and empties the slots at
// shutdown (DISK-7).
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "tiers/part_list.hpp"
#include "tiers/stack.hpp"

namespace strata {

namespace {
double mib(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(limits::kMiB); }
}  // namespace

bool Stack::parks() const {
  const bool state_can_park = !model_.needs_checkpoints || options_.checkpoints_max > 0;
  return ram_->on() && state_can_park && !shutdown_parked_;
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

// The image's parts: what the slot inherits and still has unchanged, and new ones for the rest. `fresh` are
// those that need their bytes copied. False when the state at `tokens` cannot be had (a fork point without a
// checkpoint).
bool Stack::collect_parts(const Slot& from, uint32_t tokens, Image& image, std::vector<PartRef>& fresh) {
  const auto add = [&](PartRef part) {
    if (!part->ram) fresh.push_back(part);
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
    if (const PartRef known = find_checkpoint(image.parts, stage, tokens); known && known->ram) continue;
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
  if (auto refused = ram_->make_room(needed)) return refused;
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
    if (ram_->on()) why = SkipReason::no_state;
    return nullptr;
  }
  auto parking = std::make_unique<Parking>();
  parking->slot = from.id;
  parking->whole = tokens == from.length();
  parking->started_ns = ports_.clock.monotonic_ns();
  parking->image = image_of(from, tokens);
  why = SkipReason::no_state;
  if (!collect_parts(from, tokens, *parking->image, parking->fresh)) return nullptr;
  uint64_t whole_bytes = 0;
  for (const PartRef& part : parking->image->parts) whole_bytes += PinnedPool::class_bytes(part->bytes);
  if (whole_bytes > options_.ram_budget_bytes) {
    remember(*parking->image, ReadReason::too_large);
    why = SkipReason::too_large;
    return nullptr;
  }
  ++from.copies_out;                                                   // nothing decodes here meanwhile
  for (const PartRef& part : parking->image->parts) ram_->hold(part);  // what it shares with others stays
  std::vector<CopyOut::Item> items;
  if (auto refused = allocate_parts(parking->fresh, items)) {
    --from.copies_out;
    for (const PartRef& part : parking->image->parts) ram_->release(part);
    remember(*parking->image, ReadReason::evicted);
    why = *refused;
    return nullptr;
  }
  parking->copy = std::make_unique<CopyOut>(copy_ports(), from.id, std::move(items));
  return parking;
}

CopyOut::State Stack::step_parking(Parking& parking) {
  const CopyOut::State state = parking.copy->step();
  if (state == CopyOut::State::running) return state;
  --slot(parking.slot).copies_out;
  if (state == CopyOut::State::done)
    parked(parking);
  else
    park_failed(parking);
  for (const PartRef& part : parking.image->parts) ram_->release(part);
  return state;
}

void Stack::parked(Parking& parking) {
  Slot& from = slot(parking.slot);
  const ImageRef& image = parking.image;
  const uint64_t key = next_key_++;
  const size_t before = ram_->size();
  ram_->admit(key, image);
  index_.insert(key, prefix_chain(image->span(), image->salt), image->length());
  if (parking.whole) {
    from.conversation = image->id;
    from.generation = image->generation;
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
  ram_->note_parked_bytes(parking.copy->bytes());
  const double ms = static_cast<double>(ports_.clock.monotonic_ns() - parking.started_ns) / 1e6;
  Metrics& metrics = ports_.metrics;
  metrics.add("strata_parks_total");
  metrics.add("strata_parked_bytes_total", {}, static_cast<double>(parking.copy->bytes()));
  metrics.add("strata_parked_image_bytes_total", {}, static_cast<double>(payload_bytes(image->parts)));
  metrics.observe_seconds("strata_park_seconds", {}, ms / 1e3);
  ports_.log.write(
      LogLevel::info,
      fmt::format("strata: conversation cache: parked {} tokens in {:.1f} ms; new_bytes={} parked={} "
                  "bytes={} evictions={}",
                  image->length(), ms, parking.copy->bytes(), ram_->size(), ram_->in_use_bytes(),
                  before + 1 > ram_->size() ? before + 1 - ram_->size() : 0));
}

void Stack::park_failed(Parking& parking) {
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
                  label(why), mib(needed), mib(options_.ram_budget_bytes)));
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

// --- shutdown

void Stack::begin_shutdown() {
  if (shutting_down_) return;
  shutting_down_ = true;
  if (disk_ && options_.disk_persist) ram_->keep_unwritten();
  if (disk_) {
    shutdown_base_bytes_ = disk_->done_bytes();
    shutdown_base_count_ = disk_->published_count();
  }
}

void Stack::step_shutdown() {
  if (!disk_ || !active_.empty()) return;
  if (!options_.disk_persist) {
    disk_->remove_all();
    return;
  }
  if (!shutdown_parked_ && !park_idle_slots()) return;
  shutdown_parked_ = true;
  ram_->spill_all();
}

// True when every slot was parked, or cannot be.
bool Stack::park_idle_slots() {
  if (shutdown_parking_) {
    if (step_parking(*shutdown_parking_) == CopyOut::State::running) return false;
    shutdown_parking_.reset();
  }
  for (Slot& from : slots_) {
    if (from.empty() || from.one_shot || stored_state(from) || shutdown_tried_.contains(from.id)) continue;
    SkipReason why = SkipReason::off;
    shutdown_parking_ = start_parking(from, from.length(), why);
    if (shutdown_parking_) {
      shutdown_tried_.insert(from.id);
      return false;
    }
    // What is parked already makes room by being written; then this one is tried again.
    ram_->spill_all();
    const bool room_may_come = why == SkipReason::budget || why == SkipReason::min_free_ram;
    if (room_may_come && !disk_->settled()) return false;
    skip_parking(from, why, 0);
    shutdown_tried_.insert(from.id);
  }
  return true;
}

DrainProgress Stack::drain_progress() const {
  DrainProgress progress;
  if (!shutting_down_) return progress;
  if (!disk_) {
    progress.finished = active_.empty();
    return progress;
  }
  progress.done_bytes = disk_->done_bytes() - shutdown_base_bytes_;
  progress.total_bytes = progress.done_bytes + disk_->queue_bytes();
  progress.conversations = static_cast<uint32_t>(disk_->published_count() - shutdown_base_count_);
  const bool parked = !options_.disk_persist || shutdown_parked_;
  const bool removed = options_.disk_persist || disk_->entries().empty();
  progress.finished = active_.empty() && parked && removed && disk_->settled();
  return progress;
}

}  // namespace strata
