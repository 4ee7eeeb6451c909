#include "tiers/stack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "core/check.hpp"
#include "tiers/part_list.hpp"

namespace strata {

Result<std::unique_ptr<TierStack>> TierStack::open(const TierOptions& options, const TierPorts& ports,
                                                   const Identity& identity) {
  auto stack = std::make_unique<Stack>(options, ports, identity);
  STRATA_TRY(stack->start());
  return std::unique_ptr<TierStack>(std::move(stack));
}

Stack::Stack(const TierOptions& options, const TierPorts& ports, const Identity& identity)
    : options_(options),
      clock_(ports.clock),
      ports_{ports.model,   ports.device, clock_,       ports.memory, ports.random, ports.log,
             ports.metrics, ports.files,  ports.reader, ports.writer, ports.pages,  ports.worker},
      identity_(identity),
      model_(ports.model.info()),
      unsettled_(ports.device) {}

Stack::~Stack() {
  session_.reset();
  active_.clear();
  lingering_.clear();
  checkpoints_.clear();
  background_.reset();
  if (reader_) reader_->drain();  // nothing may read into buffers that go away
  unsettled_.wait();
  if (out_stream_.handle != nullptr) ports_.device.destroy_stream(out_stream_);
  if (in_stream_.handle != nullptr) ports_.device.destroy_stream(in_stream_);
}

uint64_t Stack::largest_block_bytes() const {
  uint64_t largest = 0;
  for (const uint64_t bytes : model_.max_block_bytes) largest = std::max(largest, bytes);
  return largest;
}

// Full, read-only or failing: requests are served without the disk, and the status says why. What its owner
// got wrong (no folder, no right to it, in use by another process) ends the start instead.
static bool is_the_disks_fault(const Error& error) {
  return error.code == ErrorCode::exhausted || error.code == ErrorCode::io || error.os_errno == EROFS;
}

Status Stack::start() {
  if (options_.disk_mode && (options_.disk_folder.empty() || options_.ram_budget_bytes > 0)) {
    return make_error(ErrorCode::invalid, "parking straight to the disk needs a folder, and no RAM tier");
  }
  if (!options_.disk_mode && !options_.disk_folder.empty() && options_.ram_budget_bytes == 0) {
    return make_error(ErrorCode::invalid,
                      "a conversation folder needs a RAM tier: set --conversation-cache-mib");
  }
  STRATA_ASSIGN(out_stream_, ports_.device.create_stream());
  STRATA_ASSIGN(in_stream_, ports_.device.create_stream());
  for (uint32_t i = 0; i < model_.slots; ++i) {
    Slot slot;
    slot.id = static_cast<SlotId>(i);
    slots_.push_back(std::move(slot));
  }
  const uint64_t pinned = options_.disk_mode ? working_bytes() : options_.ram_budget_bytes;
  ram_pool_ = std::make_unique<PinnedPool>(ports_.device, ports_.log, pinned, pool_backing());
  RamTier::Options ram;
  ram.budget_bytes = options_.ram_budget_bytes;
  ram.max_images = options_.ram_max_images;
  ram.min_free_bytes = options_.ram_min_free_bytes;
  ram_ = std::make_unique<RamTier>(
      ram, *ram_pool_, ports_.memory,
      [this](const RamTier::Entry& entry, RamTier::Drop why) { ram_dropped(entry, why); });
  ram_->set_slot_copies([this](std::vector<PartRef>& copies) {
    for (const Slot& slot : slots_) {
      if (slot.copies_out > 0) continue;
      for (const PartRef& part : slot.parts) {
        if (part->is_block() && part->ram) copies.push_back(part);
      }
    }
  });
  if (!options_.disk_folder.empty()) STRATA_TRY(open_disk(identity_));
  if (!reader_ && ports_.reader != nullptr) reader_ = std::make_unique<DiskReader>(*ports_.reader);
  session_pool_ = std::make_unique<PinnedPool>(ports_.device, ports_.log, window_bytes());
  return {};
}

// Of the buffers that a conversation passes through on its way between a slot and a file.
uint64_t Stack::window_bytes() const {
  uint64_t window = limits::kParkDepth * PinnedPool::class_bytes(largest_block_bytes());
  for (const uint64_t bytes : model_.checkpoint_bytes)
    window = std::max(window, PinnedPool::class_bytes(bytes));
  return window;
}

// Disk mode: of the buffers that a park passes through, and of checkpoints that wait to be parked.
uint64_t Stack::working_bytes() {
  uint64_t checkpoints = 0;
  for (const uint64_t bytes : model_.checkpoint_bytes) checkpoints += PinnedPool::class_bytes(bytes);
  window_bytes_ = window_bytes();
  const uint64_t positions = model_.needs_checkpoints ? uint64_t{options_.checkpoints_max} + 1 : 0;
  return window_bytes_ + positions * checkpoints;
}

Status Stack::open_disk(const Identity& identity) {
  STRATA_CHECK(ports_.files != nullptr && ports_.reader != nullptr && ports_.writer != nullptr);
  uint64_t staging = 0;
  for (const uint64_t bytes : model_.max_block_bytes) {
    staging = std::max(staging, Restore::kStreamedBuffers * PinnedPool::class_bytes(bytes));
  }
  for (const uint64_t bytes : model_.checkpoint_bytes) staging += PinnedPool::class_bytes(bytes);
  staging_pool_ = std::make_unique<PinnedPool>(ports_.device, ports_.log, staging, pool_backing());
  reader_ = std::make_unique<DiskReader>(*ports_.reader);
  DiskTier::Options disk;
  disk.folder = options_.disk_folder;
  disk.budget_bytes = options_.disk_budget_bytes;
  disk.min_free_bytes = options_.disk_min_free_bytes;
  disk.ttl_ns = options_.disk_ttl_ns;
  disk.persist = options_.disk_persist;
  disk.empty_at_start = options_.disk_empty_at_start;
  disk.compaction_min_bytes = options_.compaction_min_bytes;
  disk.remove_foreign = options_.foreign == ForeignFiles::remove;
  disk.identity = identity;
  disk.stage_count = model_.stages;
  disk.tokens_per_block = model_.tokens_per_block;
  const DiskTier::Ports ports{*ports_.files, *reader_, *ports_.writer, clock_, ports_.log, ports_.metrics};
  auto opened = DiskTier::open(disk, ports, disk_listener());
  if (!opened.ok()) {
    if (!is_the_disks_fault(opened.error())) return opened.error();
    disk_off_reason_ = opened.error().message;
    options_.disk_mode = false;  // nowhere to park to
    return {};
  }
  disk_ = std::move(*opened);
  ram_->set_spill_target(disk_.get());
  return {};
}

DiskTier::Listener Stack::disk_listener() {
  DiskTier::Listener listener;
  listener.next_key = [this] { return next_key_++; };
  listener.new_id = [this] { return new_conversation(); };
  listener.appeared = [this](const DiskTier::Entry& entry) {
    index_.insert(entry.key, entry.head.prefix_chain, entry.head.token_count);
  };
  listener.gone = [this](const DiskTier::Entry& entry, ReadReason why) {
    index_.erase(entry.key);
    if (why == ReadReason::none) return;
    ghosts_.remember(entry.head.prefix_chain, entry.head.token_count, why);
    // What the disk let go is not written again from RAM: the two would push each other out for ever.
    RamTier::Entry* parked = ram_->find(entry.head.id);
    if (parked != nullptr && parked->image->generation == entry.head.generation) parked->spill_refused = true;
  };
  listener.refused_at_intake = [this](const Refused& refused, ReadReason why) {
    ghosts_.remember(refused.prefix_chain, refused.token_count, why);
  };
  listener.spill_dropped = [this](const Image& image) {
    RamTier::Entry* entry = ram_->find(image.id);
    if (entry != nullptr && entry->image->generation == image.generation) entry->spill_refused = true;
  };
  return listener;
}

void Stack::ram_dropped(const RamTier::Entry& entry, RamTier::Drop why) {
  index_.erase(entry.key);
  if (why == RamTier::Drop::superseded || why == RamTier::Drop::forgotten) return;
  const bool lost = why == RamTier::Drop::evicted_lost;
  ports_.metrics.add("strata_evictions_total",
                     lost ? "tier=\"ram\",reason=\"lost\"" : "tier=\"ram\",reason=\"lru\"");
  if (!lost) return;
  remember(*entry.image, ReadReason::evicted);
  if (disk_ == nullptr || entry.spill_refused) return;  // the disk tier said why
  ports_.metrics.add("strata_skips_total",
                     fmt::format("tier=\"disk\",reason=\"{}\"", label(SkipReason::queue_full)));
  ports_.log.write(
      LogLevel::warning,
      fmt::format("strata: conversation disk: dropped {} tokens, {:.1f} MiB; queue_full: the disk is behind",
                  entry.image->length(),
                  static_cast<double>(payload_bytes(entry.image->parts)) / limits::kMiB));
}

void Stack::remember(const Image& image, ReadReason reason) {
  ghosts_.remember(prefix_chain(image.span(), image.salt), image.length(), reason);
}

ConversationId Stack::new_conversation() {
  ConversationId id;
  while (!id) id.value = ports_.random.next();
  return id;
}

CheckpointRules Stack::rules() const {
  CheckpointRules rules;
  rules.max = options_.checkpoints_max;
  rules.every_tokens = options_.checkpoints_every_tokens;
  rules.spread = options_.checkpoints_spread;
  return rules;
}

// --- requests

Stack::Active* Stack::find(RequestId id) {
  for (Active& active : active_) {
    if (active.request.id == id && !active.finished) return &active;
  }
  return nullptr;
}

const Stack::Active* Stack::find(RequestId id) const { return const_cast<Stack*>(this)->find(id); }

Status Stack::admit(TierRequest request) {
  const size_t tokens = request.tokens.size();
  if (shutting_down_) return make_error(ErrorCode::unavailable, "shutting down");
  if (find(request.id) != nullptr) return make_error(ErrorCode::invalid, "request id is in use");
  if (tokens == 0) return make_error(ErrorCode::invalid, "the prompt is empty");
  if (tokens >= model_.context_tokens) {
    return make_error(ErrorCode::exhausted,
                      fmt::format("the prompt of {} tokens does not fit the context of {} tokens", tokens,
                                  model_.context_tokens));
  }
  if (request.slot && (*request.slot < 0 || *request.slot >= static_cast<SlotId>(slots_.size()))) {
    return make_error(ErrorCode::invalid,
                      fmt::format("slot {} does not exist: there are {}", *request.slot, slots_.size()));
  }
  for (const Token token : request.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= model_.vocabulary) {
      return make_error(ErrorCode::invalid,
                        fmt::format("token {} is outside the vocabulary of {}", token, model_.vocabulary));
    }
  }
  if (active_.size() >= limits::kMaxQueuedRequests)
    return make_error(ErrorCode::exhausted, "too many requests wait");
  Active active;
  active.request = std::move(request);
  active_.push_back(std::move(active));
  return {};
}

