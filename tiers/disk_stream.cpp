// Streams of the disk tier (disk mode, DM-1): the extents of a conversation are written as their bytes come,
// a few buffers at a time, and the index that makes them count is published behind the last of them. Until
// then a crash leaves an interrupted write.
#include <algorithm>

#include "core/check.hpp"
#include "core/limits.hpp"
#include "tiers/disk_tier.hpp"
#include "tiers/part_list.hpp"

namespace strata {

bool DiskTier::streaming() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return !is_over(stream.second); });
}

DiskTier::StreamKey DiskTier::begin_stream(const ImageRef& image) {
  const StreamKey key = listener_.next_key();
  Stream& stream = streams_[key];
  stream.posted.spill.image = image;
  stream.posted.spill.key = key;
  stream.posted.stream = key;
  stream.status.state = StreamState::waiting;
  if (refuse_too_large(stream.posted.spill)) {
    stream.status.state = StreamState::failed;
    stream.status.why = SkipReason::too_large;
  } else if (!touches_compaction(*image)) {
    hold_extents(stream.posted.spill);  // what is stored now stays so until the stream is open
  }
  return key;
}

const DiskTier::StreamStatus& DiskTier::stream(StreamKey key) const { return streams_.at(key).status; }

// Space for those that wait for it, oldest first.
void DiskTier::open_streams() {
  for (auto& [key, stream] : streams_) {
    if (stream.status.state != StreamState::waiting || stream.aborted) continue;
    Pending& spill = stream.posted.spill;
    if (waits_for_others(spill)) continue;
    hold_extents(spill);
    const uint64_t bytes = needed_bytes(spill);
    const Room room = room_for(spill, bytes, stream.status.why);
    if (room == Room::wait) return;
    if (room == Room::refused) {
      stream.failure = make_error(ErrorCode::exhausted, "no room");
      continue;
    }
    stream.posted = lay_out(std::move(spill), bytes);
    stream.posted.stream = key;
    stream.posted.started_ns = ports_.clock.monotonic_ns();
    stream.status.parts = stream.posted.written;
    stream.status.state = StreamState::open;
    log_queued(*stream.posted.spill.image, posted_.size() + streams_.size());
  }
}

void DiskTier::write(StreamKey key, std::vector<HostBufferRef> buffers) {
  Stream& stream = streams_.at(key);
  Posted& posted = stream.posted;
  STRATA_CHECK(stream.status.state == StreamState::open);
  STRATA_CHECK(stream.handed + buffers.size() <= posted.written.size());
  if (!stream.failure.ok() || stream.aborted) {
    stream.handed += buffers.size();
    return;
  }
  const ConversationId id = posted.spill.image->id;
  File& own = files_.at(id);
  ExtentsJob work;
  work.id = id;
  work.create_file = !own.exists && stream.handed == 0;
  work.header = stored_header(*posted.spill.image);
  for (HostBufferRef& buffer : buffers) {
    const Part& part = *posted.written[stream.handed];
    Extent& extent = posted.extents[stream.handed++];
    // A state may be smaller than its place.
    const uint64_t place_bytes = align_up(extent.length, limits::kAlignment);
    STRATA_CHECK(extent_bytes(part) <= place_bytes);
    if (extent_bytes(part) < place_bytes) {
      own.map.release(extent.offset + extent_bytes(part), place_bytes - extent_bytes(part));
    }
    extent.length = part.bytes;
    const PartPlace place{id, part.stage, part.first, part.kind};
    work.writes.push_back(PartWrite{std::move(buffer), place, part.bytes, extent.offset, 0});
  }
  stream.jobs.insert(hand_over(std::move(work)));
}

