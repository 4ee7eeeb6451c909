// StreamOut: copies what of a slot's conversation is not stored yet straight to the disk, through a few
// pinned buffers (disk mode, DM-1). Copies out of the slot, digests and writes overlap; the conversation is
// published behind its last byte. The slot may not change until done. Ownership: holds the buffers that the
// device fills; what a failed copy may still touch goes to UnsettledBuffers. One thread at a time. Never
// waits.
#pragma once

#include <deque>
#include <vector>

#include "core/device.hpp"
#include "core/image.hpp"
#include "core/model.hpp"
#include "core/reasons.hpp"
#include "tiers/disk_tier.hpp"
#include "tiers/pinned_pool.hpp"
#include "tiers/unsettled_buffers.hpp"

namespace strata {

class StreamOut {
 public:
  struct Ports {
    Model& model;
    Device& device;
    UnsettledBuffers& unsettled;
    DeviceStream stream;
    PinnedPool& buffers;
    DiskTier& disk;
  };
  // Of a slot that holds the image's tokens; parts with a RAM copy are written from it, others from the slot.
  // `slot_tokens`: how many it holds; only there it has a live state to copy.
  StreamOut(const Ports& ports, SlotId slot, uint32_t slot_tokens, const ImageRef& image);
  ~StreamOut();
  StreamOut(const StreamOut&) = delete;
  StreamOut& operator=(const StreamOut&) = delete;

  enum class State : uint8_t { running, done, failed };
  State step();
  void cancel();  // ends in failed (cancelled), or done if it is too late
  [[nodiscard]] SkipReason why() const { return why_; }    // when failed
  [[nodiscard]] uint64_t bytes() const { return bytes_; }  // copied out of the slot

 private:
  // A few parts whose copies are queued together; one write job.
  struct Group {
    size_t first = 0;  // of the stream's parts
    std::vector<HostBufferRef> buffers;
    bool copies = false;  // something of it comes from the slot
    DeviceEvent event;
  };
  void copy_next();
  bool fill(Group& group);
  Result<HostBufferRef> buffer_for(const Part& part);
  void write_ready();
  State settle(DiskTier::StreamState state);
  void fail(SkipReason why);
  void leave_buffers();

  Ports ports_;
  SlotId slot_;
  uint32_t slot_tokens_;
  DiskTier::StreamKey key_;
  std::deque<Group> groups_;  // on their way to the writer, in order
  size_t next_ = 0;           // of the stream's parts
  bool failing_ = false;
  State state_ = State::running;
  SkipReason why_ = SkipReason::cancelled;
  uint64_t bytes_ = 0;
};

}  // namespace strata