RequestState Stack::state(RequestId id) const {
  const Active* active = find(id);
  STRATA_CHECK(active != nullptr);
  return active->state;
}

const Placement& Stack::placement(RequestId id) const {
  const Active* active = find(id);
  STRATA_CHECK(active != nullptr);
  return active->placement;
}

const std::string& Stack::failure(RequestId id) const {
  const Active* active = find(id);
  STRATA_CHECK(active != nullptr);
  return active->failure;
}

void Stack::finish(RequestId id) {
  Active* active = find(id);
  STRATA_CHECK(active != nullptr);
  active->finished = true;
  if (active->restore) active->restore->cancel();
}

bool Stack::step() {
  bool busy = false;
  if (reader_) busy |= reader_->poll();
  if (disk_) busy |= disk_->step();
  unsettled_.step();
  std::erase_if(lingering_, [](const auto& restore) { return !restore->lingers(); });
  step_checkpoints();
  step_session();
  for (auto active = active_.begin(); active != active_.end();) {
    advance(*active);
    const bool moving = active->step != Step::planning && active->step != Step::settled;
    busy |= moving;
    const bool over = active->finished && !moving;
    if (over && active->placement.slot != kNoSlot) {
      Slot& held = slot(active->placement.slot);
      held.request.reset();
      held.last_used_ns = ports_.clock.monotonic_ns();
    }
    active = over ? active_.erase(active) : std::next(active);
  }
  if (shutting_down_) {
    step_shutdown();
    busy |= !drain_progress().finished;
  } else {
    ram_->spill_ahead();
    step_write_policy();
  }
  busy |= background_ != nullptr || (session_running() && session_->before.empty());
  if (disk_) {
    const bool reading = std::any_of(active_.begin(), active_.end(), [](const Active& active) {
      return active.restore && active.restore->reads_disk();
    });
    ports_.writer->set_foreground(reading);
  }
  publish_gauges();
  return busy || !checkpoints_.empty() || grow_pools();
}

