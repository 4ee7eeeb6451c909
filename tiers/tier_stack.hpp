// TierStack: everything that decides where conversation state lives, and the transfers that carry the
// decisions out.
//
// A request is admitted, placed (plan → slot → park the outgoing conversation → restore the best match), then
// read and answered by its owner, who reports what the model holds, and finished. Nothing in here waits,
// sleeps, locks or makes a system call except through ports; step() moves every transfer as far as it goes
// now.
//
// Ownership: the ports must outlive the stack. Thread-safety: one thread (the engine loop); the write queue's
// other end may be another thread. Errors: admission errors are Results; cache errors never reach the owner:
// they cost a re-read, with a reason (OBS-1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/device.hpp"
#include "core/file_system.hpp"
#include "core/identity.hpp"
#include "core/image.hpp"
#include "core/io_queue.hpp"
#include "core/limits.hpp"
#include "core/log.hpp"
#include "core/memory_probe.hpp"
#include "core/metrics.hpp"
#include "core/model.hpp"
#include "core/page_source.hpp"
#include "core/random.hpp"
#include "core/reasons.hpp"
#include "core/result.hpp"

namespace strata {

class WriteQueue;  // tiers/disk_writer.hpp
class Worker;      // core/worker.hpp

enum class ForeignFiles : uint8_t { remove, keep };

// When a conversation is written to the disk.
enum class WritePolicy : uint8_t {
  evict,    // when RAM or its slot is needed for another one
  through,  // after each answer: a crash loses at most the turn that runs
  idle,     // when nothing runs, or when it has waited too long for that
};

struct TierOptions {
  // RAM tier; 0 bytes: off
  uint64_t ram_budget_bytes = 0;
  uint32_t ram_max_images = 0;  // 0: no limit by count
  uint64_t ram_min_free_bytes = 2560 * limits::kMiB;
  // Checkpoints of models whose state cannot be cut; 0: off, nothing is parked for such models
  uint32_t checkpoints_max = 6;
  uint32_t checkpoints_every_tokens = 16384;
  bool checkpoints_spread = true;
  // Disk tier; empty folder: off
  std::string disk_folder;
  uint64_t disk_budget_bytes = 32768 * limits::kMiB;
  uint64_t disk_min_free_bytes = 4096 * limits::kMiB;
  uint64_t disk_ttl_ns = 0;  // 0: no limit
  bool disk_persist = false;
  bool disk_empty_at_start = false;  // everything of ours in the folder is removed, as expired
  WritePolicy write_policy = WritePolicy::evict;
  uint64_t compaction_min_bytes = limits::kMinCompactionBytes;  // a file is not written anew for less
  // Conversations are parked straight to the disk through a few buffers; needs a folder and a RAM budget of
  // 0.
  bool disk_mode = false;
  ForeignFiles foreign = ForeignFiles::remove;
  // Sessions saved by name
  uint64_t session_min_free_bytes = 4096 * limits::kMiB;  // on the file system; 0: not checked
  bool session_save_reclaim = false;                      // a save may free RAM it needs (RAM-7)
};

struct TierPorts {
  Model& model;
  Device& device;
  Clock& clock;
  MemoryProbe& memory;
  Random& random;
  Log& log;
  Metrics& metrics;
  // The three are needed with a disk folder; saved sessions need files, restoring one a reader as well.
  FileSystem* files = nullptr;
  IoQueue* reader = nullptr;
  WriteQueue* writer = nullptr;
  PageSource* pages = nullptr;  // null: large buffers come from the allocator
  Worker* worker = nullptr;     // null: files of saved sessions are read and written by step() itself
};

using RequestId = uint64_t;

struct TierRequest {
  RequestId id = 0;
  std::vector<Token> tokens;  // the prompt, 1 … context−1 tokens
  std::vector<MediaMark> media;
  std::vector<uint32_t> borders;  // positions worth a checkpoint: end of the system prompt, user messages
  uint64_t salt = 0;
  std::optional<SlotId> slot;  // must be this one
  bool use_cache = true;       // false: read everything
  bool keep = true;            // false: a one-shot request, never pushes out a parked conversation
};

enum class RequestState : uint8_t {
  waiting,  // no idle slot yet
  placing,  // parking, fetching, restoring
  serving,  // the slot holds the reused prefix: read the rest and answer
  failed,   // the model or device failed so that the slot cannot serve; failure() says why; finish() it
};

struct Placement {
  SlotId slot = kNoSlot;
  uint32_t reused_tokens = 0;
  Tier tier = Tier::none;
  ReadCause cause;              // why the rest is read
  uint64_t placing_ns = 0;      // from the choice of a slot to serving
  uint64_t restored_bytes = 0;  // moved into the slot
  uint64_t disk_bytes = 0;      // of those, read from disk
};

struct SlotStatus {
  SlotId slot = 0;
  uint32_t tokens = 0;
  ConversationId conversation;       // 0: empty
  std::optional<RequestId> request;  // null: idle
  uint64_t last_used_ns = 0;
};

struct TierStatus {
  std::vector<SlotStatus> slots;
  uint64_t ram_bytes = 0;  // pinned, everything counted
  uint64_t ram_budget_bytes = 0;
  uint64_t ram_images = 0;
  uint64_t disk_bytes = 0;  // reserved and on disk
  uint64_t disk_budget_bytes = 0;
  uint64_t disk_images = 0;
  uint64_t disk_queue_bytes = 0;
  uint64_t disk_queue_jobs = 0;
  bool ram_on = false;
  bool disk_on = false;
  bool disk_mode = false;
  std::string disk_off_reason;  // not empty: a folder was given but cannot be used
  uint64_t intake_taken = 0, intake_refused = 0;
};

struct StoredConversation {  // SESSIONS
  ConversationId id;
  uint32_t tokens = 0;
  uint64_t ram_bytes = 0, disk_bytes = 0;
  uint64_t created_ns = 0, last_used_ns = 0;
  bool pinned = false;
  std::string label;
};

struct DrainProgress {
  uint64_t done_bytes = 0, total_bytes = 0;
  uint32_t conversations = 0;  // published so far
  bool finished = false;
};

// Sessions saved by name (SES-1 to SES-7): one action at a time.
struct SessionRequest {
  enum class Kind : uint8_t { save, restore, erase } kind = Kind::save;
  SlotId slot = 0;
  std::string path;  // of the file
};

enum class SessionFault : uint8_t { invalid, storage, memory, io };  // SES-4
[[nodiscard]] const char* to_string(SessionFault fault);
[[nodiscard]] const char* to_string(SessionRequest::Kind kind);

struct SessionView {
  enum class State : uint8_t { waiting, running, done, failed, fatal } state = State::waiting;
  enum class Phase : uint8_t { moving, validate, flush, publish } phase = Phase::moving;
  std::optional<uint64_t> total_bytes;  // to be moved; once it is known
  std::vector<uint64_t> moved_bytes;    // so far, after each block since take_session_progress()
  // Once it is done
  uint32_t tokens = 0;
  uint32_t usable_tokens = 0;  // restore: that a request which goes on from there reuses
  uint64_t file_bytes = 0;     // from the phases that need it on
  uint64_t duration_ns = 0;    // from when it had its slot
  // When it failed; fatal: the slot is lost, and what the model holds there is not known
  SessionFault fault = SessionFault::io;
  bool published = false;  // save: the file has its name all the same
  std::string reason;
};

class TierStack {
 public:
  // With a disk folder: takes its lock and takes conversations in. Errors: unavailable (folder in use by
  // another process, or not ours to write), invalid (options). A disk that is full, read-only or failing is
  // no error: the tier is off, and TierStatus says why.
  static Result<std::unique_ptr<TierStack>> open(const TierOptions& options, const TierPorts& ports,
                                                 const Identity& identity);
  virtual ~TierStack() = default;

