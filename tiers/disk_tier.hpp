// DiskTier: what is stored in the conversation folder, who shares it, and what may stay (DISK-1 to DISK-8).
//
// All metadata lives here on the engine loop; the writer thread only carries out jobs. Physical bytes are
// charged before a job is handed over and corrected by its result, so the budget holds at every instant. A
// conversation waits here, not in the writer's queue, until there is room, so that it can be cancelled at no
// cost.
//
// Two ways lead to a publication: spill() takes an image whose parts are in RAM (DISK-1); a stream takes the
// parts one after the other through a few buffers (disk mode, DM-1).
//
// Extents are counted by the conversations that refer to them; one whose count falls to zero is given back by
// a release job. After a restart only heads are known: a file's extents are then given back one by one only
// when the bodies of all conversations that use the file were read, and the file itself when nobody refers to
// it. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/clock.hpp"
#include "core/file_system.hpp"
#include "core/identity.hpp"
#include "core/image.hpp"
#include "core/log.hpp"
#include "core/manifest.hpp"
#include "core/metrics.hpp"
#include "core/reasons.hpp"
#include "tiers/disk_reader.hpp"
#include "tiers/disk_writer.hpp"
#include "tiers/extent_map.hpp"
#include "tiers/intake.hpp"
#include "tiers/publication.hpp"
#include "tiers/ram_tier.hpp"
#include "tiers/run_clock.hpp"

namespace strata {

class DiskTier final : public SpillTarget {
 public:
  struct Options {
    std::string folder;
    uint64_t budget_bytes = 0;
    uint64_t min_free_bytes = 0;
    uint64_t ttl_ns = 0;
    bool persist = false;
    bool empty_at_start = false;
    uint64_t compaction_min_bytes = limits::kMinCompactionBytes;
    bool remove_foreign = true;
    Identity identity;
    uint32_t stage_count = 1;
    uint32_t tokens_per_block = 0;
    ManifestLimits manifest_limits;
  };
  struct Ports {
    FileSystem& files;
    DiskReader& reader;
    WriteQueue& writer;
    RunClock& clock;
    Log& log;
    Metrics& metrics;
  };
  struct Entry {
    uint64_t key = 0;
    ManifestHead head;
    ImageRef image;  // null until the body was read
    bool loading = false;
    uint64_t index_bytes = 0;
    uint64_t last_used_ns = 0;  // wall
    uint32_t pins = 0;          // plans and transfers under way: stays
    uint32_t reads = 0;         // of its extents, under way: not replaced by a newer state
    bool held_by_user = false;
    bool used_since = false;  // since the folder knows
  };
  // The stack keeps its prefix index in step: a published or taken-in conversation appears, a removed one
  // goes.
  struct Listener {
    std::function<uint64_t()> next_key;
    std::function<ConversationId()> new_id;  // nobody's
    std::function<void(const Entry&)> appeared;
    std::function<void(const Entry&, ReadReason)> gone;                 // none: superseded or forgotten
    std::function<void(const Refused&, ReadReason)> refused_at_intake;  // those whose tokens' chain is known
    std::function<void(const Image&)>
        spill_dropped;  // an image that was taken by spill() will not be written
  };

  static Result<std::unique_ptr<DiskTier>> open(const Options& options, const Ports& ports,
                                                Listener listener);
  ~DiskTier() override;

  // --- SpillTarget
  [[nodiscard]] SpillState spill_state(const Image& image) const override;
  bool spill(const ImageRef& image) override;
  bool cancel_spill(const Image& image) override;

  // --- streams (disk mode): publications whose parts arrive one after the other, in the order of `parts`
  enum class StreamState : uint8_t {
    waiting,     // for space
    open,        // takes parts
    publishing,  // has them all
    published,
    failed,  // why; nothing of it is left
  };
  struct StreamStatus {
    StreamState state = StreamState::failed;
    SkipReason why = SkipReason::io_error;
    std::vector<PartRef> parts;  // from open on: those that are not stored yet
  };
  using StreamKey = uint64_t;
  // The image's parts need no RAM copy. Failed at once when it is larger than the budget (DM-2).
  StreamKey begin_stream(const ImageRef& image);
  [[nodiscard]] const StreamStatus& stream(StreamKey key) const;
  // The next parts' bytes, while open. The buffers come back by themselves when they are written.
  void write(StreamKey key, std::vector<HostBufferRef> buffers);
  void publish(StreamKey key);       // after the last part
  void abort_stream(StreamKey key);  // ends in failed (cancelled), or published if it is too late
  void end_stream(StreamKey key);    // nobody asks for it any more; one that is not over is aborted

  // At shutdown nobody waits for a file to be written anew.
  void stop_compacting();

  // Takes results in, hands jobs over, lets old conversations expire. True when jobs are under way or
  // waiting.
  bool step();

