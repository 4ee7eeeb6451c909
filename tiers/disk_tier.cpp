#include "tiers/disk_tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "tiers/conversation_folder.hpp"
#include "tiers/part_list.hpp"

namespace strata {

namespace {

constexpr uint64_t kExpireEveryNs = 1'000'000'000;
constexpr uint64_t kUnknownUser = 0;  // of a file: no entry has this key, nothing of the file is given back

double mib(uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(limits::kMiB); }

// What a request learns about a conversation that was not taken in.
ReadReason read_reason(SkipReason refused) {
  switch (refused) {
    case SkipReason::identity:
      return ReadReason::identity;
    case SkipReason::expired:
      return ReadReason::expired;
    case SkipReason::budget:
      return ReadReason::evicted;
    case SkipReason::io_error:
      return ReadReason::io_error;
    default:
      return ReadReason::corrupt;
  }
}

}  // namespace

// --- open

Result<std::unique_ptr<DiskTier>> DiskTier::open(const Options& options, const Ports& ports,
                                                 Listener listener) {
  const std::string& folder = options.folder;
  STRATA_TRY(create_conversation_folder(ports.files, folder));
  auto lock = ports.files.lock(folder + "/LOCK");
  if (!lock.ok()) {
    if (lock.error().os_errno == EWOULDBLOCK) {
      return make_error(ErrorCode::unavailable,
                        "conversation folder " + folder + " is in use by another process");
    }
    return with_context(lock.error(), "conversation folder " + folder + " cannot be used");
  }
  std::unique_ptr<DiskTier> tier(new DiskTier(options, ports, std::move(listener)));
  tier->lock_ = *lock;
  STRATA_TRY(tier->probe_folder());
  STRATA_TRY(tier->take_in());
  ports.metrics.describe("strata_disk_failing", "1 when the last write to the conversation folder failed.");
  ports.metrics.set("strata_disk_failing", {}, 0);
  return tier;
}

DiskTier::DiskTier(const Options& options, const Ports& ports, Listener listener)
    : options_(options), ports_(ports), listener_(std::move(listener)) {}

DiskTier::~DiskTier() {
  if (lock_) ports_.files.unlock(lock_);
}

// What a folder promises is tried: write, sync, read back, compare.
Status DiskTier::probe_folder() {
  const std::string path = options_.folder + "/.strata-probe";
  const std::string context = "conversation folder " + options_.folder + " cannot be written";
  (void)ports_.files.unlink(path);
  auto file = ports_.files.open(path, OpenMode::create_exclusive, Caching::buffered);
  if (!file.ok()) return with_context(file.error(), context);
  std::vector<std::byte> pattern(limits::kAlignment);
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 7 + 3);
  std::vector<std::byte> back(pattern.size());
  auto probe = [&]() -> Status {
    STRATA_TRY(ports_.files.write_at(*file, pattern, 0));
    STRATA_TRY(ports_.files.sync_data(*file));
    STRATA_ASSIGN(const size_t count, ports_.files.read_at(*file, back, 0));
    if (count != back.size() || back != pattern) return make_error(ErrorCode::io, "bytes read back differ");
    return {};
  };
  Status outcome = probe();
  ports_.files.close(*file);
  (void)ports_.files.unlink(path);
  if (!outcome.ok()) return with_context(outcome.error(), context);
  return {};
}

Status DiskTier::take_in() {
  IntakeRules rules;
  rules.folder = options_.folder;
  rules.identity = options_.identity;
  rules.persist = options_.persist;
  rules.remove_foreign = options_.remove_foreign;
  rules.remove_all = options_.empty_at_start;
  rules.budget_bytes = options_.budget_bytes;
  rules.ttl_ns = options_.ttl_ns;
  rules.now_wall_ns = ports_.clock.wall_ns();
  STRATA_ASSIGN(intake_, strata::take_in(ports_.files, ports_.log, ports_.metrics, rules));
  kept_bytes_ = intake_.kept_bytes;
  for (const IntakeFile& found : intake_.files) {
    File file;
    // Which extents are in use is not known before the bodies were read: all of it counts as in use.
    const uint64_t size = align_up(std::min(found.size_bytes, limits::kMaxSessionBytes), limits::kAlignment);
    if (size > limits::kSessionHeaderBytes) {
      (void)file.map.reserve(limits::kSessionHeaderBytes, size - limits::kSessionHeaderBytes);
    }
    file.allocated_bytes = found.allocated_bytes;
    file.exists = true;
    file.incarnation = next_incarnation_++;
    if (found.kept_for_others) file.users.insert(kUnknownUser);
    files_.emplace(found.id, std::move(file));
  }
  for (const TakenIn& taken : intake_.taken) adopt(taken);
  for (const Refused& refused : intake_.refused) {
    if (refused.token_count > 0) listener_.refused_at_intake(refused, read_reason(refused.reason));
  }
  publish_gauges(true);
  return {};
}

