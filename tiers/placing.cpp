// Placing a request: plan → slot → park the outgoing conversation → restore the match. Every failure on the
// way costs a re-read with a reason, never an answer (design: docs/architecture.md, "A request, from end to
// end").
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "tiers/part_list.hpp"
#include "tiers/stack.hpp"

namespace strata {

namespace {

Tier tier_of(Plan::Source source) {
  switch (source) {
    case Plan::Source::slot:
      return Tier::vram;
    case Plan::Source::ram:
      return Tier::ram;
    case Plan::Source::disk:
      return Tier::disk;
    case Plan::Source::none:
      break;
  }
  return Tier::none;
}

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

void Stack::advance(Active& active) {
  if (active.finished && active.step == Step::planning) return give_up(active);
  // Each step either waits for something outside or leads to the next one; bounded by the number of steps
  // there are.
  for (int i = 0; i < 8; ++i) {
    const Step before = active.step;
    switch (active.step) {
      case Step::planning:
        plan(active);
        break;
      case Step::loading_body: {
        const DiskTier::Entry* entry = disk_->find(active.plan.key);
        if (entry != nullptr && entry->loading) return;
        disk_->unpin(active.plan.key);
        active.step = Step::planning;
        break;
      }
      case Step::parking_donor:
        donor_parked(active);
        break;
      case Step::parking_outgoing:
        fill_slot(active);
        break;
      case Step::restoring: {
        const Restore::State state = active.restore->step();
        if (state == Restore::State::running) return;
        Slot& target = slot(active.placement.slot);
        if (state == Restore::State::done)
          restore_done(active, target);
        else
          restore_failed(active, target);
        break;
      }
      case Step::settled:
        return;
    }
    if (active.finished && active.step == Step::planning) return give_up(active);
    if (active.step == before) return;
  }
}

// The owner went away while this was on its way; whatever the slot holds, it keeps.
void Stack::give_up(Active& active) {
  unpin_source(active);
  if (active.placement.slot != kNoSlot) slot(active.placement.slot).placing = false;
  active.step = Step::settled;
  active.state = RequestState::failed;
}

Planner::View Stack::view() const {
  return Planner::View{model_, slots_, *ram_, disk_.get(), index_, ghosts_, cost_, parks()};
}

void Stack::plan(Active& active) {
  if (active.placement.slot == kNoSlot) {
    const bool none_idle =
        active.request.slot ? !slot(*active.request.slot).idle() : least_used_idle(slots_) == nullptr;
    const bool in_the_way =
        background_ && (!active.request.slot || *active.request.slot == background_->slot);
    if (none_idle && in_the_way) let_background_go(background_->slot);
    if (none_idle) return;
  }
  Planner::Request request;
  request.prompt = {active.request.tokens, active.request.media};
  request.salt = active.request.salt;
  request.only_slot = active.request.slot;
  if (active.placement.slot != kNoSlot) request.only_slot = request.claimed = active.placement.slot;
  request.use_cache = active.request.use_cache && active.retries < limits::kMaxPlanRetries;
  request.may_load_bodies = active.bodies_loaded < limits::kMaxPlanCandidates;
  request.may_fork_slots = active.may_fork_slots;
  request.may_cut_slots = active.may_cut_slots;
  request.avoid = &active.avoid;
  // Rates are measured by restoring: now and then one is done against the prediction, so that it can be
  // wrong.
  request.weigh_cost = cheaper_in_a_row_ < limits::kMaxCheaperInARow;
  active.plan = Planner(view()).plan(request);
  if (active.plan.needs_body) {
    disk_->pin(active.plan.key);
    disk_->load_body(active.plan.key);
    ++active.bodies_loaded;
    active.step = Step::loading_body;
    return;
  }
  if (waits_for_parking(active)) return;
  if (active.plan.cause.reason == ReadReason::cheaper_to_read) ++cheaper_in_a_row_;
  if (!active.cause_fixed) active.cause = active.plan.cause;
  follow_plan(active);
}

// What is being parked right now is nowhere to be had, and will be in a moment.
bool Stack::waits_for_parking(const Active& active) {
  const TokenSpan prompt{active.request.tokens, active.request.media};
  const auto worth_it = [&](const Parking* parking) {
    if (parking == nullptr || parking == active.parking.get()) return false;
    if (!active.request.use_cache || parking->image->salt != active.request.salt) return false;
    const uint32_t shared = common_prefix(parking->image->span(), prompt);
    const bool forks_it = active.plan.source == Plan::Source::slot && active.plan.slot == parking->slot;
    return shared >= limits::kMinReuseTokens && (shared > active.plan.usable_tokens || forks_it);
  };
  if (worth_it(background_.get())) {
    let_background_go(background_->slot);
    return true;
  }
  return std::any_of(active_.begin(), active_.end(),
                     [&](const Active& other) { return worth_it(other.parking.get()); });
}

// The slot a plan is carried out in; null when it must wait for one.
Slot* Stack::choose_slot(const Active& active) {
  if (active.placement.slot != kNoSlot) return &slot(active.placement.slot);
  if (active.request.slot) return &slot(*active.request.slot);
  const Plan& plan = active.plan;
  if (plan.source != Plan::Source::slot) return least_used_idle(slots_);
  if (plan.in_place && !plan.loses_conversation) return &slot(plan.slot);
  return least_used_idle(slots_, plan.slot);
}

void Stack::follow_plan(Active& active) {
  Slot* target = choose_slot(active);
  if (target == nullptr) return;
  if (active.plan.source == Plan::Source::slot)
    return follow_slot_plan(active, slot(active.plan.slot), *target);
  if (target->id != active.placement.slot && !target->idle()) return;
  pin_source(active);
  claim(active, *target);
  park_outgoing(active);
}

void Stack::follow_slot_plan(Active& active, Slot& source, Slot& target) {
  const Plan& plan = active.plan;
  const bool stays = plan.in_place && target.id == source.id;
  if (stays && !plan.loses_conversation) {
    claim(active, target);
    continue_in_place(active, target);
  } else if (active.may_fork_slots && parks()) {
    // The state is shared through the RAM tier: park it, then plan again with what is parked.
    if (stays) claim(active, target);
    const bool whole = source.copies_out == 0 && !(source.request && source.request != active.request.id);
    park_donor(active, source, whole ? source.length() : plan.usable_tokens);
  } else if (stays) {
    claim(active, source);
    continue_in_place(active, source);
  } else {
    // What cannot be parked is overwritten only where no other slot is to be had.
    active.may_fork_slots = active.may_cut_slots = false;
    plan_again(active);
  }
}

void Stack::plan_again(Active& active) {
  active.step = Step::planning;
  plan(active);
}

void Stack::claim(Active& active, Slot& target) {
  if (active.placement.slot == target.id) return;
  STRATA_CHECK(target.idle());
  target.request = active.request.id;
  target.placing = true;
  active.placement.slot = target.id;
  active.state = RequestState::placing;
  active.started_ns = ports_.clock.monotonic_ns();
}

void Stack::pin_source(Active& active) {
  if (active.plan.source == Plan::Source::ram) {
    ram_->pin(active.plan.key);
    ram_->touch(active.plan.key);
    active.source = ram_->find(active.plan.key)->image;
    active.source->last_used_ns = ports_.clock.wall_ns();
    if (DiskTier::Entry* stored = disk_ ? disk_->find(active.source->id) : nullptr) disk_->touch(stored->key);
    if (disk_) (void)disk_->cancel_spill(*active.source);  // DISK-2: asked for before its write started
    active.pinned = true;
  } else if (active.plan.source == Plan::Source::disk) {
    disk_->pin(active.plan.key);
    disk_->touch(active.plan.key);
    active.source = disk_->find(active.plan.key)->image;
    active.source->last_used_ns = ports_.clock.wall_ns();
    active.pinned = true;
  }
}

void Stack::unpin_source(Active& active) {
  if (!active.pinned) return;
  active.pinned = false;
  if (active.plan.source == Plan::Source::ram) ram_->unpin(active.plan.key);
  if (active.plan.source == Plan::Source::disk) {
    if (active.reading) disk_->end_read(active.plan.key);
    disk_->unpin(active.plan.key);
  }
  active.reading = false;
  active.source.reset();
}

// --- forks of what a slot holds

void Stack::park_donor(Active& active, Slot& donor, uint32_t tokens) {
  SkipReason why = SkipReason::off;
  active.may_fork_slots = false;  // one try; the next plan finds the parked image, or does without
  if (tokens == donor.length() && stored_state(donor)) return plan_again(active);
  active.parking = start_parking(donor, tokens, why);
  if (!active.parking) {
    skip_parking(donor, why, 0);
    return plan_again(active);
  }
  active.step = Step::parking_donor;
}

void Stack::donor_parked(Active& active) {
  if (step_parking(*active.parking)) return;
  active.parking.reset();
  active.step = Step::planning;
}

// --- the slot's outgoing conversation

bool Stack::stored_state(const Slot& held) const {
  const RamTier::Entry* parked = ram_->find(held.conversation);
  if (parked != nullptr && parked->image->generation == held.generation &&
      parked->image->tokens == held.tokens) {
    return true;
  }
  const DiskTier::Entry* stored = disk_ ? disk_->find(held.conversation) : nullptr;
  return stored != nullptr && stored->head.generation == held.generation &&
         stored->head.token_count == held.length() &&
         stored->head.prefix_chain == prefix_chain(held.span(), held.salt);
}

void Stack::park_outgoing(Active& active) {
  Slot& target = slot(active.placement.slot);
  active.step = Step::parking_outgoing;
  if (target.empty() || target.one_shot || stored_state(target)) return;
  SkipReason why = SkipReason::off;
  active.parking = start_parking(target, target.length(), why);
  if (!active.parking) skip_parking(target, why, 0);
}

// The outgoing conversation is parked, or cannot be: the slot takes the incoming one.
void Stack::fill_slot(Active& active) {
  if (active.parking) {
    if (step_parking(*active.parking)) return;
    active.parking.reset();
  }
  Slot& target = slot(active.placement.slot);
  if (active.finished) return give_up(active);
  // Others may still copy out of what the slot holds; and a model stages only so many imports at once.
  if (target.copies_out > 0) return;
  const size_t imports_at_once = std::max<size_t>(1, model_.staged_imports);
  if (active.plan.source != Plan::Source::none && open_restores() >= imports_at_once) return;
  if (active.plan.source == Plan::Source::none) {
    start_fresh(active, target);
  } else {
    start_restore(active, target);
  }
}

void Stack::start_fresh(Active& active, Slot& target) {
  if (Status cleared = ports_.model.clear(target.id); !cleared.ok()) return fail(active, cleared.error());
  reset(target);
  target.conversation = new_conversation();
  target.created_ns = ports_.clock.wall_ns();
  serve(active, target);
}

void Stack::continue_in_place(Active& active, Slot& target) {
  const uint32_t tokens = active.plan.usable_tokens;
  if (tokens < target.length()) {
    if (Status cut = ports_.model.truncate(target.id, tokens); !cut.ok()) return fail(active, cut.error());
    if (tokens + 1 < target.answer_start) {  // another conversation from here on; the old one was parked
      target.conversation = new_conversation();
      target.generation = 0;
      target.created_ns = ports_.clock.wall_ns();
    }
    target.tokens.resize(tokens);
    mark_unwritten(target);
    std::erase_if(target.media, [&](const MediaMark& mark) { return mark.start >= tokens; });
    drop_parts_behind(target, tokens);
  }
  // What is stored of it is in use, too.
  if (DiskTier::Entry* stored = disk_ ? disk_->find(target.conversation) : nullptr) disk_->touch(stored->key);
  serve(active, target);
}

// --- restore

size_t Stack::open_restores() const {
  const bool by_name =
      session_ && session_->restore && session_->restore->state() == NamedRestore::State::moving;
  return static_cast<size_t>(std::count_if(active_.begin(), active_.end(),
                                           [](const Active& active) { return active.restore != nullptr; })) +
         (by_name ? 1 : 0);
}

// What the slot holds is stored elsewhere, or wanted by nobody: the model can use its room for what comes,
// and its new tokens need not attend past it.
Status Stack::empty_if_stored(Slot& target) {
  if (target.empty() || (!target.one_shot && !stored_state(target))) return {};
  STRATA_TRY(ports_.model.clear(target.id));
  reset(target);
  return {};
}

void Stack::start_restore(Active& active, Slot& target) {
  if (active.plan.source == Plan::Source::disk) {
    // Who waits to be read does not keep a newer state of itself from being parked: the two would wait for
    // each other.
    const DiskTier::Entry* stored = disk_->find(active.plan.key);
    if (stored == nullptr || !disk_->may_read(*stored)) {
      unpin_source(active);
      return plan_again(active);
    }
    disk_->begin_read(active.plan.key);
    active.reading = true;
  }
  if (Status emptied = empty_if_stored(target); !emptied.ok()) return fail(active, emptied.error());
  const uint32_t tokens = active.plan.usable_tokens;
  Restore::Request request;
  request.slot = target.id;
  request.image = active.source;
  request.tokens = tokens;
  request.folder = options_.disk_folder;
  request.patience_ns = patience_ns(tokens);
  const bool at_checkpoint = model_.needs_checkpoints || !model_.state_in_blocks;
  for (const PartRef& part : active.source->parts) {
    const bool needed = part->is_block() ? part->first < tokens : at_checkpoint && part->first == tokens;
    if (needed) request.parts.push_back(part);
  }
  for (const PartRef& part : request.parts) ram_->hold(part);
  active.held = request.parts;
  request.keep_into = keep_buffers(request.parts, active.request.keep);
  if (auto refused = no_memory_for(request)) return do_without_restore(active, target, *refused);
  Restore::Ports ports{ports_.model, ports_.device, ports_.clock,        in_stream_,
                       ports_.files, reader_.get(), staging_pool_.get(), &unsettled_};
  active.restore = std::make_unique<Restore>(ports, std::move(request));
  active.restore_started_ns = ports_.clock.monotonic_ns();
  active.step = Step::restoring;
}

// As long as reading the prompt again would take: after that, waiting on has cost more.
uint64_t Stack::patience_ns(uint32_t tokens) const {
  constexpr uint64_t kLeastNs = 5'000'000'000;
  constexpr uint64_t kMostNs = 30'000'000'000;
  const uint64_t predicted_ns = cost_.predict_read_ns(tokens);
  return predicted_ns == 0 ? kMostNs : std::clamp(predicted_ns, kLeastNs, kMostNs);
}

// RAM-1 holds for reading back, too: the buffers it passes through come from above the floor.
std::optional<SkipReason> Stack::no_memory_for(const Restore::Request& request) {
  uint64_t streamed = 0;
  for (size_t i = 0; i < request.parts.size(); ++i) {
    const bool kept = i < request.keep_into.size() && request.keep_into[i];
    if (!request.parts[i]->ram && !kept) streamed += PinnedPool::class_bytes(request.parts[i]->bytes);
  }
  if (streamed == 0) return std::nullopt;
  const uint64_t needed = std::min(streamed, staging_pool_->budget_bytes());
  const auto missing = ram_->short_of_floor(needed - std::min(needed, staging_pool_->allocated_bytes()));
  if (!missing.ok()) return SkipReason::memory_unknown;
  if (*missing > 0) return SkipReason::min_free_ram;
  return std::nullopt;
}

void Stack::do_without_restore(Active& active, Slot& target, SkipReason why) {
  ports_.metrics.add("strata_skips_total", fmt::format("tier=\"ram\",reason=\"{}\"", label(why)));
  ports_.log.write(LogLevel::warning,
                   fmt::format("strata: conversation cache: {} tokens are not read back ({})",
                               active.plan.usable_tokens, label(why)));
  end_restore(active);
  unpin_source(active);
  active.plan = Plan();
  active.cause = {ReadReason::too_large, 0};
  start_fresh(active, target);
}

// Buffers for what comes from the disk, if the RAM tier has room to keep all of it; otherwise it is streamed.
std::vector<HostBufferRef> Stack::keep_buffers(const std::vector<PartRef>& parts, bool keep) {
  uint64_t bytes = 0;
  for (const PartRef& part : parts) {
    if (!part->ram) bytes += PinnedPool::class_bytes(part->bytes);
  }
  // A copy of what lies on disk is not worth an image that does not.
  if (bytes == 0 || !keep || ram_->make_room(bytes, RamTier::Loss::forbidden)) return {};
  return ram_buffers(parts, [](const Part& part) { return part.ram == nullptr; });
}

// In the order of the parts, null for those that are not wanted; all of them or none.
std::vector<HostBufferRef> Stack::ram_buffers(const std::vector<PartRef>& parts,
                                              const std::function<bool(const Part&)>& wanted) {
  std::vector<HostBufferRef> buffers(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!wanted(*parts[i])) continue;
    auto buffer = ram_->allocate(parts[i]->bytes);
    if (!buffer.ok()) return {};
    buffers[i] = std::move(*buffer);
  }
  return buffers;
}

void Stack::end_restore(Active& active) {
  for (const PartRef& part : active.held) ram_->release(part);
  active.held.clear();
  if (active.restore && active.restore->lingers())
    lingering_.push_back(std::move(active.restore));
  else
    active.restore.reset();
}

void Stack::restore_done(Active& active, Slot& target) {
  cheaper_in_a_row_ = 0;
  const uint32_t tokens = active.plan.usable_tokens;
  const ImageRef image = active.source;
  const uint64_t now = ports_.clock.monotonic_ns();
  active.placement.restored_bytes = active.restore->restored_bytes();
  active.placement.disk_bytes = active.restore->disk_bytes();
  if (active.restore->disk_bytes() > 0) {
    cost_.observe_disk_read(active.restore->disk_bytes(), active.restore->disk_ns());
    cost_.observe_digest(active.restore->disk_bytes(), active.restore->digest_ns());
  } else {
    cost_.observe_copy(active.restore->restored_bytes(), now - active.restore_started_ns);
  }
  reset(target);
  // Of two that go on from the same state only one is that conversation.
  const bool elsewhere = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
    return other.id != target.id && other.conversation == image->id;
  });
  const bool goes_on = tokens == image->length() && !elsewhere;
  target.conversation = goes_on ? image->id : new_conversation();
  target.generation = goes_on ? image->generation : 0;
  target.created_ns = goes_on ? image->created_ns : ports_.clock.wall_ns();
  target.tokens.assign(image->tokens.begin(), image->tokens.begin() + tokens);
  for (const MediaMark& mark : image->media) {
    if (mark.start < tokens) target.media.push_back(mark);
  }
  std::vector<PartRef> inherited;
  for (const PartRef& part : image->parts) {
    if (part->is_block() ? part->end() <= tokens : part->first <= tokens) inherited.push_back(part);
  }
  inherit(target, std::move(inherited));
  const bool in_ram = std::all_of(image->parts.begin(), image->parts.end(),
                                  [](const PartRef& part) { return part->ram != nullptr; });
  if (active.plan.source == Plan::Source::disk && in_ram && ram_->on() && ram_->find(image->id) == nullptr) {
    const uint64_t key = next_key_++;
    ram_->admit(key, image);
    index_.insert(key, prefix_chain(image->span(), image->salt), image->length());
  }
  end_restore(active);
  unpin_source(active);
  serve(active, target);
}

