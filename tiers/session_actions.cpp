// Sessions saved by name: a slot's conversation to a file and back, between that slot's requests, while the
// other slots go on (SES-1 to SES-7, RAM-7).
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "core/check.hpp"
#include "tiers/part_list.hpp"
#include "tiers/stack.hpp"

namespace strata {

namespace {

constexpr uint64_t kBuffersBackNs = 10'000'000'000;

double mib(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(limits::kMiB); }

// What runs out while a file is read is memory; while one is written it is space, unless the system says
// otherwise.
SessionFault fault_of(const Error& error, SessionRequest::Kind kind) {
  switch (error.code) {
    case ErrorCode::invalid:
    case ErrorCode::not_found:
    case ErrorCode::unsupported:
    case ErrorCode::corrupt:
      return SessionFault::invalid;
    case ErrorCode::exhausted:
      return kind == SessionRequest::Kind::restore || error.os_errno == ENOMEM ? SessionFault::memory
                                                                               : SessionFault::storage;
    default:
      return SessionFault::io;
  }
}

}  // namespace

const char* to_string(SessionFault fault) {
  constexpr const char* kNames[] = {"invalid", "storage", "memory", "io"};
  return kNames[static_cast<size_t>(fault)];
}

const char* to_string(SessionRequest::Kind kind) {
  constexpr const char* kNames[] = {"save", "restore", "erase"};
  return kNames[static_cast<size_t>(kind)];
}

Status Stack::begin_session(SessionRequest request) {
  if (shutting_down_) return make_error(ErrorCode::unavailable, "the engine is shutting down");
  if (session_) return make_error(ErrorCode::unavailable, "a session action is under way");
  if (request.slot < 0 || request.slot >= static_cast<SlotId>(slots_.size()))
    return make_error(ErrorCode::invalid,
                      fmt::format("slot {} does not exist: there are {}", request.slot, slots_.size()));
  session_.emplace();
  for (const Active& active : active_) {
    const bool may_come_here = !active.request.slot || *active.request.slot == request.slot;
    if (active.placement.slot == kNoSlot && may_come_here) session_->before.insert(active.request.id);
  }
  session_->request = std::move(request);
  step_session();
  return {};
}

std::vector<uint64_t> Stack::take_session_progress() {
  return session_ ? std::exchange(session_->view.moved_bytes, {}) : std::vector<uint64_t>();
}

void Stack::cancel_session() {
  if (!session_running()) return;
  session_->cancelled = true;
  if (session_->save) session_->save->cancel();
  if (session_->restore) session_->restore->cancel();
}

void Stack::end_session() {
  STRATA_CHECK(session_ && !session_running());
  session_.reset();
}

bool Stack::session_running() const {
  return session_ && (session_->view.state == SessionView::State::waiting ||
                      session_->view.state == SessionView::State::running);
}

void Stack::step_session() {
  if (!session_running()) return;
  Slot& target = slot(session_->request.slot);
  if (session_->view.state == SessionView::State::waiting) {
    if (session_->cancelled)
      return session_failed(make_error(ErrorCode::cancelled, "the engine is shutting down"));
    if (!slot_is_next(target)) return;
    start_session(target);
  }
  if (session_running() && session_->save) step_save(target);
  if (session_running() && session_->restore) step_named_restore(target);
}

// Requests that came before the action take the slot before it does; those that come later wait for it.
bool Stack::slot_is_next(Slot& target) {
  std::erase_if(session_->before, [this](RequestId id) {
    const Active* active = find(id);
    return active == nullptr || active->placement.slot != kNoSlot;
  });
  if (!session_->before.empty()) return false;
  target.reserved = true;
  let_background_go(target.id);
  if (target.request || target.copies_out > 0) return false;
  // An earlier transfer that failed gives its buffers back when the device is done with them; not for ever.
  if (session_->free_since_ns == 0) session_->free_since_ns = ports_.clock.monotonic_ns();
  const uint64_t waited_ns = ports_.clock.monotonic_ns() - session_->free_since_ns;
  const bool needs_none = session_->request.kind == SessionRequest::Kind::erase;
  return needs_none || session_pool_->in_use_bytes() == 0 || waited_ns >= kBuffersBackNs;
}

void Stack::start_session(Slot& target) {
  session_->view.state = SessionView::State::running;
  session_->started_ns = ports_.clock.monotonic_ns();
  if (session_->request.kind == SessionRequest::Kind::erase) {
    target.reserved = false;
    const auto erased = erase(target.id);
    if (!erased.ok()) return session_failed(SessionFault::io, erased.error().message);
    session_->view.tokens = *erased;
    return session_over(SessionView::State::done);
  }
  if (ports_.files == nullptr || !state_can_be_kept())
    return session_failed(SessionFault::invalid,
                          "this model's state cannot be cut, and checkpoints are off (--prompt-cache 0)");
  if (session_pool_->in_use_bytes() > 0)
    return session_failed(SessionFault::memory,
                          "the device has not given back the buffers of an earlier transfer");
  if (session_->request.kind == SessionRequest::Kind::save)
    start_save(target);
  else
    start_named_restore();
}

bool Stack::state_can_be_kept() const { return !model_.needs_checkpoints || options_.checkpoints_max > 0; }

std::function<void(uint64_t)> Stack::session_moved() {
  return [this](uint64_t bytes) {
    session_->moved += bytes;
    session_->view.moved_bytes.push_back(session_->moved);
  };
}

// --- save

// As it is stored: under the conversation's own id, with times of the wall clock. A part that comes out of
// the slot anew is the file's alone.
ImageRef Stack::image_to_save(const Slot& from) {
  ImageRef image = image_of(from, from.length());
  image->id = from.conversation;
  image->created_ns = clock_.on_the_wall(from.created_ns);
  image->last_used_ns = clock_.on_the_wall(ports_.clock.wall_ns());
  std::vector<PartRef> fresh;
  (void)collect_parts(from, from.length(), *image, fresh);
  image->parts = parts_to_publish(*image, model_.stages);
  for (PartRef& part : image->parts) {
    const bool out_of_slot = part->is_block() || part->first == from.length();
    if (part->ram || !out_of_slot) continue;
    part = std::make_shared<Part>(*part);
    part->disk.reset();
  }
  return image;
}

void Stack::start_save(Slot& from) {
  if (from.empty())
    return session_failed(SessionFault::invalid, fmt::format("slot {} holds nothing", from.id));
  std::string missing;
  if (!free_for_save(session_pool_->budget_bytes(), missing))
    return session_failed(SessionFault::memory, std::move(missing));
  NamedSave::Request request;
  request.slot = from.id;
  request.slot_tokens = from.length();
  request.image = image_to_save(from);
  request.rules = {false, identity_, model_.stages, model_.tokens_per_block};
  request.target = session_->request.path;
  request.temporary =
      fmt::format("{}/.strata-{:016x}.tmp", folder_of(session_->request.path), ports_.random.next());
  request.disk_folder = options_.disk_folder;
  request.min_free_bytes = options_.session_min_free_bytes;
  request.on_moved = session_moved();
  session_->held = request.image->parts;
  for (const PartRef& part : session_->held) ram_->hold(part);
  ++from.copies_out;
  session_->view.tokens = from.length();
  const NamedSave::Ports ports{ports_.model,   ports_.device, unsettled_,    out_stream_,
                               *session_pool_, *ports_.files, ports_.worker, reader_.get()};
  session_->save = std::make_unique<NamedSave>(ports, std::move(request));
  session_->view.total_bytes = session_->save->total_bytes();
}

void Stack::step_save(Slot& from) {
  SessionView& view = session_->view;
  const NamedSave::State state = session_->save->step();
  if (state == NamedSave::State::flushing) view.phase = SessionView::Phase::flush;
  if (state == NamedSave::State::publishing) view.phase = SessionView::Phase::publish;
  // Before that the file is the worker's.
  if (view.phase != SessionView::Phase::moving) view.file_bytes = session_->save->file_bytes();
  if (state != NamedSave::State::done && state != NamedSave::State::failed) return;
  view.published = session_->save->published();
  if (!session_->save->note().empty())
    ports_.log.write(LogLevel::warning, "strata: session: the folder of a saved file cannot be flushed: " +
                                            session_->save->note());
  const Error error = session_->save->error();
  session_->save.reset();
  for (const PartRef& part : session_->held) ram_->release(part);
  session_->held.clear();
  --from.copies_out;
  if (state == NamedSave::State::done) return session_done();
  view.published ? session_failed(SessionFault::io, error.message) : session_failed(error);
}

// --- RAM for a save (RAM-7)

// Null when the system has so much above the floor.
std::optional<std::string> Stack::session_memory_missing(uint64_t bytes) {
  const auto missing = ram_->short_of_floor(bytes);
  if (!missing.ok()) return "available memory is not known: " + missing.error().message;
  if (*missing == 0) return std::nullopt;
  return fmt::format(
      "{:.1f} MiB of buffers would leave {:.1f} MiB less than --conversation-cache-min-free-mib", mib(bytes),
      mib(*missing));
}

bool Stack::free_for_save(uint64_t bytes, std::string& why) {
  uint32_t freed = 0;
  auto missing = session_memory_missing(bytes);
  while (missing && options_.session_save_reclaim && reclaim_one()) {
    ++freed;
    missing = session_memory_missing(bytes);
  }
  if (freed > 0)
    ports_.log.write(LogLevel::info, fmt::format("strata: session: freed memory for a save in {} steps: {}",
                                                 freed, missing ? "not enough" : "enough"));
  if (missing) why = std::move(*missing);
  return why.empty();
}

// The cheapest first: what is kept for reuse, copies of what is on the disk or in a slot, parked
// conversations from the oldest on, then checkpoints from the back. False: there is nothing more.
bool Stack::reclaim_one() {
  const auto give_back = [this] {
    const uint64_t before = ram_pool_->allocated_bytes();
    ram_pool_->trim(ram_pool_->budget_bytes());
    return ram_pool_->allocated_bytes() < before;
  };
  if (give_back()) return true;
  const bool let_go = ram_->evict_one(RamTier::Evict::stored) || drop_slot_copies() ||
                      ram_->evict_one(RamTier::Evict::any) || drop_last_checkpoint();
  if (let_go) (void)give_back();
  return let_go;
}

// Copies of blocks that a slot holds itself, and nobody else has.
bool Stack::drop_slot_copies() {
  for (const Slot& from : slots_) {
    if (from.copies_out > 0) continue;
    bool dropped = false;
    for (const PartRef& part : from.parts) {
      if (!part->is_block() || !part->ram || !ram_->has_one_user(*part)) continue;
      part->ram.reset();
      dropped = true;
    }
    if (dropped) return true;
  }
  return false;
}

// The one furthest back in any slot, over all stages.
bool Stack::drop_last_checkpoint() {
  Slot* last = nullptr;
  uint32_t position = 0;
  for (Slot& from : slots_) {
    for (const PartRef& part : from.parts) {
      const bool counts = from.copies_out == 0 && !part->is_block() && part->ram && ram_->has_one_user(*part);
      if (!counts || (last != nullptr && part->first <= position)) continue;
      last = &from;
      position = part->first;
    }
  }
  if (last == nullptr) return false;
  std::vector<PartRef> kept = last->parts;
  std::erase_if(kept, [&](const PartRef& part) { return !part->is_block() && part->first == position; });
  inherit(*last, std::move(kept));
  return true;
}

// --- restore

void Stack::start_named_restore() {
  if (reader_ == nullptr) return session_failed(SessionFault::invalid, "there is no way to read files");
  SavedLimits limits;
  limits.identity = identity_;
  limits.stage_count = model_.stages;
  limits.tokens_per_block = model_.tokens_per_block;
  limits.max_tokens = model_.context_tokens;
  for (StageId stage = 0; stage < model_.stages; ++stage) {
    const uint64_t blocks =
        model_.state_in_blocks ? model_.context_tokens / std::max(1u, model_.tokens_per_block) + 1 : 0;
    limits.max_parts += blocks;
    if (blocks > 0) limits.max_payload_bytes += blocks * model_.max_block_bytes[stage];
    const uint64_t checkpoints = limits::kMaxCheckpointsPerImage / model_.stages;
    limits.max_parts += checkpoints;
    limits.max_payload_bytes += checkpoints * std::max(model_.checkpoint_bytes[stage], kEmptyCheckpointBytes);
  }
  limits.max_payload_bytes = std::min(limits.max_payload_bytes, limits::kMaxSessionBytes);
  session_->restore =
      std::make_unique<NamedRestore>(NamedRestore::Ports{ports_.model, *ports_.files, ports_.worker},
                                     session_->request.path, std::move(limits));
}

void Stack::step_named_restore(Slot& target) {
  switch (session_->restore->step()) {
    case NamedRestore::State::opening:
    case NamedRestore::State::verifying:
    case NamedRestore::State::moving:
      return;
    case NamedRestore::State::opened:
      return verify_saved();
    case NamedRestore::State::verified:
      park_before_restore(target);
      if (session_->parked) move_saved(target);
      return;
    case NamedRestore::State::done:
      return adopt_restored(target);
    case NamedRestore::State::failed:
      return named_restore_failed(target);
  }
}

void Stack::verify_saved() {
  if (auto missing = session_memory_missing(session_pool_->budget_bytes())) {
    session_->restore.reset();
    return session_failed(SessionFault::memory, std::move(*missing));
  }
  session_->view.file_bytes = session_->restore->file_bytes();
  session_->view.phase = SessionView::Phase::validate;
  session_->restore->verify();
}

// What the slot holds gives way as for a request: nothing is lost that can be parked.
void Stack::park_before_restore(Slot& target) {
  if (session_->parked) return;
  if (session_->parking) {
    if (step_parking(*session_->parking)) return;
    session_->parking.reset();
    session_->parked = true;
    return;
  }
  session_->parked = target.empty() || target.one_shot || stored_state(target);
  if (session_->parked) return;
  SkipReason why = SkipReason::off;
  session_->parking = start_parking(target, target.length(), why);
  if (session_->parking) return;
  skip_parking(target, why, 0);
  session_->parked = true;
}

// Checkpoints before the end are worth having, but not worth what is not on the disk.
std::vector<HostBufferRef> Stack::buffers_for_checkpoints(const Image& image) {
  std::vector<uint32_t> positions = resume_positions(image.parts);
  std::erase(positions, image.length());
  if (!model_.needs_checkpoints || positions.empty()) return {};
  const std::vector<uint32_t> keep = checkpoints_to_keep(positions, image.length(), 0, rules());
  const auto kept = [&](const Part& part) {
    return !part.is_block() && std::binary_search(keep.begin(), keep.end(), part.first);
  };
  uint64_t bytes = 0;
  for (const PartRef& part : image.parts) bytes += kept(*part) ? PinnedPool::class_bytes(part->bytes) : 0;
  const auto refused =
      options_.disk_mode ? working_room(bytes) : ram_->make_room(bytes, RamTier::Loss::forbidden);
  if (bytes == 0 || refused) return {};
  return ram_buffers(image.parts, kept);
}

void Stack::move_saved(Slot& target) {
  // A model stages only so many imports at once; and others may still copy out of the slot.
  if (target.copies_out > 0 || open_restores() >= std::max<size_t>(1, model_.staged_imports)) return;
  const Image& image = *session_->restore->image();
  std::vector<HostBufferRef> keep = buffers_for_checkpoints(image);
  uint64_t total = 0;
  for (size_t i = 0; i < image.parts.size(); ++i) {
    const bool kept = i < keep.size() && keep[i] != nullptr;
    if (kept || session_->restore->needed(*image.parts[i])) total += image.parts[i]->bytes;
  }
  session_->view.phase = SessionView::Phase::moving;
  session_->view.total_bytes = total;
  target.placing = true;
  const Restore::Ports ports{ports_.model, ports_.device, ports_.clock,        in_stream_,
                             ports_.files, reader_.get(), session_pool_.get(), &unsettled_};
  session_->restore->move(target.id, ports, std::move(keep), session_moved());
}

// A conversation of its own from here on, whatever became of the one that was saved.
void Stack::adopt_restored(Slot& target) {
  const ImageRef image = session_->restore->image();
  session_->view.file_bytes = session_->restore->file_bytes();
  session_->restore.reset();
  reset(target);
  target.conversation = new_conversation();
  target.created_ns = ports_.clock.wall_ns();
  target.tokens = image->tokens;
  target.media = image->media;
  target.salt = image->salt;
  target.answer_start = image->length();
  std::vector<PartRef> kept;
  for (const PartRef& part : image->parts) {
    part->disk.reset();  // it does not lie in the conversation folder
    if (!part->is_block() && part->ram) kept.push_back(part);
  }
  inherit(target, std::move(kept));
  mark_unwritten(target);
  session_->view.tokens = target.length();
  session_->view.usable_tokens = usable_tokens(target);
  session_done();
}

// The longest prompt is one token short of the context, and its last token is always read.
uint32_t Stack::usable_tokens(const Slot& target) const {
  const uint32_t most = model_.context_tokens - std::min(model_.context_tokens, 2u);
  if (target.length() <= most) return target.length();
  if (model_.can_truncate) return most;
  uint32_t usable = 0;
  for (const uint32_t position : resume_positions(target.parts))
    if (position <= most) usable = std::max(usable, position);
  return usable;
}

void Stack::named_restore_failed(Slot& target) {
  if (session_->parking && step_parking(*session_->parking)) return;  // was cancelled meanwhile
  session_->parking.reset();
  const Error error = session_->restore->error();
  const bool lost = session_->restore->import_began() && !model_.staged_import;
  session_->restore.reset();
  if (!lost) return session_failed(error);
  (void)ports_.model.clear(target.id);
  reset(target);
  session_->view.reason = fmt::format("restore into slot {}: {}", target.id, error.message);
  session_over(SessionView::State::fatal);
}

// --- the end

void Stack::session_done() {
  const SessionView& view = session_->view;
  const uint64_t ns = ports_.clock.monotonic_ns() - session_->started_ns;
  const bool saved = session_->request.kind == SessionRequest::Kind::save;
  ports_.log.write(LogLevel::info,
                   fmt::format("strata: session: {} {} tokens, {:.1f} MiB in {:.1f} ms, slot {}",
                               saved ? "saved" : "restored", view.tokens, mib(view.file_bytes),
                               static_cast<double>(ns) / 1e6, session_->request.slot));
  session_over(SessionView::State::done);
}

void Stack::session_failed(const Error& error) {
  if (error.code == ErrorCode::cancelled)
    return session_failed(SessionFault::io, "the engine is shutting down");
  session_failed(fault_of(error, session_->request.kind), error.message);
}

void Stack::session_failed(SessionFault fault, std::string reason) {
  session_->view.fault = fault;
  session_->view.reason = std::move(reason);
  session_over(SessionView::State::failed);
}

void Stack::session_over(SessionView::State state) {
  Slot& target = slot(session_->request.slot);
  SessionView& view = session_->view;
  view.state = state;
  view.duration_ns = ports_.clock.monotonic_ns() - session_->started_ns;
  target.reserved = target.placing = false;
  target.last_used_ns = ports_.clock.monotonic_ns();
  session_pool_->trim(session_pool_->budget_bytes());  // nothing is held between actions
  const char* action = to_string(session_->request.kind);
  ports_.metrics.add("strata_session_actions_total", fmt::format("action=\"{}\"", action));
  if (state == SessionView::State::done) return;
  const char* reason = state == SessionView::State::failed ? to_string(view.fault) : "fatal";
  ports_.metrics.add("strata_session_failures_total",
                     fmt::format("action=\"{}\",reason=\"{}\"", action, reason));
  ports_.log.write(LogLevel::warning, fmt::format("strata: session: {} of slot {} failed ({}): {}", action,
                                                  session_->request.slot, reason, view.reason));
}

}  // namespace strata
