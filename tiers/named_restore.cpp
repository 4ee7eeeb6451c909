#include "tiers/named_restore.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "core/manifest.hpp"
#include "tiers/part_list.hpp"

namespace strata {

NamedRestore::NamedRestore(const Ports& ports, std::string path, SavedLimits limits)
    : ports_(ports), model_(ports.model.info()), file_(ports.files, std::move(path), std::move(limits)) {
  task_.start(ports_.worker, [this] { return file_.open(); });
}

NamedRestore::~NamedRestore() {
  stop_ = true;
  if (ports_.worker != nullptr) ports_.worker->drain();
}

void NamedRestore::cancel() {
  stop_ = true;
  if (restore_) restore_->cancel();
}

void NamedRestore::fail(Error error) {
  error_ = std::move(error);
  state_ = State::failed;
}

NamedRestore::State NamedRestore::step() {
  if (state_ == State::moving) {
    const Restore::State state = restore_->step();
    if (state == Restore::State::running || restore_->lingers()) return state_;  // nobody waits in a step
    import_began_ = restore_->import_began();
    if (state == Restore::State::failed) fail(restore_->error());
    if (state == Restore::State::done) state_ = State::done;
    restore_.reset();
    return state_;
  }
  if (state_ == State::done || state_ == State::failed) return state_;
  if (task_.started() && !task_.running()) {
    Status status = task_.take();
    if (status.ok() && state_ == State::opening) status = check_content();
    if (!status.ok()) {
      fail(std::move(status.error()));
    } else if (state_ == State::opening) {
      make_image();
      state_ = State::opened;
    } else if (state_ == State::verifying) {
      state_ = State::verified;
    }
  }
  if (stop_ && !task_.started() && state_ != State::failed)
    fail(make_error(ErrorCode::cancelled, "cancelled"));
  return state_;
}

void NamedRestore::verify() {
  STRATA_CHECK(state_ == State::opened);
  state_ = State::verifying;
  task_.start(ports_.worker, [this] { return file_.verify(stop_); });
}

// What the file's own rules cannot know: the model's sizes and words.
Status NamedRestore::check_content() const {
  const Manifest& manifest = file_.manifest();
  const ManifestHead& head = manifest.head;
  for (const Token token : manifest.tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= model_.vocabulary)
      return make_error(
          ErrorCode::invalid,
          fmt::format("session file: token {} is outside the vocabulary of {}", token, model_.vocabulary));
  }
  if ((head.block_count > 0) != model_.state_in_blocks)
    return make_error(ErrorCode::invalid, "session file: the state is not kept as this model keeps it");
  const bool ends_with_state =
      std::ranges::find(head.resume_positions, head.token_count) != head.resume_positions.end();
  if ((model_.needs_checkpoints || !model_.state_in_blocks) && !ends_with_state)
    return make_error(ErrorCode::corrupt, "session file: the state at its end is missing");
  for (const ManifestPart& part : manifest.parts) STRATA_TRY(check_part(part));
  return {};
}

Status NamedRestore::check_part(const ManifestPart& part) const {
  const bool block = part.kind == PartKind::block;
  const uint64_t most = block ? ports_.model.block_bytes(part.stage, part.count)
                              : std::max(model_.checkpoint_bytes[part.stage], kEmptyCheckpointBytes);
  const bool fits = block ? part.length == most : part.length > 0 && part.length <= most;
  if (fits) return {};
  return make_error(ErrorCode::invalid,
                    fmt::format("session file: {} of stage {} at token {} has {} bytes, not {}",
                                to_string(part.kind), part.stage, part.first, part.length, most));
}

void NamedRestore::make_image() {
  const Manifest& manifest = file_.manifest();
  image_ = std::make_shared<Image>();
  image_->id = manifest.head.id;
  image_->tokens = manifest.tokens;
  image_->media = manifest.media;
  image_->salt = manifest.head.salt;
  for (const ManifestPart& stored : manifest.parts) {
    auto part = std::make_shared<Part>();
    part->kind = stored.kind == PartKind::block ? PartKind::block : PartKind::checkpoint;
    part->stage = stored.stage;
    part->first = stored.first;
    part->count = stored.count;
    part->bytes = stored.length;
    part->disk = Extent{image_->id, stored.offset, stored.length, stored.digest};
    (void)insert_part(image_->parts, std::move(part));
  }
}

bool NamedRestore::needed(const Part& part) const {
  const bool at_end = model_.needs_checkpoints || !model_.state_in_blocks;
  return part.is_block() || (at_end && part.first == image_->length());
}

void NamedRestore::move(SlotId slot, const Restore::Ports& ports, std::vector<HostBufferRef> keep_into,
                        std::function<void(uint64_t bytes)> on_moved) {
  STRATA_CHECK(state_ == State::verified);
  Restore::Request request;
  request.slot = slot;
  request.image = image_;
  request.tokens = image_->length();
  for (size_t i = 0; i < image_->parts.size(); ++i) {
    const HostBufferRef kept = i < keep_into.size() ? keep_into[i] : nullptr;
    if (!kept && !needed(*image_->parts[i])) continue;
    request.parts.push_back(image_->parts[i]);
    request.keep_into.push_back(kept);
  }
  request.opened[image_->id] = file_.release();
  request.on_moved = std::move(on_moved);
  restore_ = std::make_unique<Restore>(ports, std::move(request));
  state_ = State::moving;
}

}  // namespace strata
