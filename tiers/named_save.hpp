// NamedSave: a slot's conversation becomes a self-contained session file under a name (SES-1, SES-2, SES-5).
// Bytes come from where they live, the slot, RAM copies or extents on the disk, and pass through a few pinned
// buffers; copies out of the slot, digests and writes overlap. The file gets its name behind its last byte.
//
// Ownership: holds parts and buffers until nothing touches them. The slot may not change until it is over.
// One thread at a time; the file is the worker's. Never waits, but when it is destroyed before it is over.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/device.hpp"
#include "core/file_system.hpp"
#include "core/image.hpp"
#include "core/model.hpp"
#include "core/result.hpp"
#include "core/saved_session.hpp"
#include "core/worker.hpp"
#include "tiers/disk_reader.hpp"
#include "tiers/pinned_pool.hpp"
#include "tiers/publication.hpp"
#include "tiers/unsettled_buffers.hpp"
#include "tiers/worker_task.hpp"

namespace strata {

class NamedSave {
 public:
  struct Ports {
    Model& model;
    Device& device;
    UnsettledBuffers& unsettled;
    DeviceStream stream;
    PinnedPool& buffers;
    FileSystem& files;
    Worker* worker = nullptr;      // null: file steps are the caller's
    DiskReader* reader = nullptr;  // null without a disk tier
  };
  struct Request {
    SlotId slot = 0;
    uint32_t slot_tokens = 0;  // what the slot holds; its live state is there
    ImageRef image;
    PublicationRules rules;
    std::string target;
    std::string temporary;
    std::string disk_folder;  // of the session files that parts lie in
    uint64_t min_free_bytes = 0;
    std::function<void(uint64_t bytes)> on_moved = [](uint64_t) {
    };  // after each block, at most kMaxPartBytes
  };
  enum class State : uint8_t { preparing, copying, finishing, flushing, publishing, undoing, done, failed };

  NamedSave(const Ports& ports, Request request);
  ~NamedSave();
  NamedSave(const NamedSave&) = delete;
  NamedSave& operator=(const NamedSave&) = delete;

  State step();
  // Ends in failed (cancelled), or done when the file has its name already.
  void cancel();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] uint64_t total_bytes() const { return total_bytes_; }  // of payload, at most
  // Once it is over:
  [[nodiscard]] bool published() const { return file_.published(); }
  [[nodiscard]] uint64_t file_bytes() const { return file_.file_bytes(); }
  [[nodiscard]] const std::string& note() const { return file_.note(); }

 private:
  struct Item {
    PartRef part;
    uint64_t bound_bytes = 0;
    HostBufferRef buffer;
    Extent extent;  // in the saved file
    std::unique_ptr<DigestStream> digest;
    bool reading = false;  // from the disk
    bool lost = false;     // could not be read
  };
  using ItemRef = std::shared_ptr<Item>;
  struct Group {  // items whose copies are queued together
    std::vector<ItemRef> items;
    std::vector<HostBufferRef> copied_into;  // by the device
    DeviceEvent event;
  };
  struct Write {
    ItemRef item;
    uint64_t from = 0;   // of the item's payload
    uint64_t bytes = 0;  // payload
    WorkerTask task;
  };
  void start_task(std::function<Status()> work) { task_.start(ports_.worker, std::move(work)); }
  void advance();
  void copy();
  void fill_groups();
  bool fill(Group& group);
  bool fetch(const ItemRef& item, Group& group);
  bool read_from_disk(const ItemRef& item);
  Result<HostBufferRef> buffer_for(const Part& part);
  Result<FileHandle> open(ConversationId file);
  void write_ready();
  void hand_over(const ItemRef& item);
  void collect_writes();
  void finish();
  void fail(Error error);
  void leave_buffers();
  void undo();
  [[nodiscard]] bool comes_from_slot(const Part& part) const;
  [[nodiscard]] Manifest manifest() const;
  static SavedFileWriter::Plan plan_of(const Request& request);

  Ports ports_;
  Request request_;
  SavedFileWriter file_;
  WorkerTask task_;
  std::vector<ItemRef> items_;
  std::deque<Group> groups_;
  std::deque<Write> writes_;
  std::map<ConversationId, FileHandle> open_files_;
  size_t next_ = 0;
  size_t reading_ = 0;
  uint64_t end_offset_ = limits::kSessionHeaderBytes;
  uint64_t total_bytes_ = 0;
  std::set<uint32_t> lost_positions_;  // checkpoints that are left out
  State state_ = State::preparing;
  bool failing_ = false;
  Error error_;
};

}  // namespace strata
