#include "tiers/restore.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/digest.hpp"
#include "core/limits.hpp"
#include "core/manifest.hpp"

namespace strata {

namespace {
constexpr size_t kPartsPerStep = 64;
}

Restore::Restore(const Ports& ports, Request request) : ports_(ports), request_(std::move(request)) {
  open_files_ = std::move(request_.opened);
  items_.reserve(request_.parts.size());
  for (size_t i = 0; i < request_.parts.size(); ++i) {
    auto item = std::make_shared<Item>();
    item->part = request_.parts[i];
    item->buffer = item->part->ram;
    if (!item->buffer) {
      reads_disk_ = true;
      if (i < request_.keep_into.size() && request_.keep_into[i]) {
        item->buffer = request_.keep_into[i];
        item->kept = true;
      }
    }
    items_.push_back(std::move(item));
  }
}

Restore::~Restore() {
  if (state_ == State::running) {
    fail(make_error(ErrorCode::cancelled, "restore ended"));
    leave_buffers();
    if (begun_) ports_.model.import_abort(import_);
  }
  if (reading_ > 0) ports_.reader->drain();
  for (const auto& item : items_) {
    if (item->event.handle != nullptr) ports_.device.destroy_event(item->event);
  }
  if (last_event_.handle != nullptr) ports_.device.destroy_event(last_event_);
  for (const auto& [id, file] : open_files_) ports_.files->close(file);
}

void Restore::fail(Error error) {
  if (failing_) return;
  failing_ = true;
  error_ = std::move(error);
}

void Restore::fail_storage(Error error) {
  storage_failed_ = storage_failed_ || !failing_;
  fail(std::move(error));
}

void Restore::cancel() { fail(make_error(ErrorCode::cancelled, "restore cancelled")); }

Restore::State Restore::step() {
  if (state_ != State::running) return state_;
  if (!begun_ && !failing_) begin();
  retire_streamed();
  if (!failing_) start_items();
  if (!failing_) import_ready();
  if (!failing_) check_patience();
  retire_streamed();
  if (failing_) {
    unwind();
  } else if (imported_ == items_.size()) {
    finish();
  }
  return state_;
}

// Not the fault of what is stored: it may be read another time.
void Restore::check_patience() {
  if (reading_ == 0 || request_.patience_ns == UINT64_MAX) return;
  const uint64_t silent_ns = ports_.clock.monotonic_ns() - last_read_ns_;
  if (silent_ns <= request_.patience_ns) return;
  fail(make_error(ErrorCode::io, fmt::format("the disk has answered no read for {:.1f} s",
                                             static_cast<double>(silent_ns) / 1e9)));
}

void Restore::begin() {
  auto event = ports_.device.create_event();
  if (!event.ok()) return fail(event.error());
  last_event_ = *event;
  auto begun = ports_.model.import_begin(
      request_.slot, std::span<const Token>(request_.image->tokens).first(request_.tokens));
  if (!begun.ok()) return fail(begun.error());
  import_ = *begun;
  begun_ = import_began_ = true;
}

void Restore::start_items() {
  for (size_t i = 0; i < kPartsPerStep && next_ < items_.size() && !failing_; ++i) {
    if (!start(*items_[next_])) return;
    ++next_;
  }
}

// False: the window is full, try again later.
bool Restore::start(Item& item) {
  if (item.part->ram) {
    item.buffer = item.part->ram;
    item.step = Item::Step::read;
    return true;
  }
  if (!item.part->disk) {
    fail_storage(make_error(ErrorCode::not_found, "a part of the conversation is stored nowhere any more"));
    return true;
  }
  if (reading_ >= limits::kReadDepth) return false;
  if (!item.buffer) {
    if (streaming_ >= kStreamedBuffers) return false;
    auto buffer = ports_.staging->allocate(align_up(item.part->bytes, limits::kAlignment));
    if (!buffer.ok()) {
      if (streaming_ > 0) return false;
      fail(buffer.error());
      return true;
    }
    item.buffer = *buffer;
    ++streaming_;
  }
  start_read(item);
  return true;
}

void Restore::start_read(Item& item) {
  item.extent = *item.part->disk;
  auto file = open(item.extent.file);
  if (!file.ok()) return fail_storage(file.error());
  if (reading_ == 0) last_read_ns_ = ports_.clock.monotonic_ns();
  if (disk_start_ns_ == 0) disk_start_ns_ = ports_.clock.monotonic_ns();
  item.step = Item::Step::reading;
  item.from_disk = true;
  ++reading_;
  const uint64_t length = align_up(item.part->bytes, limits::kAlignment);
  const std::shared_ptr<Item> held = items_[next_];
  ports_.reader->read(*file, item.buffer->bytes().first(length), item.extent.offset,
                      [this, held](Status status) {
                        --reading_;
                        held->step = Item::Step::read;
                        disk_bytes_ += held->part->bytes;
                        last_read_ns_ = ports_.clock.monotonic_ns();
                        disk_ns_ = last_read_ns_ - disk_start_ns_;
                        if (status.ok()) return;
                        fail_storage(with_context(status.error(), "reading a stored conversation"));
                      });
}

Result<FileHandle> Restore::open(ConversationId file) {
  if (auto at = open_files_.find(file); at != open_files_.end()) return at->second;
  const std::string path = request_.folder + "/" + session_file_name(file);
  auto handle = ports_.files->open(path, OpenMode::read, Caching::direct);
  if (!handle.ok() && handle.error().code == ErrorCode::unsupported) {
    handle = ports_.files->open(path, OpenMode::read, Caching::buffered);
  }
  if (!handle.ok()) return with_context(handle.error(), "opening a stored conversation");
  open_files_[file] = *handle;
  return *handle;
}

std::span<const std::byte> Restore::payload(const Item& item) const {
  return std::span<const std::byte>(item.buffer->bytes()).first(item.part->bytes);
}

void Restore::import_ready() {
  const size_t started = next_;
  for (size_t i = 0; i < started && !failing_; ++i) {
    if (items_[i]->step == Item::Step::read) import(*items_[i]);
  }
}

bool Restore::digest_fits(const Item& item) {
  const Part& part = *item.part;
  const PartPlace place{item.extent.file, part.stage, part.first, part.kind};
  const uint64_t start_ns = ports_.clock.monotonic_ns();
  const Digest found = digest_part(place, payload(item));
  digest_ns_ += ports_.clock.monotonic_ns() - start_ns;
  return found == item.extent.digest;
}

void Restore::import(Item& item) {
  const Part& part = *item.part;
  if (item.from_disk) {
    if (!digest_fits(item)) {
      damaged_ = item.extent;
      return fail_storage(make_error(
          ErrorCode::corrupt,
          fmt::format("{} at token {} of stage {} does not match its digest in {}", to_string(part.kind),
                      part.first, part.stage, session_file_name(item.extent.file))));
    }
    if (item.kept && !item.part->ram) item.part->ram = item.buffer;
  }
  const Status queued = queue_import(item);
  item.step = Item::Step::importing;
  ++imported_;
  restored_bytes_ += part.bytes;
  request_.on_moved(part.bytes);
  if (!queued.ok()) return fail(queued.error());
  if (!item.from_disk || item.kept) return;
  auto event = ports_.device.create_event();
  if (!event.ok()) return fail(event.error());
  if (Status recorded = ports_.device.record(*event, ports_.stream); !recorded.ok()) {
    ports_.device.destroy_event(*event);  // without it the buffer stays until the end
    return fail(recorded.error());
  }
  item.event = *event;
}

Status Restore::queue_import(const Item& item) {
  const Part& part = *item.part;
  if (part.is_block()) {
    return ports_.model.import_block(import_, part.stage, part.first, part.count, payload(item),
                                     ports_.stream);
  }
  const bool empty = ports_.model.info().checkpoint_bytes[part.stage] == 0;
  if (empty || part.first != request_.tokens) return {};
  return ports_.model.import_checkpoint(import_, part.stage, part.first, payload(item), ports_.stream);
}

// Streamed buffers go back as soon as their copy is done, so that the window moves on.
void Restore::retire_streamed() {
  for (size_t i = 0; i < next_; ++i) {
    Item& item = *items_[i];
    if (item.step != Item::Step::importing || item.event.handle == nullptr) continue;
    auto done = ports_.device.done(item.event);
    if (!done.ok()) {
      fail(done.error());
      continue;
    }
    if (!*done) continue;
    ports_.device.destroy_event(item.event);
    item.event = {};
    item.buffer.reset();
    item.step = Item::Step::done;
    --streaming_;
  }
}

void Restore::finish() {
  if (!recorded_) {
    if (Status recorded = ports_.device.record(last_event_, ports_.stream); !recorded.ok()) {
      return fail(recorded.error());
    }
    recorded_ = true;
  }
  auto done = ports_.device.done(last_event_);
  if (!done.ok()) return fail(done.error());
  if (!*done) return;
  Status committed = ports_.model.import_commit(import_);
  begun_ = false;
  if (!committed.ok()) return fail(committed.error());
  state_ = State::done;
}

// Waits (over later steps) until the device touches no buffer, then undoes the import. Reads may go on:
// nobody looks at what they bring.
void Restore::unwind() {
  if (begun_) {
    recorded_ = recorded_ || ports_.device.record(last_event_, ports_.stream).ok();
    const auto done = recorded_ ? ports_.device.done(last_event_) : Result<bool>(false);
    if (recorded_ && done.ok() && !*done) return;
    if (!recorded_ || !done.ok()) leave_buffers();
    ports_.model.import_abort(import_);
    begun_ = false;
  }
  state_ = State::failed;
}

// The device may go on with what was queued.
void Restore::leave_buffers() {
  std::vector<HostBufferRef> touched;
  for (const auto& item : items_) {
    if (item->step == Item::Step::importing && item->buffer) touched.push_back(item->buffer);
  }
  ports_.unsettled->add(ports_.stream, std::move(touched));
}

}  // namespace strata