  Entry* find(uint64_t key);
  Entry* find(ConversationId id);
  // Starts reading the body; the entry has its image, or is gone, after later steps of the reader.
  void load_body(uint64_t key);
  void touch(uint64_t key);
  // Lets the folder know of uses that no publication tells; now, or once a minute by step().
  void remember_uses();
  void pin(uint64_t key) { ++find(key)->pins; }
  void unpin(uint64_t key);
  void begin_read(uint64_t key) { ++find(key)->reads; }
  void end_read(uint64_t key);
  // A restore found it bad: never offered again (corrupt: renamed to .bad; io_error: in this run).
  void quarantine(uint64_t key, ReadReason why, const std::string& detail);
  // Gone from the folder; the reason is remembered by the listener.
  void remove(uint64_t key, ReadReason why);
  void remove_all();

  [[nodiscard]] const std::unordered_map<uint64_t, Entry>& entries() const { return entries_; }
  [[nodiscard]] bool may_read(const Entry& entry) const { return !being_written(entry.head.id); }
  [[nodiscard]] std::string session_path(ConversationId file) const;
  [[nodiscard]] uint64_t charged_bytes() const;
  [[nodiscard]] uint64_t queue_bytes() const;  // of images waiting or being written
  [[nodiscard]] size_t queue_jobs() const { return pending_.size() + posted_.size(); }
  [[nodiscard]] bool settled() const {
    return pending_.empty() && posted_.empty() && releasing_.empty() && !streaming() && !compacting_;
  }
  // Nothing on its way refers to it.
  [[nodiscard]] bool may_remove(const Entry& entry) const {
    return entry.pins == 0 && !entry.loading && !being_written(entry.head.id) && !being_compacted(entry.key);
  }
  [[nodiscard]] const IntakeReport& intake() const { return intake_; }
  [[nodiscard]] uint64_t published_count() const { return published_count_; }
  [[nodiscard]] uint64_t done_bytes() const {
    return done_bytes_;
  }  // of images written or dropped, for progress

 private:
  struct KnownExtent {
    uint64_t length = 0;
    uint32_t users = 0;  // entries and jobs that refer to it
    std::weak_ptr<Part> part;
  };
  struct File {
    ExtentMap map;
    std::map<uint64_t, KnownExtent> extents;
    std::set<uint64_t> users;      // keys of entries and jobs
    uint64_t allocated_bytes = 0;  // last seen
    bool exists = false;
    bool settled = false;      // compaction has nothing to win, or failed, until something changes here
    bool damaged = false;      // compaction found it so: never tried again
    uint64_t incarnation = 0;  // tells a file from an earlier one of the same name
  };
  struct Pending {
    uint64_t key = 0;  // of the entry to be
    ImageRef image;
    uint64_t queued_ns = 0;
    std::unordered_set<PartRef> held;  // parts whose extents are held for this job
  };
  struct Posted {
    Pending spill;
    uint64_t reserved_bytes = 0;
    std::vector<PartRef> parts;    // of the publication
    std::vector<PartRef> written;  // those of them that are written, in order
    std::vector<Extent> extents;   // where they go
    ManifestHead head;             // when the publication is posted
    StreamKey stream = 0;          // of a stream that was published
    uint64_t started_ns = 0;       // of a stream: when its first part came
    uint64_t ahead_bytes = 0;      // of a stream: written before the publication
  };
  struct Stream {
    StreamStatus status;
    Posted posted;
    std::set<JobId> jobs;  // extents on their way
    size_t handed = 0;     // of posted.written
    size_t written = 0;
    bool aborted = false;
    bool forgotten = false;  // goes when it is over
    Status failure;
  };
  struct Releasing {
    struct Punched {
      ConversationId file;
      uint64_t incarnation = 0;
      std::vector<FreedExtent> extents;
    };
    uint64_t charged_bytes = 0;  // of the index and whole files, until the result confirms that they are gone
    uint64_t expected_bytes = 0;  // that the job will give back in all
    std::vector<Punched> punched;
  };
  using Freed = std::map<ConversationId, std::vector<FreedExtent>>;

  DiskTier(const Options& options, const Ports& ports, Listener listener);
  Status probe_folder();
  Status take_in();
  void adopt(const TakenIn& taken);