void DiskTier::finish_extents(Stream& stream, const WriteResult& result) {
  Posted& posted = stream.posted;
  File& own = files_.at(posted.spill.image->id);
  const auto& work = std::get<ExtentsJob>(result.job->work);
  const bool cancelled = !result.status.ok() && result.status.error().code == ErrorCode::cancelled;
  own.exists = own.exists || (result.status.ok() && work.create_file);
  const uint64_t before = own.allocated_bytes;
  apply_sizes(result);
  // What lies on the disk now is charged as such; while its size is not known the reservation covers it.
  const uint64_t grown = own.allocated_bytes - std::min(own.allocated_bytes, before);
  const uint64_t moved = std::min(grown, posted.reserved_bytes);
  posted.reserved_bytes -= moved;
  reserved_bytes_ -= moved;
  posted.ahead_bytes += result.written_bytes;
  if (!result.status.ok()) {
    if (stream.failure.ok() && !cancelled) stream.failure = result.status;
    return;
  }
  for (const Digest& digest : result.digests) posted.extents[stream.written++].digest = digest;
}

void DiskTier::publish(StreamKey key) {
  Stream& stream = streams_.at(key);
  STRATA_CHECK(stream.status.state == StreamState::open);
  STRATA_CHECK(stream.handed == stream.posted.written.size());
  stream.status.state = StreamState::publishing;
}

void DiskTier::abort_stream(StreamKey key) {
  Stream& stream = streams_.at(key);
  stream.aborted = true;
  // The last one first: none starts whose predecessor never ran.
  const std::vector<JobId> jobs(stream.jobs.rbegin(), stream.jobs.rend());
  for (const JobId job : jobs) (void)ports_.writer.cancel(job);
  for (const auto& [job, posted] : posted_) {
    if (posted.stream == key) (void)ports_.writer.cancel(job);
  }
}

void DiskTier::end_stream(StreamKey key) {
  Stream& stream = streams_.at(key);
  stream.forgotten = true;
  if (is_over(stream)) {
    streams_.erase(key);
  } else {
    abort_stream(key);
  }
}

bool DiskTier::is_over(const Stream& stream) {
  return stream.status.state == StreamState::published || stream.status.state == StreamState::failed;
}

// Streams whose transfers are all back: the complete ones are published, the failed ones undone.
void DiskTier::settle_streams() {
  for (auto& [key, stream] : streams_) {
    const StreamState state = stream.status.state;
    const bool moving = state == StreamState::waiting || state == StreamState::open ||
                        (state == StreamState::publishing && !stream.posted.parts.empty());
    if (!moving || !stream.jobs.empty()) continue;
    if (stream.aborted || !stream.failure.ok()) {
      stream_failed(stream);
    } else if (state == StreamState::publishing) {
      post_stream(stream);
    }
  }
  std::erase_if(streams_,
                [](const auto& stream) { return stream.second.forgotten && is_over(stream.second); });
}

void DiskTier::post_stream(Stream& stream) {
  STRATA_CHECK(stream.written == stream.posted.written.size());
  PublishJob work = publish_job(stream.posted);
  work.create_file = false;
  work.written_ahead = !stream.posted.written.empty();
  posted_.emplace(hand_over(std::move(work)), std::move(stream.posted));
  stream.posted = Posted();
}

void DiskTier::stream_failed(Stream& stream) {
  Posted& posted = stream.posted;
  const bool laid_out = stream.status.state != StreamState::waiting;
  if (laid_out) {
    reserved_bytes_ -= posted.reserved_bytes;
    take_back(posted);
  } else {
    let_go(posted.spill);
  }
  stream.status.state = StreamState::failed;
  if (stream.failure.ok()) {
    stream.status.why = SkipReason::cancelled;
    ports_.metrics.add("strata_skips_total", "tier=\"disk\",reason=\"cancelled\"");
    posted = Posted();
    return;
  }
  if (laid_out) stream.status.why = skip_reason(stream.failure);
  drop_pending(posted.spill, stream.status.why, laid_out ? stream.failure.error().message : "");
  posted = Posted();
}

}  // namespace strata