void DiskTier::adopt(const TakenIn& taken) {
  Entry entry;
  entry.key = listener_.next_key();
  entry.head = taken.head;
  entry.index_bytes = taken.index_allocated_bytes;
  entry.last_used_ns = ports_.clock.of_stored(taken.head.last_used_ns);
  for (const ManifestFile& file : taken.head.files) {
    if (auto at = files_.find(file.id); at != files_.end()) at->second.users.insert(entry.key);
  }
  by_id_[entry.head.id] = entry.key;
  const Entry& placed = entries_[entry.key] = std::move(entry);
  listener_.appeared(placed);
}

// --- lookups

DiskTier::Entry* DiskTier::find(uint64_t key) {
  auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

DiskTier::Entry* DiskTier::find(ConversationId id) {
  auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : find(at->second);
}

void DiskTier::touch(uint64_t key) {
  Entry* entry = find(key);
  entry->last_used_ns = ports_.clock.wall_ns();
  entry->used_since = used_since_ = true;
}

void DiskTier::remember_uses() {
  if (!used_since_ || !options_.persist) return;
  used_since_ = false;
  last_remembered_ns_ = ports_.clock.monotonic_ns();
  TouchJob work;
  for (auto& [key, entry] : entries_) {
    if (!entry.used_since) continue;
    entry.used_since = false;
    work.uses.push_back({entry.head.id, ports_.clock.on_the_wall(entry.last_used_ns)});
  }
  if (!work.uses.empty()) releasing_.emplace(hand_over(std::move(work)), Releasing{});
}

void DiskTier::unpin(uint64_t key) {
  Entry* entry = find(key);
  if (entry == nullptr) return;  // quarantined while it was pinned
  STRATA_CHECK(entry->pins > 0);
  --entry->pins;
}

void DiskTier::end_read(uint64_t key) {
  Entry* entry = find(key);
  if (entry == nullptr) return;
  STRATA_CHECK(entry->reads > 0);
  --entry->reads;
}

std::string DiskTier::session_path(ConversationId file) const {
  return options_.folder + "/" + session_file_name(file);
}

uint64_t DiskTier::charged_bytes() const {
  uint64_t sum = kept_bytes_ + reserved_bytes_;
  for (const auto& [id, file] : files_) sum += file.allocated_bytes;
  for (const auto& [key, entry] : entries_) sum += entry.index_bytes;
  for (const auto& [job, releasing] : releasing_) sum += releasing.charged_bytes;
  return sum;
}

uint64_t DiskTier::queue_bytes() const {
  uint64_t sum = 0;
  for (const Pending& spill : pending_) sum += payload_bytes(spill.image->parts);
  each_laid_out([&](const Posted& posted) { sum += payload_bytes(posted.spill.image->parts); });
  return sum;
}

void DiskTier::each_laid_out(const std::function<void(const Posted&)>& visit) const {
  for (const auto& [job, posted] : posted_) visit(posted);
  // A stream's parts are known while it is laid out and not posted.
  for (const auto& [key, stream] : streams_) {
    if (!stream.posted.parts.empty()) visit(stream.posted);
  }
}

bool DiskTier::being_written(ConversationId id) const {
  bool found = false;
  each_laid_out([&](const Posted& posted) { found |= posted.spill.image->id == id; });
  return found;
}

bool DiskTier::stored(const PartRef& part) const {
  if (!part->disk) return false;
  auto file = files_.find(part->disk->file);
  if (file == files_.end()) return false;
  auto extent = file->second.extents.find(part->disk->offset);
  return extent != file->second.extents.end() && extent->second.part.lock() == part;
}

// --- SpillTarget

SpillState DiskTier::spill_state(const Image& image) const {
  for (const Pending& spill : pending_) {
    if (spill.image->id == image.id && spill.image->generation >= image.generation)
      return SpillState::pending;
  }
  for (const auto& [job, posted] : posted_) {
    if (posted.spill.image->id == image.id && posted.spill.image->generation >= image.generation)
      return SpillState::writing;
  }
  auto at = by_id_.find(image.id);
  if (at == by_id_.end()) return SpillState::none;
  return entries_.at(at->second).head.generation >= image.generation ? SpillState::clean : SpillState::none;
}

bool DiskTier::refuse_too_large(Pending& spill) {
  uint64_t whole = index_bytes_bound(*spill.image, options_.identity) + limits::kFileOverheadBytes;
  for (const PartRef& part : spill.image->parts) whole += extent_bytes(*part);
  if (whole + kept_bytes_ <= options_.budget_bytes) return false;
  drop_pending(spill, SkipReason::too_large,
               fmt::format("needs {:.1f} MiB, budget {:.1f} MiB", mib(whole), mib(options_.budget_bytes)));
  return true;
}

bool DiskTier::spill(const ImageRef& image) {
  Pending spill;
  spill.image = image;
  if (refuse_too_large(spill)) return false;
  for (auto older = pending_.begin(); older != pending_.end(); ++older) {
    if (older->image->id != image->id) continue;
    let_go(*older);
    pending_.erase(older);
    break;
  }
  spill.key = listener_.next_key();
  spill.queued_ns = ports_.clock.monotonic_ns();
  pending_.push_back(std::move(spill));
  log_queued(*image, queue_jobs());
  return true;
}

void DiskTier::log_queued(const Image& image, size_t queue) {
  ports_.log.write(LogLevel::info,
                   fmt::format("strata: conversation disk: queued {} tokens, {:.1f} MiB; queue={}",
                               image.length(), mib(payload_bytes(image.parts)), queue));
}

bool DiskTier::cancel_spill(const Image& image) {
  for (auto spill = pending_.begin(); spill != pending_.end(); ++spill) {
    if (spill->image->id != image.id || spill->image->generation != image.generation) continue;
    let_go(*spill);
    pending_.erase(spill);
    ports_.metrics.add("strata_skips_total", "tier=\"disk\",reason=\"cancelled\"");
    return true;
  }
  for (const auto& [job, posted] : posted_) {
    if (posted.spill.image->id == image.id && posted.spill.image->generation == image.generation)
      return ports_.writer.cancel(job);
  }
  return false;
}

// --- writing

SkipReason DiskTier::skip_reason(const Status& status) {
  if (status.ok()) return SkipReason::io_error;
  switch (status.error().code) {
    case ErrorCode::exhausted:
      return SkipReason::no_space;
    case ErrorCode::cancelled:
      return SkipReason::cancelled;
    case ErrorCode::corrupt:
      return SkipReason::corrupt;
    default:
      return SkipReason::io_error;
  }
}

bool DiskTier::step() {
  std::vector<WriteResult> results = ports_.writer.collect();
  for (WriteResult& result : results) take_result(result);
  settle_streams();
  expire();
  open_streams();
  post_pending();
  if (ports_.clock.monotonic_ns() - last_remembered_ns_ >= limits::kRememberUsesNs) remember_uses();
  compact();
  publish_gauges(!results.empty());
  return !settled();
}

void DiskTier::take_result(WriteResult& result) {
  if (auto posted = posted_.find(result.id); posted != posted_.end()) {
    Posted done = std::move(posted->second);
    posted_.erase(posted);
    finish_publish(done, result);
    return;
  }
  if (auto releasing = releasing_.find(result.id); releasing != releasing_.end()) {
    const Releasing done = std::move(releasing->second);
    releasing_.erase(releasing);
    finish_release(done, result);
    return;
  }
  if (compacting_ && compacting_->job == result.id) return finish_compaction(result);
  for (auto& [key, stream] : streams_) {
    if (stream.jobs.erase(result.id) > 0) return finish_extents(stream, result);
  }
}

void DiskTier::post_pending() {
  size_t at = 0;
  while (posted_.size() < limits::kMaxPostedJobs && at < pending_.size()) {
    Pending& spill = pending_[at];
    if (waits_for_others(spill)) {
      ++at;
      continue;
    }
    hold_extents(spill);
    const uint64_t bytes = needed_bytes(spill);
    SkipReason why = SkipReason::budget;
    const Room room = room_for(spill, bytes, why);
    if (room == Room::wait) return;
    Pending next = std::move(pending_[at]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
    if (room == Room::ready) {
      post(std::move(next), bytes);
    } else {
      let_go(next);
      drop_pending(next, why,
                   why == SkipReason::io_error ? "the free space of the folder cannot be told"
                                               : fmt::format("needs {:.1f} MiB", mib(bytes)));
      listener_.spill_dropped(*next.image);
    }
  }
}

bool DiskTier::waits_for_others(const Pending& spill) const {
  // A published state that somebody reads is not rewritten.
  auto older = by_id_.find(spill.image->id);
  if (older != by_id_.end()) {
    const Entry& entry = entries_.at(older->second);
    if (entry.reads > 0 || entry.loading) return true;
  }
  if (being_written(spill.image->id) || touches_compaction(*spill.image)) return true;
  // A part is written once: who shares it waits for where it will be.
  std::unordered_set<const Part*> writing;
  each_laid_out([&](const Posted& posted) {
    for (const PartRef& part : posted.written) writing.insert(part.get());
  });
  return std::any_of(spill.image->parts.begin(), spill.image->parts.end(),
                     [&](const PartRef& part) { return writing.contains(part.get()); });
}

// Everything of the image that is stored now, also what was written since this was called before.
void DiskTier::hold_extents(Pending& spill) {
  for (const PartRef& part : spill.image->parts) {
    if (!stored(part) || !spill.held.insert(part).second) continue;
    File& file = files_.at(part->disk->file);
    ++file.extents.at(part->disk->offset).users;
    file.users.insert(spill.key);
  }
}

// Undoes hold_extents; what only this job still held goes back.
void DiskTier::let_go(Pending& spill) {
  Image held;
  held.parts.assign(spill.held.begin(), spill.held.end());
  spill.held.clear();
  Freed freed;
  std::set<ConversationId> touched;
  for (const PartRef& part : held.parts) {
    if (part->disk) touched.insert(part->disk->file);
  }
  for (const ConversationId& id : touched) files_.at(id).users.erase(spill.key);
  unref_extents(held, freed);
  for (const ConversationId& id : touched) freed[id];
  post_release(spill.image->id, false, 0, std::move(freed));
}

uint64_t DiskTier::needed_bytes(const Pending& spill) const {
  uint64_t bytes = index_bytes_bound(*spill.image, options_.identity) + limits::kFileOverheadBytes;
  if (!files_.contains(spill.image->id)) bytes += limits::kSessionHeaderBytes;
  for (const PartRef& part : parts_to_publish(*spill.image, options_.stage_count)) {
    if (!stored(part)) bytes += extent_bytes(*part);
  }
  return bytes;
}

DiskTier::Room DiskTier::room_for(const Pending& spill, uint64_t bytes, SkipReason& why) {
  while (true) {
    const uint64_t charged = charged_bytes();
    const auto space = ports_.files.space(options_.folder);
    if (!space.ok()) {  // nothing is removed for a number that nobody knows
      why = SkipReason::io_error;
      return Room::refused;
    }
    const uint64_t free = space->free_bytes;
    const bool budget_ok = charged + bytes <= options_.budget_bytes;
    const bool floor_ok = free >= options_.min_free_bytes + reserved_bytes_ + bytes;
    if (budget_ok && floor_ok) return Room::ready;
    uint64_t coming = 0;
    for (const auto& [job, releasing] : releasing_) coming += releasing.expected_bytes;
    const bool enough_coming = charged + bytes <= options_.budget_bytes + coming &&
                               free + coming >= options_.min_free_bytes + reserved_bytes_ + bytes;
    if (enough_coming) return Room::wait;
    if (const Entry* victim = oldest_victim(spill)) {
      remove(victim->key, ReadReason::evicted);
      continue;
    }
    bool laid_out = false;  // what is on its way gives back what it does not need
    each_laid_out([&](const Posted&) { laid_out = true; });
    if (!releasing_.empty() || laid_out || compacting_) return Room::wait;
    why = budget_ok ? SkipReason::min_free_disk : SkipReason::budget;
    return Room::refused;
  }
}

DiskTier::Entry* DiskTier::oldest_victim(const Pending& spill) {
  Entry* oldest = nullptr;
  for (auto& [key, entry] : entries_) {
    if (entry.held_by_user || entry.head.id == spill.image->id || !may_remove(entry)) continue;
    if (oldest == nullptr || entry.last_used_ns < oldest->last_used_ns) oldest = &entry;
  }
  return oldest;
}

PublicationRules DiskTier::publication_rules() const {
  return {!options_.persist, options_.identity, options_.stage_count, options_.tokens_per_block};
}

SessionHeader DiskTier::stored_header(const Image& image) {
  SessionHeader header = session_header_of(image, publication_rules());
  header.created_ns = ports_.clock.on_the_wall(image.created_ns);
  return header;
}

Manifest DiskTier::stored_manifest(const Image& image, const std::vector<PartRef>& parts,
                                   const std::unordered_map<const Part*, Extent>& written, uint64_t own_bytes,
                                   uint64_t last_used_ns) {
  Manifest manifest = manifest_of(image, parts, written, own_bytes, publication_rules());
  manifest.head.created_ns = ports_.clock.on_the_wall(image.created_ns);
  manifest.head.last_used_ns = ports_.clock.on_the_wall(last_used_ns);
  return manifest;
}

// Reserves the bytes and the places of what is not stored.
DiskTier::Posted DiskTier::lay_out(Pending spill, uint64_t reserved_bytes) {
  const Image& image = *spill.image;
  File& own = files_[image.id];
  if (own.incarnation == 0) own.incarnation = next_incarnation_++;
  own.users.insert(spill.key);
  Posted posted;
  posted.reserved_bytes = reserved_bytes;
  posted.parts = parts_to_publish(image, options_.stage_count);
  for (const PartRef& part : posted.parts) {
    if (stored(part)) continue;
    posted.written.push_back(part);
    posted.extents.push_back(Extent{image.id, own.map.allocate(extent_bytes(*part)), part->bytes, {}});
  }
  posted.spill = std::move(spill);
  reserved_bytes_ += reserved_bytes;
  return posted;
}

// The publication of what was laid out, still without anything to write.
PublishJob DiskTier::publish_job(Posted& posted) {
  const Image& image = *posted.spill.image;
  const File& own = files_.at(image.id);
  std::unordered_map<const Part*, Extent> written;
  for (size_t i = 0; i < posted.written.size(); ++i) {
    written[posted.written[i].get()] = posted.extents[i];
  }
  const bool has_file = own.exists || !posted.written.empty();  // everything may be inherited
  PublishJob work;
  work.id = image.id;
  work.create_file = !own.exists && !posted.written.empty();
  work.file_length = own.map.end_bytes();
  work.header = stored_header(image);
  // The file may end before the map does: what a cancelled job was to write there never came.
  work.manifest = stored_manifest(image, posted.parts, written, has_file ? limits::kSessionHeaderBytes : 0,
                                  image.last_used_ns);
  posted.head = work.manifest.head;
  return work;
}

JobId DiskTier::hand_over(WriteWork work) {
  auto job = std::make_shared<WriteJob>();
  job->id = next_job_++;
  job->folder = options_.folder;
  job->work = std::move(work);
  const JobId id = job->id;
  ports_.writer.post(std::move(job));
  return id;
}

void DiskTier::post(Pending spill, uint64_t reserved_bytes) {
  Posted posted = lay_out(std::move(spill), reserved_bytes);
  PublishJob work = publish_job(posted);
  size_t next = 0;
  for (size_t i = 0; i < posted.parts.size() && next < posted.written.size(); ++i) {
    const PartRef& part = posted.parts[i];
    if (part != posted.written[next]) continue;
    STRATA_CHECK(part->ram != nullptr);  // waiting images stay in RAM
    const PartPlace place{work.id, part->stage, part->first, part->kind};
    work.writes.push_back(PartWrite{part->ram, place, part->bytes, posted.extents[next++].offset, i});
  }
  const JobId job = hand_over(std::move(work));
  posted_.emplace(job, std::move(posted));
}

void DiskTier::drop_pending(Pending& spill, SkipReason why, const std::string& detail) {
  if (why == SkipReason::io_error || why == SkipReason::no_space)
    ports_.metrics.set("strata_disk_failing", {}, 1);
  ports_.metrics.add("strata_skips_total", fmt::format("tier=\"disk\",reason=\"{}\"", label(why)));
  ports_.log.write(
      LogLevel::warning,
      fmt::format("strata: conversation disk: {} {} tokens, {:.1f} MiB; {}{}{}",
                  why == SkipReason::too_large ? "refused" : "dropped", spill.image->length(),
                  mib(payload_bytes(spill.image->parts)), label(why), detail.empty() ? "" : ": ", detail));
  done_bytes_ += payload_bytes(spill.image->parts);
}

void DiskTier::finish_publish(Posted& posted, WriteResult& result) {
  reserved_bytes_ -= posted.reserved_bytes;
  apply_sizes(result);
  charge_unknown_sizes(posted, result);
  if (!result.published) {
    publish_failed(posted, result);
    return;
  }
  if (!result.status.ok()) {
    ports_.log.write(LogLevel::warning,
                     "strata: conversation disk: published, but " + result.status.error().message);
  }
  File& own = files_.at(posted.head.id);
  own.exists = own.exists || !posted.written.empty();
  for (size_t i = 0; i < posted.written.size(); ++i) {
    Extent extent = posted.extents[i];
    if (posted.stream == 0) extent.digest = result.digests.at(i);
    posted.written[i]->disk = extent;
    own.extents[extent.offset] =
        KnownExtent{align_up(extent.length, limits::kAlignment), 1, posted.written[i]};
  }
  const uint64_t payload = payload_bytes(posted.spill.image->parts);
  ++published_count_;
  ports_.metrics.set("strata_disk_failing", {}, 0);
  done_bytes_ += payload;
  const uint64_t bytes = posted.ahead_bytes + result.written_bytes;
  const uint64_t streamed_ns = ports_.clock.monotonic_ns() - posted.started_ns;
  const double ms = static_cast<double>(posted.stream != 0 ? streamed_ns : result.duration_ns) / 1e6;
  ports_.metrics.add("strata_disk_written_bytes_total", {}, static_cast<double>(bytes));
  ports_.metrics.add("strata_disk_image_bytes_total", {}, static_cast<double>(payload));
  ports_.metrics.observe_seconds("strata_spill_seconds", {}, ms / 1e3);
  ports_.log.write(
      LogLevel::info,
      fmt::format("strata: conversation disk: wrote {} tokens, {:.1f} MiB in {:.1f} ms ({:.0f} MB/s); "
                  "image={:.1f} MiB",
                  posted.head.token_count, mib(bytes), ms,
                  ms > 0 ? static_cast<double>(bytes) / ms / 1e3 : 0.0, mib(payload)));
  replace_entry(posted, result);
  if (posted.stream != 0) streams_.at(posted.stream).status.state = StreamState::published;
}

void DiskTier::replace_entry(Posted& posted, const WriteResult& result) {
  Entry entry;
  entry.key = posted.spill.key;
  entry.head = std::move(posted.head);
  entry.image = posted.spill.image;
  entry.index_bytes = result.index_allocated_bytes;
  entry.last_used_ns = posted.spill.image->last_used_ns;
  const ConversationId id = entry.head.id;
  std::optional<Entry> old;
  if (Entry* older = find(id)) {
    entry.held_by_user = older->held_by_user;
    old = take_entry(older->key);
  }
  by_id_[id] = entry.key;
  const uint64_t key = entry.key;
  entries_[key] = std::move(entry);
  Freed freed;
  if (old) {
    forget_user(old->key, old->head, freed);
    if (old->image) unref_extents(*old->image, freed);
    listener_.gone(*old, ReadReason::none);
  }
  listener_.appeared(entries_.at(key));
  // Its name may not be on the disk yet: until the next start the older index must find its bytes.
  if (!result.status.ok()) return;
  post_release(id, false, 0, std::move(freed));
}

void DiskTier::publish_failed(Posted& posted, const WriteResult& result) {
  kept_bytes_ += result.index_allocated_bytes;  // of a temporary index that could not be removed
  take_back(posted);
  const bool cancelled = !result.status.ok() && result.status.error().code == ErrorCode::cancelled;
  const SkipReason why = cancelled ? SkipReason::cancelled : skip_reason(result.status);
  if (posted.stream != 0) {
    StreamStatus& status = streams_.at(posted.stream).status;
    status.state = StreamState::failed;
    status.why = why;
  }
  if (cancelled) {
    ports_.metrics.add("strata_skips_total", "tier=\"disk\",reason=\"cancelled\"");
    return;
  }
  drop_pending(posted.spill, why, result.status.ok() ? "" : result.status.error().message);
  listener_.spill_dropped(*posted.spill.image);
}

// Undoes lay_out.
void DiskTier::take_back(Posted& posted) {
  const ConversationId id = posted.spill.image->id;
  File& own = files_.at(id);
  Freed freed;
  for (const Extent& extent : posted.extents) {
    freed[id].push_back({extent.offset, align_up(extent.length, limits::kAlignment)});
  }
  own.users.erase(posted.spill.key);
  own.settled = false;
  if (!own.exists) {
    freed.erase(id);  // the writer removed the new file again
    files_.erase(id);
  }
  let_go(posted.spill);
  post_release(id, false, 0, std::move(freed));
}

void DiskTier::apply_sizes(const WriteResult& result) {
  for (const WriteResult::FileSize& size : result.files) {
    auto at = files_.find(size.file);
    if (at != files_.end() && (at->second.exists || result.published))
      at->second.allocated_bytes = size.allocated_bytes;
  }
}

// What a job left on the disk without being able to say how much counts as all it was allowed to take.
void DiskTier::charge_unknown_sizes(const Posted& posted, const WriteResult& result) {
  const bool cancelled = !result.status.ok() && result.status.error().code == ErrorCode::cancelled;
  if (cancelled || posted.written.empty()) return;
  const auto size = std::find_if(result.files.begin(), result.files.end(),
                                 [&](const auto& known) { return known.file == posted.spill.image->id; });
  const uint64_t at_most =
      posted.reserved_bytes - std::min(posted.reserved_bytes, result.index_allocated_bytes);
  File& own = files_.at(posted.spill.image->id);
  if (own.exists || result.published) {
    if (size == result.files.end()) own.allocated_bytes += at_most;
  } else {  // a new file that should be gone again
    kept_bytes_ += size == result.files.end() ? at_most : size->allocated_bytes;
  }
}

// --- giving space back

bool DiskTier::fully_known(const File& file) const {
  return std::all_of(file.users.begin(), file.users.end(), [&](uint64_t key) {
    auto entry = entries_.find(key);
    if (entry != entries_.end()) return entry->second.image != nullptr;
    bool waiting =
        std::any_of(pending_.begin(), pending_.end(), [&](const Pending& spill) { return spill.key == key; });
    for (const auto& [stream_key, stream] : streams_) waiting |= stream.posted.spill.key == key;
    each_laid_out([&](const Posted& posted) { waiting |= posted.spill.key == key; });
    return waiting;
  });
}

void DiskTier::unref_extents(const Image& image, Freed& freed) {
  for (const PartRef& part : image.parts) {
    if (!part->disk) continue;
    auto file = files_.find(part->disk->file);
    if (file == files_.end()) continue;
    auto extent = file->second.extents.find(part->disk->offset);
    if (extent == file->second.extents.end() || extent->second.users == 0) continue;
    if (--extent->second.users > 0) continue;
    file->second.settled = false;
    if (!fully_known(file->second)) continue;
    freed[file->first].push_back({extent->first, extent->second.length});
    file->second.extents.erase(extent);
    part->disk.reset();
  }
}

void DiskTier::forget_user(uint64_t key, const ManifestHead& head, Freed& freed) {
  for (const ManifestFile& used : head.files) {
    auto file = files_.find(used.id);
    if (file == files_.end()) continue;
    file->second.users.erase(key);
    freed[used.id];  // looked at by post_release: gone when nobody is left
  }
}

void DiskTier::post_release(ConversationId id, bool remove_index, uint64_t index_bytes, Freed freed) {
  ReleaseJob work;
  work.id = id;
  work.remove_index = remove_index;
  Releasing releasing;
  releasing.charged_bytes = releasing.expected_bytes = index_bytes;
  for (auto& [file_id, extents] : freed) {
    auto at = files_.find(file_id);
    if (at == files_.end()) continue;
    File& file = at->second;
    if (file.users.empty()) {
      for (auto& [offset, extent] : file.extents) {
        if (auto part = extent.part.lock()) part->disk.reset();
      }
      if (file.exists) work.files.push_back({file_id, true, {}});
      releasing.charged_bytes += file.allocated_bytes;
      releasing.expected_bytes += file.allocated_bytes;
      files_.erase(at);
    } else if (!extents.empty()) {
      for (const FreedExtent& extent : extents) releasing.expected_bytes += extent.length;
      releasing.punched.push_back({file_id, file.incarnation, extents});
      work.files.push_back({file_id, false, std::move(extents)});
    }
  }
  if (!remove_index && work.files.empty()) return;
  const JobId job = hand_over(std::move(work));
  releasing_.emplace(job, std::move(releasing));
}

void DiskTier::finish_release(const Releasing& releasing, const WriteResult& result) {
  apply_sizes(result);
  if (!result.status.ok()) {
    // What could not be given back stays charged, and its extents are not used again.
    kept_bytes_ += releasing.charged_bytes;
    ports_.metrics.add("strata_skips_total", "tier=\"disk\",reason=\"io_error\"");
    ports_.log.write(LogLevel::warning, "strata: conversation disk: space could not be given back: " +
                                            result.status.error().message);
    return;
  }
  for (const Releasing::Punched& punched : releasing.punched) {
    auto file = files_.find(punched.file);
    if (file == files_.end() || file->second.incarnation != punched.incarnation) continue;
    for (const FreedExtent& extent : punched.extents) file->second.map.release(extent.offset, extent.length);
  }
}

DiskTier::Entry DiskTier::take_entry(uint64_t key) {
  auto at = entries_.find(key);
  STRATA_CHECK(at != entries_.end());
  Entry entry = std::move(at->second);
  entries_.erase(at);
  by_id_.erase(entry.head.id);
  return entry;
}

void DiskTier::remove(uint64_t key, ReadReason why) {
  const Entry entry = take_entry(key);
  Freed freed;
  forget_user(key, entry.head, freed);
  if (entry.image) unref_extents(*entry.image, freed);
  ports_.metrics.add("strata_evictions_total", fmt::format("tier=\"disk\",reason=\"{}\"", label(why)));
  listener_.gone(entry, why);
  post_release(entry.head.id, true, entry.index_bytes, std::move(freed));
}

void DiskTier::remove_all() {
  for (auto& [key, stream] : streams_) stream.aborted = true;
  while (!pending_.empty()) {
    let_go(pending_.back());
    pending_.pop_back();
  }
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) {
    if (!being_written(entry.head.id) && !being_compacted(key)) keys.push_back(key);
  }
  for (const uint64_t key : keys) remove(key, ReadReason::none);
}

void DiskTier::quarantine(uint64_t key, ReadReason why, const std::string& detail) {
  if (find(key) == nullptr) return;  // two were reading it
  const Entry entry = take_entry(key);
  // The key stays a user of the files: what is kept for a look is not given to others.
  kept_bytes_ += entry.index_bytes;
  const bool damaged = why == ReadReason::corrupt;
  ports_.metrics.add("strata_quarantined_total", fmt::format("reason=\"{}\"", label(why)));
  ports_.log.write(LogLevel::error, fmt::format("strata: conversation disk: {} {} ({}): {}",
                                                damaged ? "quarantined" : "set aside until the next start",
                                                index_file_name(entry.head.id), label(why), detail));
  listener_.gone(entry, why);
  if (!damaged) return;  // a read that failed today may work tomorrow
  releasing_.emplace(hand_over(QuarantineJob{entry.head.id}), Releasing{});
}

void DiskTier::expire() {
  if (options_.ttl_ns == 0) return;
  const uint64_t now = ports_.clock.monotonic_ns();
  if (last_expire_ns_ != 0 && now - last_expire_ns_ < kExpireEveryNs) return;
  last_expire_ns_ = now;
  const uint64_t wall = ports_.clock.wall_ns();
  std::vector<uint64_t> keys;
  for (const auto& [key, entry] : entries_) {
    if (entry.held_by_user || !may_remove(entry)) continue;
    if (wall > entry.last_used_ns && wall - entry.last_used_ns > options_.ttl_ns) keys.push_back(key);
  }
  for (const uint64_t key : keys) remove(key, ReadReason::expired);
}

// Bytes change only with a result or with how many things there are.
void DiskTier::publish_gauges(bool changed) {
  std::vector<size_t> now{entries_.size(), pending_.size(), posted_.size(), releasing_.size(),
                          streams_.size()};
  if (!changed && now == shown_) return;
  shown_ = std::move(now);
  ports_.metrics.set("strata_tier_bytes", "tier=\"disk\"", static_cast<double>(charged_bytes()));
  ports_.metrics.set("strata_tier_conversations", "tier=\"disk\"", static_cast<double>(entries_.size()));
  ports_.metrics.set("strata_disk_queue_bytes", {}, static_cast<double>(queue_bytes()));
}

// --- reading bodies

struct DiskTier::BodyRead {
  FileHandle file;
  std::vector<std::byte> bytes;
};

void DiskTier::load_body(uint64_t key) {
  Entry* entry = find(key);
  STRATA_CHECK(entry != nullptr);
  if (entry->image || entry->loading) return;
  const std::string path = options_.folder + "/" + index_file_name(entry->head.id);
  auto file = ports_.files.open(path, OpenMode::read, Caching::buffered);
  if (!file.ok()) {
    quarantine(key, ReadReason::io_error, file.error().message);
    return;
  }
  entry->loading = true;
  auto read = std::make_shared<BodyRead>();
  read->file = *file;
  read->bytes.resize(entry->head.total_bytes);
  ports_.reader.read(read->file, read->bytes, 0, [this, key, read](Status status) {
    ports_.files.close(read->file);
    body_done(key, read, std::move(status));
  });
}

void DiskTier::body_done(uint64_t key, const std::shared_ptr<BodyRead>& read, Status status) {
  Entry* entry = find(key);
  if (entry == nullptr) return;
  entry->loading = false;
  if (!status.ok()) {
    quarantine(key, ReadReason::io_error, status.error().message);
    return;
  }
  auto manifest = decode_manifest(read->bytes, options_.manifest_limits);
  if (!manifest.ok()) {
    quarantine(key, ReadReason::corrupt, manifest.error().message);
    return;
  }
  if (manifest->head.id != entry->head.id || manifest->head.generation != entry->head.generation) {
    quarantine(key, ReadReason::corrupt, "the index changed since the start");
    return;
  }
  if (auto attached = attach_body(*entry, std::move(*manifest)); !attached.ok()) {
    quarantine(key, ReadReason::corrupt, attached.error().message);
  }
}

Status DiskTier::attach_body(Entry& entry, Manifest manifest) {
  auto image = std::make_shared<Image>();
  image->id = manifest.head.id;
  image->generation = manifest.head.generation;
  image->tokens = std::move(manifest.tokens);
  image->media = std::move(manifest.media);
  image->salt = manifest.head.salt;
  image->created_ns = ports_.clock.of_stored(manifest.head.created_ns);
  image->last_used_ns = entry.last_used_ns;
  image->label = manifest.head.label;
  for (const ManifestPart& stored_part : manifest.parts) {
    STRATA_ASSIGN(PartRef part, share_part(manifest.head.files[stored_part.file].id, stored_part));
    image->parts.push_back(std::move(part));
  }
  for (const PartRef& part : image->parts) {
    File& file = files_.at(part->disk->file);
    ++file.extents.at(part->disk->offset).users;
    file.settled = false;  // more of it is known now
  }
  entry.image = std::move(image);
  return {};
}

// The part that stands for this extent: the one other conversations already share, or a new one.
Result<PartRef> DiskTier::share_part(ConversationId file_id, const ManifestPart& stored_part) {
  auto file = files_.find(file_id);
  if (file == files_.end()) return make_error(ErrorCode::corrupt, "refers to an unknown file");
  auto& extents = file->second.extents;
  const uint64_t length = align_up(stored_part.length, limits::kAlignment);
  // In memory a live state is a checkpoint like any other: it stays one when the conversation goes on.
  const PartKind kind = stored_part.kind == PartKind::live ? PartKind::checkpoint : stored_part.kind;
  auto next = extents.lower_bound(stored_part.offset);
  if (next != extents.end() && next->first == stored_part.offset) {
    PartRef part = next->second.part.lock();
    const bool same = part && part->disk && part->kind == kind && part->stage == stored_part.stage &&
                      part->first == stored_part.first && part->count == stored_part.count &&
                      part->bytes == stored_part.length && part->disk->digest == stored_part.digest;
    if (same) return part;
    if (part) return make_error(ErrorCode::corrupt, "an extent means different things to two conversations");
  } else {
    if (next != extents.end() && stored_part.offset + length > next->first) {
      return make_error(ErrorCode::corrupt, "extents overlap");
    }
    if (next != extents.begin() &&
        std::prev(next)->first + std::prev(next)->second.length > stored_part.offset) {
      return make_error(ErrorCode::corrupt, "extents overlap");
    }
  }
  auto part = std::make_shared<Part>();
  part->kind = kind;
  part->stage = stored_part.stage;
  part->first = stored_part.first;
  part->count = stored_part.count;
  part->bytes = stored_part.length;
  part->disk = Extent{file_id, stored_part.offset, stored_part.length, stored_part.digest};
  extents[stored_part.offset] = KnownExtent{length, 0, part};
  return part;
}

}  // namespace strata