  // --- writing
  void post_pending();
  enum class Room : uint8_t { ready, wait, refused };
  Room room_for(const Pending& spill, uint64_t bytes, SkipReason& why);
  void hold_extents(Pending& spill);
  void let_go(Pending& spill);
  [[nodiscard]] uint64_t needed_bytes(const Pending& spill) const;
  [[nodiscard]] bool stored(const PartRef& part) const;
  void post(Pending spill, uint64_t reserved_bytes);
  Posted lay_out(Pending spill, uint64_t reserved_bytes);
  PublishJob publish_job(Posted& posted);
  JobId hand_over(WriteWork work);
  [[nodiscard]] PublicationRules publication_rules() const;
  // As they are stored: with times of the wall clock.
  SessionHeader stored_header(const Image& image);
  Manifest stored_manifest(const Image& image, const std::vector<PartRef>& parts,
                           const std::unordered_map<const Part*, Extent>& written, uint64_t own_bytes,
                           uint64_t last_used_ns);
  void take_result(WriteResult& result);
  bool refuse_too_large(Pending& spill);
  void log_queued(const Image& image, size_t queue);
  static SkipReason skip_reason(const Status& status);
  void drop_pending(Pending& spill, SkipReason why, const std::string& detail);
  void finish_publish(Posted& posted, WriteResult& result);
  void charge_unknown_sizes(const Posted& posted, const WriteResult& result);
  void publish_failed(Posted& posted, const WriteResult& result);
  void take_back(Posted& posted);
  void replace_entry(Posted& posted, const WriteResult& result);
  [[nodiscard]] bool being_written(ConversationId id) const;
  [[nodiscard]] bool waits_for_others(const Pending& spill) const;
  // Publications that are laid out: posted, or open streams.
  void each_laid_out(const std::function<void(const Posted&)>& visit) const;

  // --- streams
  [[nodiscard]] bool streaming() const;
  static bool is_over(const Stream& stream);
  void open_streams();
  void finish_extents(Stream& stream, const WriteResult& result);
  void settle_streams();
  void post_stream(Stream& stream);
  void stream_failed(Stream& stream);

  // --- compaction
  struct Compacting {
    JobId job = 0;
    ConversationId from, to;
    std::vector<uint64_t> keys;  // of the entries whose indexes are published anew, in the job's order
    std::vector<ManifestHead> heads;
    std::vector<PartRef> parts;  // that move, in the order of the job's moves
    std::vector<uint64_t> from_offsets;
    std::vector<Extent> extents;  // where to
    uint64_t reserved_bytes = 0;
    std::shared_ptr<StopFlag> stop;
  };
  void compact();
  [[nodiscard]] bool worth_compacting(const File& file) const;
  [[nodiscard]] bool may_compact(const File& file) const;
  bool start_compaction(ConversationId id, const File& file);
  [[nodiscard]] uint64_t compaction_bytes(const File& file) const;
  void give_way();
  void compaction_failed(const Compacting& work, const WriteResult& result);
  void compacted(const Compacting& work, const WriteResult& result);
  CompactJob compact_job(Compacting& work, const File& file);
  CompactJob::Index compacted_index(const Compacting& work, const Entry& entry);
  void finish_compaction(const WriteResult& result);
  void move_parts(const Compacting& work, const WriteResult& result);
  [[nodiscard]] bool being_compacted(uint64_t key) const;
  [[nodiscard]] bool touches_compaction(const Image& image) const;

  // --- giving space back
  Entry* oldest_victim(const Pending& spill);
  void unref_extents(const Image& image, Freed& freed);
  void forget_user(uint64_t key, const ManifestHead& head, Freed& freed);
  [[nodiscard]] bool fully_known(const File& file) const;
  void post_release(ConversationId id, bool remove_index, uint64_t index_bytes, Freed freed);
  void finish_release(const Releasing& releasing, const WriteResult& result);
  Entry take_entry(uint64_t key);
  void apply_sizes(const WriteResult& result);
  void expire();
  void publish_gauges(bool changed);

  // --- reading bodies
  struct BodyRead;
  void body_done(uint64_t key, const std::shared_ptr<BodyRead>& read, Status status);
  Status attach_body(Entry& entry, Manifest manifest);
  Result<PartRef> share_part(ConversationId file_id, const ManifestPart& stored_part);

  Options options_;
  Ports ports_;
  Listener listener_;
  FileHandle lock_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::unordered_map<ConversationId, uint64_t> by_id_;
  std::map<ConversationId, File> files_;
  std::deque<Pending> pending_;
  std::map<JobId, Posted> posted_;
  std::map<JobId, Releasing> releasing_;
  std::map<StreamKey, Stream> streams_;
  std::optional<Compacting> compacting_;
  uint64_t next_compaction_look_ns_ = 0;
  bool may_compact_ = true;
  IntakeReport intake_;
  uint64_t kept_bytes_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t next_job_ = 1;
  uint64_t next_incarnation_ = 1;
  uint64_t last_expire_ns_ = 0;
  uint64_t last_remembered_ns_ = 0;
  bool used_since_ = false;    // some entry was
  std::vector<size_t> shown_;  // what the gauges were set for
  uint64_t published_count_ = 0;
  uint64_t done_bytes_ = 0;
};

}  // namespace strata