// An image in RAM whose old checkpoints on disk cannot be used goes on without them.
void Stack::forget_disk_only_parts(Active& active) {
  for (PartRef& part : active.source->parts) {
    if (part->is_block() || part->ram) continue;
    auto lost = std::make_shared<Part>(*part);  // others may know more of the same part
    lost->disk.reset();
    ram_->hold(lost);
    ram_->release(part);
    part = std::move(lost);
  }
}

// What slots still hold is written anew when they are parked, not left to a copy that is known to be bad.
void Stack::distrust(const Extent& damaged) {
  for (Slot& each : slots_) {
    std::vector<PartRef> parts = each.parts;
    bool changed = false;
    for (PartRef& part : parts) {
      if (part->disk != damaged) continue;
      part = std::make_shared<Part>(*part);  // whoever else knows it finds out by himself
      part->disk.reset();
      changed = true;
    }
    if (changed) inherit(each, std::move(parts));
  }
}

void Stack::restore_failed(Active& active, Slot& target) {
  const Error error = active.restore->error();
  const bool cancelled = error.code == ErrorCode::cancelled;
  const bool from_disk = active.plan.source == Plan::Source::disk;
  const bool storage_failed = active.restore->storage_failed();
  const ReadReason reason = error.code == ErrorCode::corrupt ? ReadReason::corrupt : ReadReason::io_error;
  const uint64_t key = active.plan.key;
  if (!from_disk && storage_failed) forget_disk_only_parts(active);
  if (const auto damaged = active.restore->damaged()) distrust(*damaged);
  end_restore(active);
  unpin_source(active);
  active.step = Step::planning;
  if (!model_.staged_import) {  // the slot holds neither the old conversation nor the new one
    if (Status cleared = ports_.model.clear(target.id); !cleared.ok()) return fail(active, cleared.error());
    reset(target);
  }
  if (cancelled) return;
  ports_.log.write(LogLevel::warning,
                   fmt::format("strata: conversation cache: restore into slot {} failed ({}): {}", target.id,
                               label(reason), error.message));
  active.avoid.insert(key);
  active.cause = {reason, 0};
  active.cause_fixed = true;
  ++active.retries;
  if (from_disk && storage_failed) disk_->quarantine(key, reason, error.message);
}