// The writer's queue belongs to another thread, which would have to give its registrations up before memory
// could go back; with huge pages they gain next to nothing (docs/benchmarks.md).
PinnedPool::Backing Stack::pool_backing() const {
  return {ports_.pages, options_.disk_folder.empty() ? nullptr : ports_.reader};
}

// The buffers of what is parked and streamed next, while nobody waits for an answer.
bool Stack::grow_pools() {
  constexpr uint64_t kPauseNs = 20'000'000;  // agents ask again at once
  if (!active_.empty() || ports_.clock.monotonic_ns() - last_active_ns_ < kPauseNs) return false;
  const uint64_t bytes = largest_block_bytes();
  return ram_->grow_ahead(bytes) || (staging_pool_ && staging_pool_->grow_ahead(bytes));
}

// A slot that is being read will be parked one day: its buffers are made meanwhile, for a fiftieth of the
// time, and not while somebody waits for the switch.
void Stack::grow_while_reading(uint64_t duration_ns) {
  const uint64_t block_bytes = largest_block_bytes();
  if (block_bytes == 0 || !ram_->on()) return;
  const uint64_t needed = unparked_blocks() * PinnedPool::class_bytes(block_bytes);
  const uint64_t start_ns = ports_.clock.monotonic_ns();
  while (ram_pool_->allocated_bytes() - ram_pool_->in_use_bytes() < needed &&
         ports_.clock.monotonic_ns() - start_ns < duration_ns / 50) {
    if (!ram_->grow_ahead(block_bytes)) return;
  }
}

