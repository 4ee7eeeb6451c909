// NamedRestore: a saved session file becomes the conversation of a slot (SES-3). The file is opened once, and
// everything in it is checked, every digest included, before the model is asked for anything; then its parts
// pass through a few pinned buffers into a staged import, and are checked once more on the way.
//
// Ownership: the slot is its caller's matter; checkpoints before the end that were read stand in image()'s
// parts. One thread at a time; the file is the worker's until ready. Never waits, but when it is destroyed
// before it is over.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/file_system.hpp"
#include "core/image.hpp"
#include "core/model.hpp"
#include "core/result.hpp"
#include "core/saved_session.hpp"
#include "core/worker.hpp"
#include "tiers/restore.hpp"
#include "tiers/worker_task.hpp"

namespace strata {

class NamedRestore {
 public:
  struct Ports {
    Model& model;
    FileSystem& files;
    Worker* worker = nullptr;  // null: file steps are the caller's
  };
  enum class State : uint8_t {
    opening,
    opened,  // the caller goes on with verify()
    verifying,
    verified,  // the caller goes on with move()
    moving,
    done,
    failed,
  };

  NamedRestore(const Ports& ports, std::string path, SavedLimits limits);
  ~NamedRestore();
  NamedRestore(const NamedRestore&) = delete;
  NamedRestore& operator=(const NamedRestore&) = delete;

  State step();
  void verify();
  // Into the slot: blocks and the live state, and checkpoints for which there is a buffer (in the order of
  // the image's parts; null: left out).
  void move(SlotId slot, const Restore::Ports& ports, std::vector<HostBufferRef> keep_into,
            std::function<void(uint64_t bytes)> on_moved);
  void cancel();  // ends in failed (cancelled)

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const Error& error() const { return error_; }
  // From opened on:
  [[nodiscard]] const ImageRef& image() const { return image_; }
  [[nodiscard]] uint64_t file_bytes() const { return file_.file_bytes(); }
  // From verified on: of what move() brings in.
  [[nodiscard]] bool needed(const Part& part) const;
  // When failed: without staged imports the slot is not what it was.
  [[nodiscard]] bool import_began() const { return import_began_; }

 private:
  Status check_content() const;
  Status check_part(const ManifestPart& part) const;
  void make_image();
  void fail(Error error);

  Ports ports_;
  const ModelInfo& model_;
  SavedFileReader file_;
  WorkerTask task_;
  std::atomic<bool> stop_{false};
  ImageRef image_;
  std::unique_ptr<Restore> restore_;
  State state_ = State::opening;
  bool import_began_ = false;
  Error error_;
};

}  // namespace strata
