// Compaction: a session file of which less than half is in use is written anew, in the background and while
// conversations go on to be read from it. Space comes back by itself where the file system can punch holes;
// where it cannot, or where extents were not known when they became free (after a restart), files would only
// grow.
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "tiers/disk_tier.hpp"
#include "tiers/part_list.hpp"

namespace strata {

namespace {

constexpr uint64_t kLookEveryNs = 1'000'000'000;
constexpr uint64_t kLookAgainNs = 10'000'000'000;  // after one that gave way or failed

uint64_t in_use(uint64_t length) { return align_up(length, limits::kAlignment); }

}  // namespace

bool DiskTier::being_compacted(uint64_t key) const {
  return compacting_ &&
         std::find(compacting_->keys.begin(), compacting_->keys.end(), key) != compacting_->keys.end();
}

// Its next state must not be published behind the job's back.
bool DiskTier::touches_compaction(const Image& image) const {
  if (!compacting_) return false;
  if (auto at = by_id_.find(image.id); at != by_id_.end() && being_compacted(at->second)) return true;
  return std::any_of(image.parts.begin(), image.parts.end(), [&](const PartRef& part) {
    return part->disk && part->disk->file == compacting_->from;
  });
}

bool DiskTier::worth_compacting(const File& file) const {
  uint64_t live = limits::kSessionHeaderBytes;
  for (const auto& [offset, extent] : file.extents) live += extent.users > 0 ? extent.length : 0;
  return file.allocated_bytes >= 2 * live && file.allocated_bytes - live >= options_.compaction_min_bytes;
}

// Everybody who refers to it is known, stored, and at rest.
bool DiskTier::may_compact(const File& file) const {
  return file.exists && std::all_of(file.users.begin(), file.users.end(), [&](uint64_t key) {
           auto entry = entries_.find(key);
           return entry != entries_.end() && entry->second.image && !entry->second.held_by_user &&
                  may_remove(entry->second);
         });
}

// One file at a time, when nothing else is to be written.
void DiskTier::compact() {
  give_way();
  const uint64_t now = ports_.clock.monotonic_ns();
  if (!may_compact_ || compacting_ || !pending_.empty() || !posted_.empty() || !releasing_.empty()) return;
  if (streaming() || now < next_compaction_look_ns_) return;
  next_compaction_look_ns_ = now + kLookEveryNs;
  for (auto& [id, file] : files_) {
    if (file.settled || file.damaged) continue;
    file.settled = !worth_compacting(file);  // thousands of files are not counted through every second
    if (!file.settled && may_compact(file) && start_compaction(id, file)) return;
  }
}

// Nobody waits for a compaction: what else is to be written goes first.
void DiskTier::give_way() {
  const bool others_wait = !pending_.empty() || !posted_.empty() || streaming();
  if (compacting_ && (others_wait || !may_compact_)) compacting_->stop->set();
}

void DiskTier::stop_compacting() {
  may_compact_ = false;
  give_way();
}

uint64_t DiskTier::compaction_bytes(const File& file) const {
  uint64_t bytes = 2 * limits::kFileOverheadBytes + limits::kSessionHeaderBytes;
  for (const auto& [offset, extent] : file.extents) bytes += extent.users > 0 ? in_use(extent.length) : 0;
  for (const uint64_t key : file.users) bytes += entries_.at(key).index_bytes + limits::kAlignment;
  return bytes;
}

// False when there is no room for it: nobody has to go for a compaction.
bool DiskTier::start_compaction(ConversationId id, const File& file) {
  Compacting work;
  work.reserved_bytes = compaction_bytes(file);
  const auto space = ports_.files.space(options_.folder);
  const bool budget_ok = charged_bytes() + work.reserved_bytes <= options_.budget_bytes;
  const bool floor_ok = space.ok() && space->free_bytes >= options_.min_free_bytes + work.reserved_bytes;
  if (!budget_ok || !floor_ok) return false;
  work.from = id;
  work.to = listener_.new_id();
  work.keys.assign(file.users.begin(), file.users.end());
  work.stop = std::make_shared<StopFlag>();
  CompactJob job = compact_job(work, file);
  job.stop = work.stop;
  reserved_bytes_ += work.reserved_bytes;
  File& fresh = files_[work.to];
  fresh.incarnation = next_incarnation_++;
  fresh.settled = true;
  work.job = hand_over(std::move(job));
  compacting_ = std::move(work);
  return true;
}

CompactJob DiskTier::compact_job(Compacting& work, const File& file) {
  CompactJob job;
  job.from = work.from;
  job.header = stored_header(*entries_.at(work.keys.front()).image);
  job.header.id = work.to;
  uint64_t offset = limits::kSessionHeaderBytes;
  for (const auto& [old_offset, extent] : file.extents) {
    const PartRef part = extent.part.lock();
    if (extent.users == 0 || !part || !part->disk) continue;
    const Extent& old = *part->disk;
    job.moves.push_back({{work.from, part->stage, part->first, part->kind},
                         {work.to, part->stage, part->first, part->kind},
                         old.length,
                         old.offset,
                         offset,
                         old.digest});
    work.parts.push_back(part);
    work.from_offsets.push_back(old.offset);
    work.extents.push_back(Extent{work.to, offset, old.length, {}});
    offset += in_use(old.length);
  }
  for (const uint64_t key : work.keys) {
    job.indexes.push_back(compacted_index(work, entries_.at(key)));
    work.heads.push_back(job.indexes.back().manifest.head);
  }
  return job;
}

CompactJob::Index DiskTier::compacted_index(const Compacting& work, const Entry& entry) {
  std::unordered_map<const Part*, Extent> moved;
  std::unordered_map<const Part*, size_t> which;
  for (size_t i = 0; i < work.parts.size(); ++i) {
    moved[work.parts[i].get()] = work.extents[i];
    which[work.parts[i].get()] = i;
  }
  std::vector<PartRef> parts = parts_to_publish(*entry.image, options_.stage_count);
  // What is published now, not what has come since.
  std::erase_if(parts, [&](const PartRef& part) { return !stored(part); });
  const ManifestFile& own = entry.head.files.front();
  const uint64_t own_bytes = own.id == work.from || own.needed_length == 0 ? 0 : limits::kSessionHeaderBytes;
  CompactJob::Index index;
  index.manifest = stored_manifest(*entry.image, parts, moved, own_bytes, entry.last_used_ns);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (auto at = which.find(parts[i].get()); at != which.end()) index.moved.emplace_back(i, at->second);
  }
  return index;
}