// --- serving

void Stack::serve(Active& active, Slot& target) {
  const uint64_t now = ports_.clock.monotonic_ns();
  const TierRequest& request = active.request;
  target.placing = false;
  target.salt = request.salt;
  target.one_shot = !request.keep;
  target.answer_start = static_cast<uint32_t>(request.tokens.size());
  target.root = request.borders.empty() ? 0 : request.borders.front();
  target.last_used_ns = now;
  target.media = request.media;
  target.due.clear();
  if (model_.needs_checkpoints && request.keep && parks()) {
    target.due = checkpoint_positions(target.length(), target.answer_start, request.borders, rules());
  }
  active.placement.reused_tokens = target.length();
  active.placement.tier = target.length() == 0 ? Tier::none : tier_of(active.plan.source);
  active.placement.cause = active.cause;
  active.placement.placing_ns = now - active.started_ns;
  active.state = RequestState::serving;
  active.step = Step::settled;
  report_placement(active);
}

void Stack::report_placement(const Active& active) {
  const Placement& placement = active.placement;
  Metrics& metrics = ports_.metrics;
  if (placement.reused_tokens > 0) {
    const std::string tier = fmt::format("tier=\"{}\"", to_string(placement.tier));
    metrics.add("strata_cache_hits_total", tier);
    metrics.add("strata_reused_tokens_total", tier, placement.reused_tokens);
    if (placement.restored_bytes > 0) {
      metrics.observe_seconds("strata_restore_seconds", tier, ms(placement.placing_ns) / 1e3);
      metrics.add("strata_restored_bytes_total", tier, static_cast<double>(placement.restored_bytes));
    }
  }
  if (placement.cause.reason != ReadReason::none) {
    metrics.add("strata_cache_misses_total", fmt::format("reason=\"{}\"", label(placement.cause.reason)));
  }
  if (placement.tier == Tier::disk) log_disk_hit(placement);
}

