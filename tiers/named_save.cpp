#include "tiers/named_save.hpp"

#include <algorithm>
#include <cerrno>

#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"
#include "tiers/part_copy.hpp"

namespace strata {

namespace {
constexpr uint64_t kGroupBytes = limits::kMaxPartBytes;
constexpr size_t kGroupParts = 64;  // queueing thousands of copies must not hold up other slots
constexpr size_t kGroupsAtOnce = 2;
constexpr size_t kWritesAtOnce = 2 * kGroupParts;
}  // namespace

SavedFileWriter::Plan NamedSave::plan_of(const Request& request) {
  SavedFileWriter::Plan plan;
  plan.target = request.target;
  plan.temporary = request.temporary;
  plan.header = session_header_of(*request.image, request.rules);
  plan.header.flags |= kSessionSelfContained;
  plan.min_free_bytes = request.min_free_bytes;
  plan.bound_bytes = limits::kSessionHeaderBytes + index_bytes_bound(*request.image, request.rules.identity) +
                     kSessionTrailerBytes;
  for (const PartRef& part : request.image->parts) plan.bound_bytes += extent_bytes(*part);
  return plan;
}

NamedSave::NamedSave(const Ports& ports, Request request)
    : ports_(ports), request_(std::move(request)), file_(ports.files, plan_of(request_)) {
  for (const PartRef& part : request_.image->parts) {
    auto item = std::make_shared<Item>();
    item->part = part;
    item->bound_bytes = part->bytes;
    total_bytes_ += part->bytes;
    items_.push_back(std::move(item));
  }
  start_task([this] { return file_.prepare(); });
}

NamedSave::~NamedSave() {
  if (ports_.worker != nullptr) ports_.worker->drain();
  if (reading_ > 0) ports_.reader->drain();
  leave_buffers();
  for (const auto& [id, file] : open_files_) ports_.files.close(file);
}

void NamedSave::cancel() { fail(make_error(ErrorCode::cancelled, "cancelled")); }

void NamedSave::fail(Error error) {
  if (failing_ || state_ == State::done || state_ == State::failed) return;
  failing_ = true;
  error_ = std::move(error);
}

NamedSave::State NamedSave::step() {
  if (state_ == State::done || state_ == State::failed) return state_;
  if (state_ == State::copying) copy();
  if (task_.started() && !task_.running()) {
    Status status = task_.take();
    if (!status.ok() && file_.published()) error_ = status.error();
    if (!status.ok() && state_ != State::undoing) fail(std::move(status.error()));
    if (state_ == State::undoing) {
      state_ = State::failed;
    } else if (!failing_) {
      advance();
    } else if (file_.published()) {
      // Too late: the file has its name, whatever became of the folder.
      state_ = error_.code == ErrorCode::cancelled ? State::done : State::failed;
    }
  }
  if (failing_ && state_ != State::done && state_ != State::failed) undo();
  return state_;
}

// The step that ran is over and went well.
void NamedSave::advance() {
  if (state_ == State::preparing) {
    state_ = State::copying;
  } else if (state_ == State::finishing) {
    state_ = State::flushing;
    start_task([this] { return file_.flush(); });
  } else if (state_ == State::flushing) {
    state_ = State::publishing;
    start_task([this] { return file_.publish(); });
  } else if (state_ == State::publishing) {
    state_ = State::done;
  }
}

void NamedSave::copy() {
  collect_writes();
  if (!failing_) fill_groups();
  if (!failing_) write_ready();
  if (!failing_) collect_writes();
  if (!failing_ && next_ == items_.size() && groups_.empty() && writes_.empty()) finish();
}

bool NamedSave::comes_from_slot(const Part& part) const {
  return part.is_block() || part.first == request_.slot_tokens;
}

// Starts copies and reads as far as there are buffers.
void NamedSave::fill_groups() {
  while (!failing_ && next_ < items_.size() && groups_.size() < kGroupsAtOnce) {
    Group group;
    const bool more = fill(group);
    if (group.items.empty()) return;
    if (!group.copied_into.empty()) {
      auto event = ports_.device.create_event();
      if (event.ok()) group.event = *event;
      Status recorded = event.ok() ? ports_.device.record(*event, ports_.stream) : Status(event.error());
      if (!recorded.ok()) fail(std::move(recorded.error()));
    }
    groups_.push_back(std::move(group));
    if (!more) return;
  }
}

// False when the buffers ran out.
bool NamedSave::fill(Group& group) {
  uint64_t bytes = 0;
  while (!failing_ && next_ < items_.size() && group.items.size() < kGroupParts && bytes < kGroupBytes) {
    const ItemRef& item = items_[next_];
    if (!fetch(item, group)) return false;
    group.items.push_back(item);
    bytes += item->bound_bytes;
    ++next_;
  }
  return true;
}

// False when there is no buffer now.
bool NamedSave::fetch(const ItemRef& item, Group& group) {
  Part& part = *item->part;
  if (part.ram) {
    item->buffer = part.ram;
    return true;
  }
  auto buffer = buffer_for(part);
  if (!buffer.ok()) return false;
  item->buffer = *buffer;
  if (!comes_from_slot(part)) {
    if (!read_from_disk(item)) item->lost = true;
    return true;
  }
  group.copied_into.push_back(*buffer);
  if (Status queued = queue_copy_out(ports_.model, request_.slot, part, (*buffer)->bytes(), ports_.stream);
      !queued.ok())
    fail(std::move(queued.error()));
  return true;
}

// Without a buffer it waits for those that are being written; when nothing is under way it cannot go on.
Result<HostBufferRef> NamedSave::buffer_for(const Part& part) {
  auto buffer = ports_.buffers.allocate(align_up(part.bytes, limits::kAlignment));
  if (!buffer.ok() && groups_.empty() && writes_.empty() && ports_.buffers.in_use_bytes() == 0)
    fail(Error{ErrorCode::exhausted, ENOMEM, "no memory for the buffers: " + buffer.error().message});
  return buffer;
}

// A checkpoint whose only copy is on the disk. False: it cannot be had, and is left out.
bool NamedSave::read_from_disk(const ItemRef& item) {
  if (!item->part->disk || ports_.reader == nullptr) return false;
  const auto file = open(item->part->disk->file);
  if (!file.ok()) return false;
  item->reading = true;
  ++reading_;
  const Extent from = *item->part->disk;
  const uint64_t bytes = align_up(item->part->bytes, limits::kAlignment);
  ports_.reader->read(
      *file, item->buffer->bytes().first(bytes), from.offset, [this, item, from](Status status) {
        --reading_;
        item->reading = false;
        const Part& part = *item->part;
        const auto payload = std::span<const std::byte>(item->buffer->bytes()).first(part.bytes);
        const PartPlace place{from.file, part.stage, part.first, part.kind};
        item->lost = !status.ok() || digest_part(place, payload) != from.digest;
      });
  return true;
}

Result<FileHandle> NamedSave::open(ConversationId file) {
  if (const auto at = open_files_.find(file); at != open_files_.end()) return at->second;
  const std::string path = request_.disk_folder + "/" + session_file_name(file);
  STRATA_ASSIGN(const FileHandle handle, ports_.files.open(path, OpenMode::read, Caching::buffered));
  open_files_[file] = handle;
  return handle;
}

// Hands over the groups whose bytes are there, in order.
void NamedSave::write_ready() {
  while (!groups_.empty() && writes_.size() < kWritesAtOnce) {
    Group& group = groups_.front();
    if (std::ranges::any_of(group.items, [](const ItemRef& item) { return item->reading; })) return;
    if (group.event.handle != nullptr) {
      const auto done = ports_.device.done(group.event);
      if (!done.ok()) return fail(done.error());
      if (!*done) return;
      ports_.device.destroy_event(group.event);
    }
    for (const ItemRef& item : group.items) hand_over(item);
    groups_.pop_front();
  }
}

void NamedSave::hand_over(const ItemRef& item) {
  const Part& part = *item->part;
  if (item->lost) {
    lost_positions_.insert(part.first);
    item->buffer.reset();
    return request_.on_moved(item->bound_bytes);
  }
  item->extent = {request_.image->id, end_offset_, part.bytes, {}};
  end_offset_ += extent_bytes(part);
  const bool live = !part.is_block() && part.first == request_.image->length();
  const PartPlace place{request_.image->id, part.stage, part.first, live ? PartKind::live : part.kind};
  item->digest = std::make_unique<DigestStream>(place);
  for (uint64_t from = 0; from < part.bytes; from += limits::kMaxPartBytes) {
    const uint64_t bytes = std::min(limits::kMaxPartBytes, part.bytes - from);
    writes_.push_back({item, from, bytes, {}});
    writes_.back().task.start(ports_.worker, [this, item, from, bytes] {
      const auto pages = std::span<const std::byte>(item->buffer->bytes())
                             .subspan(from, align_up(bytes, limits::kAlignment));
      item->digest->update(pages.first(bytes));
      return file_.write(pages, item->extent.offset + from);
    });
  }
}

void NamedSave::collect_writes() {
  while (!writes_.empty() && !writes_.front().task.running()) {
    Write& write = writes_.front();
    Item& item = *write.item;
    Status status = write.task.take();
    if (!status.ok()) fail(std::move(status.error()));
    const bool last = write.from + write.bytes == item.part->bytes;
    // A state may be smaller than its place: the rest counts as moved.
    request_.on_moved(write.bytes +
                      (last ? item.bound_bytes - std::min(item.bound_bytes, item.part->bytes) : 0));
    if (last) {
      item.extent.digest = item.digest->finish();
      item.digest.reset();
      item.buffer.reset();
    }
    writes_.pop_front();
  }
}

Manifest NamedSave::manifest() const {
  std::vector<PartRef> parts;
  std::unordered_map<const Part*, Extent> written;
  for (const ItemRef& item : items_) {
    const bool lost = !item->part->is_block() && lost_positions_.contains(item->part->first);
    if (lost) continue;
    parts.push_back(item->part);
    written.emplace(item->part.get(), item->extent);
  }
  return manifest_of(*request_.image, parts, written, end_offset_, request_.rules);
}

void NamedSave::finish() {
  state_ = State::finishing;
  start_task([this, manifest = manifest()] { return file_.finish(manifest, end_offset_); });
}

// The device may go on with what was queued.
void NamedSave::leave_buffers() {
  std::vector<HostBufferRef> touched;
  for (Group& group : groups_) {
    touched.insert(touched.end(), group.copied_into.begin(), group.copied_into.end());
    if (group.event.handle != nullptr) ports_.device.destroy_event(group.event);
  }
  groups_.clear();
  if (!touched.empty()) ports_.unsettled.add(ports_.stream, std::move(touched));
}

// Waits (over later steps) until nobody works on the file, then removes it.
void NamedSave::undo() {
  if (state_ == State::undoing) return;
  std::erase_if(writes_, [](const Write& write) { return !write.task.running(); });
  if (task_.running() || !writes_.empty() || reading_ > 0) return;
  leave_buffers();
  state_ = State::undoing;
  start_task([this] {
    file_.abandon();
    return Status();
  });
}

}  // namespace strata