void DiskTier::finish_compaction(const WriteResult& result) {
  const Compacting work = std::move(*compacting_);
  compacting_.reset();
  reserved_bytes_ -= work.reserved_bytes;
  kept_bytes_ += result.index_allocated_bytes;
  // Where its size cannot be had, the new file counts as all it was allowed to take.
  const uint64_t bytes = result.files.empty() ? work.reserved_bytes : result.files.front().allocated_bytes;
  if (result.published) {
    files_.at(work.to).allocated_bytes = bytes;
    compacted(work, result);
  } else {
    kept_bytes_ += bytes;  // should it still be there
    files_.erase(work.to);
  }
  if (!result.status.ok()) compaction_failed(work, result);
}

void DiskTier::compaction_failed(const Compacting& work, const WriteResult& result) {
  const ErrorCode code = result.status.error().code;
  next_compaction_look_ns_ = ports_.clock.monotonic_ns() + kLookAgainNs;
  if (code == ErrorCode::cancelled) return;
  File& old = files_.at(work.from);
  (code == ErrorCode::corrupt ? old.damaged : old.settled) = true;
  ports_.metrics.add("strata_skips_total",
                     fmt::format("tier=\"disk\",reason=\"{}\"", label(skip_reason(result.status))));
  ports_.log.write(LogLevel::warning,
                   "strata: conversation disk: compaction failed: " + result.status.error().message);
}

// All indexes, or the first of them, name the new file now.
void DiskTier::compacted(const Compacting& work, const WriteResult& result) {
  move_parts(work, result);
  File& fresh = files_.at(work.to);
  File& old = files_.at(work.from);
  fresh.exists = true;
  for (size_t i = 0; i < work.keys.size(); ++i) {
    fresh.users.insert(work.keys[i]);
    Entry* entry = find(work.keys[i]);
    if (entry == nullptr) continue;  // quarantined meanwhile: both files stay for a look
    const bool renamed = i < result.index_bytes.size();
    if (renamed) {
      entry->head = work.heads[i];
      entry->index_bytes = result.index_bytes[i];
    }
    // A name that may not be on the disk yet keeps what the older one refers to.
    if (renamed && result.status.ok()) old.users.erase(entry->key);
    const auto names_it = [&](const ManifestFile& file) { return file.id == work.to; };
    const bool named = std::any_of(entry->head.files.begin(), entry->head.files.end(), names_it);
    if (!named) entry->head.files.push_back({work.to, 0});  // so that it is let go with the entry
  }
  if (!result.status.ok()) return;
  ports_.metrics.add("strata_compactions_total");
  ports_.log.write(
      LogLevel::info,
      fmt::format("strata: conversation disk: compacted {} from {} to {} MiB", session_file_name(work.from),
                  old.allocated_bytes / limits::kMiB, fresh.allocated_bytes / limits::kMiB));
  Freed freed;
  freed[work.from];
  post_release(work.from, false, 0, std::move(freed));
}

void DiskTier::move_parts(const Compacting& work, const WriteResult& result) {
  File& old = files_.at(work.from);
  File& fresh = files_.at(work.to);
  for (size_t i = 0; i < work.parts.size(); ++i) {
    const auto before = old.extents.find(work.from_offsets[i]);
    STRATA_CHECK(before != old.extents.end());
    Extent extent = work.extents[i];
    extent.digest = result.digests.at(i);
    STRATA_CHECK(fresh.map.reserve(extent.offset, in_use(extent.length)));
    fresh.extents[extent.offset] = before->second;
    work.parts[i]->disk = extent;
    old.extents.erase(before);
  }
}

}  // namespace strata