// Of all slots, without a copy in RAM.
uint64_t Stack::unparked_blocks() const {
  uint64_t blocks = 0;
  for (const Slot& each : slots_) {
    const uint64_t in_ram =
        static_cast<uint64_t>(std::count_if(each.parts.begin(), each.parts.end(), [](const PartRef& part) {
          return part->is_block() && part->ram != nullptr;
        }));
    const uint64_t all =
        uint64_t{model_.stages} * (each.length() / std::max(1u, model_.tokens_per_block) + 1);
    if (!each.empty() && !each.one_shot) blocks += all - std::min(all, in_ram);
  }
  return blocks;
}

void Stack::publish_gauges() {
  ports_.metrics.set("strata_tier_bytes", "tier=\"ram\"", static_cast<double>(ram_->in_use_bytes()));
  ports_.metrics.set("strata_tier_conversations", "tier=\"ram\"", static_cast<double>(ram_->size()));
}

// --- slots

void Stack::appended(SlotId id, std::span<const Token> tokens) {
  Slot& target = slot(id);
  target.tokens.insert(target.tokens.end(), tokens.begin(), tokens.end());
  mark_unwritten(target);
  target.last_used_ns = ports_.clock.monotonic_ns();
  bool reached = false;
  while (!target.due.empty() && target.due.front() <= target.length()) {
    reached = target.due.front() == target.length();
    target.due.erase(target.due.begin());
  }
  if (reached) take_checkpoint(target);
}

uint32_t Stack::read_limit(SlotId id) const {
  const Slot& target = slots_.at(static_cast<size_t>(id));
  return target.due.empty() ? UINT32_MAX : target.due.front();
}

void Stack::observe_prompt(uint32_t tokens, uint64_t duration_ns) {
  cost_.observe_prompt(tokens, duration_ns);
  grow_while_reading(duration_ns);
}

bool Stack::may_decode(SlotId id) { return slot(id).copies_out == 0; }

