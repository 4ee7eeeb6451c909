// Restore: brings blocks and checkpoints of an image into a slot through a staged import (B-3, B-4). Disk
// reads, digest checks and device copies overlap within a window; nothing is imported before its digest was
// checked, and the import is committed after the last check. On any failure the import is aborted and the
// slot is as it was. Ownership: parts and their buffers are held until nothing touches them. One thread at a
// time. Never waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/clock.hpp"
#include "core/device.hpp"
#include "core/file_system.hpp"
#include "core/image.hpp"
#include "core/limits.hpp"
#include "core/model.hpp"
#include "core/result.hpp"
#include "tiers/disk_reader.hpp"
#include "tiers/pinned_pool.hpp"
#include "tiers/unsettled_buffers.hpp"

namespace strata {

class Restore {
 public:
  // Staging buffers a restore uses at most: those that are read into, and some that the device still copies
  // from, so that the disk does not wait for the device.
  static constexpr uint32_t kStreamedBuffers = limits::kReadDepth + limits::kReadDepth / 2;

  struct Ports {
    Model& model;
    Device& device;
    Clock& clock;
    DeviceStream stream;
    FileSystem* files = nullptr;  // both null without a disk tier
    DiskReader* reader = nullptr;
    PinnedPool* staging = nullptr;  // for parts that are not kept in RAM
    UnsettledBuffers* unsettled = nullptr;
  };
  struct Request {
    SlotId slot = 0;
    ImageRef image;
    uint32_t tokens = 0;  // how many of the image's tokens
    // All that are needed, in any order. A checkpoint elsewhere than at the end of `tokens` is kept, not
    // imported.
    std::vector<PartRef> parts;
    // Buffers of the parts in `keep_into` become their RAM copies: same order as parts, null entries stream.
    std::vector<HostBufferRef> keep_into;
    // Files of the folder that are open already; the restore closes them.
    std::map<ConversationId, FileHandle> opened;
    std::function<void(uint64_t bytes)> on_moved = [](uint64_t) {};  // after each part
    std::string folder;                                              // where the session files are
    uint64_t patience_ns = UINT64_MAX;  // a disk that answers no read for so long is not waited for
  };
  enum class State : uint8_t { running, done, failed };

  Restore(const Ports& ports, Request request);
  ~Restore();
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

  State step();
  void cancel();  // ends in failed (cancelled) once the device is done with it
  // Reads are under way although it has ended: it must be kept and is over when this is false.
  [[nodiscard]] bool lingers() const { return state_ != State::running && reading_ > 0; }
  [[nodiscard]] const Error& error() const { return error_; }
  // The stored bytes were at fault: they could not be read or did not match their digest.
  [[nodiscard]] bool storage_failed() const { return storage_failed_; }
  // The model was asked to take something: without staged imports the slot is not what it was.
  [[nodiscard]] bool import_began() const { return import_began_; }
  // What did not match its digest.
  [[nodiscard]] const std::optional<Extent>& damaged() const { return damaged_; }
  [[nodiscard]] uint64_t restored_bytes() const { return restored_bytes_; }
  [[nodiscard]] uint64_t disk_bytes() const { return disk_bytes_; }
  [[nodiscard]] uint64_t disk_ns() const { return disk_ns_; }      // from the first read to the last
  [[nodiscard]] uint64_t digest_ns() const { return digest_ns_; }  // of what came from the disk
  [[nodiscard]] bool reads_disk() const { return reads_disk_; }

 private:
  struct Item {
    PartRef part;
    HostBufferRef buffer;
    bool kept = false;
    bool from_disk = false;  // also when the part gets a RAM copy elsewhere meanwhile
    Extent extent;           // where it is read from; the part may move to another file meanwhile
    DeviceEvent event;       // after the import of a streamed item
    enum class Step : uint8_t { waiting, reading, read, importing, done } step = Step::waiting;
  };
  void begin();
  void start_items();
  bool start(Item& item);
  void start_read(Item& item);
  void import_ready();
  void import(Item& item);
  Status queue_import(const Item& item);
  void retire_streamed();
  void finish();
  void fail(Error error);
  void fail_storage(Error error);
  void check_patience();
  [[nodiscard]] bool digest_fits(const Item& item);
  void unwind();
  void leave_buffers();
  Result<FileHandle> open(ConversationId file);
  [[nodiscard]] std::span<const std::byte> payload(const Item& item) const;

  Ports ports_;
  Request request_;
  std::vector<std::shared_ptr<Item>> items_;
  std::map<ConversationId, FileHandle> open_files_;
  size_t next_ = 0;
  size_t reading_ = 0;
  size_t streaming_ = 0;  // items whose buffer is a staging one
  size_t imported_ = 0;
  uint64_t import_ = 0;
  bool begun_ = false;
  bool import_began_ = false;
  bool failing_ = false;
  bool storage_failed_ = false;
  std::optional<Extent> damaged_;
  bool recorded_ = false;
  DeviceEvent last_event_;
  State state_ = State::running;
  Error error_;
  uint64_t restored_bytes_ = 0;
  uint64_t disk_bytes_ = 0;
  uint64_t disk_start_ns_ = 0;
  uint64_t disk_ns_ = 0;
  uint64_t digest_ns_ = 0;
  uint64_t last_read_ns_ = 0;  // when the disk gave sign of life, or was asked first
  bool reads_disk_ = false;
};

}  // namespace strata