  // invalid: empty prompt, unknown slot, tokens outside the vocabulary; exhausted: prompt longer than the
  // context, or kMaxQueuedRequests waiting. The id must not be in use.
  virtual Status admit(TierRequest request) = 0;
  virtual RequestState state(RequestId id) const = 0;
  virtual const Placement& placement(RequestId id) const = 0;  // valid from serving on
  virtual const std::string& failure(RequestId id) const = 0;  // valid when failed
  // In any state. The slot keeps what it holds and becomes idle; a transfer under way is undone.
  virtual void finish(RequestId id) = 0;

  // Moves all transfers on without waiting. True when something is still moving (call again soon).
  virtual bool step() = 0;

  // While serving. `tokens` were appended to the slot by Model::decode.
  virtual void appended(SlotId slot, std::span<const Token> tokens) = 0;
  // The length up to which the slot may be read before the owner asks again (a checkpoint is due there).
  [[nodiscard]] virtual uint32_t read_limit(SlotId slot) const = 0;
  // `tokens` prompt tokens were read in this time; feeds the cost model (B-5).
  virtual void observe_prompt(uint32_t tokens, uint64_t duration_ns) = 0;
  // False while copies out of the slot are under way, or a checkpoint is being taken: leave it out of the
  // batch.
  virtual bool may_decode(SlotId slot) = 0;

  [[nodiscard]] virtual TierStatus status() const = 0;
  [[nodiscard]] virtual std::vector<StoredConversation> conversations() const = 0;
  // Empties an idle slot without parking it; returns how many tokens it held. not_found, unavailable while in
  // use.
  virtual Result<uint32_t> erase(SlotId slot) = 0;
  // Saves, restores or erases a slot, by the steps that follow; waits for the request that has the slot and
  // for those that were admitted earlier and may take it, and goes before later ones. invalid: unknown slot;
  // unavailable: one is under way.
  virtual Status begin_session(SessionRequest request) = 0;
  [[nodiscard]] virtual const SessionView* session() const = 0;  // null: none
  virtual std::vector<uint64_t> take_session_progress() = 0;
  virtual void cancel_session() = 0;             // ends in failed, or done if it is too late
  virtual void end_session() = 0;                // after done, failed or fatal
  virtual Status forget(ConversationId id) = 0;  // all tiers; not_found, unavailable while in use
  virtual Status pin(ConversationId id, bool pinned) = 0;

  // Shutdown (DISK-7): with persistence parks every idle slot and writes everything parked; without it
  // removes this run's files. Then step() until finished. No admit after it.
  virtual void begin_shutdown() = 0;
  [[nodiscard]] virtual DrainProgress drain_progress() const = 0;
};

}  // namespace strata