TierStatus Stack::status() const {
  TierStatus status;
  for (const Slot& from : slots_) {
    status.slots.push_back({from.id, from.length(), from.conversation, from.request, from.last_used_ns});
  }
  status.ram_on = ram_->on();
  status.ram_bytes = ram_->in_use_bytes();
  status.ram_budget_bytes = options_.ram_budget_bytes;
  status.ram_images = ram_->size();
  status.disk_off_reason = disk_off_reason_;
  if (disk_) {
    status.disk_on = true;
    status.disk_mode = options_.disk_mode;
    status.disk_bytes = disk_->charged_bytes();
    status.disk_budget_bytes = options_.disk_budget_bytes;
    status.disk_images = disk_->entries().size();
    status.disk_queue_bytes = disk_->queue_bytes();
    status.disk_queue_jobs = disk_->queue_jobs();
    status.intake_taken = disk_->intake().taken.size();
    status.intake_refused = disk_->intake().refused.size();
  }
  return status;
}

std::vector<StoredConversation> Stack::conversations() const {
  std::map<ConversationId, StoredConversation> found;
  for (const RamTier::Entry& entry : ram_->entries()) {
    StoredConversation& stored = found[entry.image->id];
    stored = {entry.image->id,
              entry.image->length(),
              payload_bytes(entry.image->parts),
              0,
              entry.image->created_ns,
              entry.image->last_used_ns,
              entry.held_by_user,
              entry.image->label};
  }
  if (disk_) {
    for (const auto& [key, entry] : disk_->entries()) {
      StoredConversation& stored = found[entry.head.id];
      if (!stored.id) {
        stored = {entry.head.id,      entry.head.token_count, 0, 0, entry.head.created_ns, entry.last_used_ns,
                  entry.held_by_user, entry.head.label};
      }
      stored.disk_bytes = entry.head.payload_bytes;
      stored.pinned |= entry.held_by_user;
    }
  }
  std::vector<StoredConversation> list;
  for (auto& [id, stored] : found) list.push_back(std::move(stored));
  return list;
}

Result<uint32_t> Stack::erase(SlotId id) {
  if (id < 0 || id >= static_cast<SlotId>(slots_.size())) {
    return make_error(ErrorCode::not_found, fmt::format("slot {} does not exist", id));
  }
  Slot& target = slot(id);
  if (!target.idle()) return make_error(ErrorCode::unavailable, fmt::format("slot {} is in use", id));
  const uint32_t held = target.length();
  STRATA_TRY(ports_.model.clear(id));
  reset(target);
  return held;
}

Status Stack::forget(ConversationId id) {
  for (const Slot& held : slots_) {
    if (held.conversation == id && !held.idle())
      return make_error(ErrorCode::unavailable, "the conversation is in use");
  }
  RamTier::Entry* ram = ram_->find(id);
  DiskTier::Entry* disk = disk_ ? disk_->find(id) : nullptr;
  const bool used = (ram != nullptr && ram->pins > 0) || (disk != nullptr && !disk_->may_remove(*disk));
  if (used) return make_error(ErrorCode::unavailable, "the conversation is in use");
  bool found = ram != nullptr || disk != nullptr;
  if (ram != nullptr) {
    if (disk_) (void)disk_->cancel_spill(*ram->image);
    ram_->drop(ram->key, RamTier::Drop::forgotten);
  }
  if (disk != nullptr) disk_->remove(disk->key, ReadReason::none);
  for (Slot& held : slots_) {
    if (held.conversation != id) continue;
    STRATA_ASSIGN(const uint32_t tokens, erase(held.id));
    found |= tokens > 0;
  }
  if (!found) return make_error(ErrorCode::not_found, "no such conversation");
  return {};
}

Status Stack::pin(ConversationId id, bool pinned) {
  RamTier::Entry* ram = ram_->find(id);
  DiskTier::Entry* disk = disk_ ? disk_->find(id) : nullptr;
  if (ram == nullptr && disk == nullptr) return make_error(ErrorCode::not_found, "no such conversation");
  if (ram != nullptr) ram->held_by_user = pinned;
  if (disk != nullptr) disk->held_by_user = pinned;
  return {};
}

void Stack::reset(Slot& target) {
  drop_parts(target);
  Slot fresh;
  fresh.id = target.id;
  fresh.request = target.request;
  fresh.reserved = target.reserved;
  fresh.placing = target.placing;
  fresh.last_used_ns = target.last_used_ns;
  target = std::move(fresh);
}

void Stack::drop_parts(Slot& target) {
  for (const PartRef& part : target.parts) ram_->release(part);
  target.parts.clear();
}

}  // namespace strata