// With the totals so far (DISK-10).
void Stack::log_disk_hit(const Placement& placement) {
  constexpr std::string_view kTier = "tier=\"disk\"";
  const Metrics& metrics = ports_.metrics;
  const double seconds = std::max(ms(placement.placing_ns) / 1e3, 1e-9);
  ports_.log.write(
      LogLevel::info,
      fmt::format(
          "strata: conversation disk: hit {} tokens, {:.1f} MiB in {:.1f} ms ({:.0f} MB/s); hits={:.0f} "
          "tokens={:.0f} stored={} bytes={}",
          placement.reused_tokens, static_cast<double>(placement.disk_bytes) / limits::kMiB,
          ms(placement.placing_ns), static_cast<double>(placement.disk_bytes) / 1e6 / seconds,
          metrics.value("strata_cache_hits_total", kTier), metrics.value("strata_reused_tokens_total", kTier),
          disk_->entries().size(), disk_->charged_bytes()));
}

void Stack::fail(Active& active, const Error& error) {
  unpin_source(active);
  active.failure = error.message;
  active.state = RequestState::failed;
  active.step = Step::settled;
  if (active.placement.slot == kNoSlot) return;
  // Whatever the model holds there now is not known: the slot starts from nothing.
  Slot& target = slot(active.placement.slot);
  (void)ports_.model.clear(target.id);
  reset(target);
  target.placing = false;
}

}  // namespace strata
