// The implementation of TierStack, over five files: stack.cpp (life, requests, slots, status), placing.cpp
// (plan → slot → park → restore), parking.cpp (parks, checkpoints), writing_out.cpp (write policies,
// shutdown), session_actions.cpp (sessions saved by name). Private to tiers/.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tiers/checkpoint_policy.hpp"
#include "tiers/copy_out.hpp"
#include "tiers/cost_model.hpp"
#include "tiers/disk_tier.hpp"
#include "tiers/named_restore.hpp"
#include "tiers/named_save.hpp"
#include "tiers/pinned_pool.hpp"
#include "tiers/planner.hpp"
#include "tiers/prefix_index.hpp"
#include "tiers/ram_tier.hpp"
#include "tiers/restore.hpp"
#include "tiers/run_clock.hpp"
#include "tiers/slot_table.hpp"
#include "tiers/stream_out.hpp"
#include "tiers/tier_stack.hpp"
#include "tiers/unsettled_buffers.hpp"

namespace strata {

class Stack final : public TierStack {
 public:
  Stack(const TierOptions& options, const TierPorts& ports, const Identity& identity);
  ~Stack() override;
  Status start();

  Status admit(TierRequest request) override;
  RequestState state(RequestId id) const override;
  const Placement& placement(RequestId id) const override;
  const std::string& failure(RequestId id) const override;
  void finish(RequestId id) override;
  bool step() override;
  void appended(SlotId slot, std::span<const Token> tokens) override;
  uint32_t read_limit(SlotId slot) const override;
  void observe_prompt(uint32_t tokens, uint64_t duration_ns) override;
  bool may_decode(SlotId slot) override;
  TierStatus status() const override;
  std::vector<StoredConversation> conversations() const override;
  Result<uint32_t> erase(SlotId slot) override;
  Status begin_session(SessionRequest request) override;
  const SessionView* session() const override { return session_ ? &session_->view : nullptr; }
  std::vector<uint64_t> take_session_progress() override;
  void cancel_session() override;
  void end_session() override;
  Status forget(ConversationId id) override;
  Status pin(ConversationId id, bool pinned) override;
  void begin_shutdown() override;
  DrainProgress drain_progress() const override;

 private:
  // A park under way: the copy to RAM, or to the disk in disk mode, and the image it becomes.
  struct Parking {
    SlotId slot = kNoSlot;
    ImageRef image;
    bool whole = false;          // of all the slot holds; otherwise a prefix, for a fork
    std::vector<PartRef> fresh;  // parts that get their RAM copy now
    std::unique_ptr<CopyOut> copy;
    std::unique_ptr<StreamOut> stream;
    uint64_t started_ns = 0;
    [[nodiscard]] uint64_t new_bytes() const { return copy ? copy->bytes() : stream->bytes(); }
  };
  struct CheckpointCopy {
    SlotId slot = kNoSlot;
    std::vector<PartRef> parts;
    std::unique_ptr<CopyOut> copy;
  };
  enum class Step : uint8_t { planning, loading_body, parking_donor, parking_outgoing, restoring, settled };
  struct Active {
    TierRequest request;
    RequestState state = RequestState::waiting;
    Step step = Step::planning;
    bool finished = false;  // the owner is no longer interested
    Placement placement;
    std::string failure;
    Plan plan;
    ReadCause cause;  // of the last plan, or of what failed since
    bool cause_fixed = false;
    uint32_t retries = 0;
    uint32_t bodies_loaded = 0;
    bool may_fork_slots = true;
    bool may_cut_slots = true;
    std::set<uint64_t> avoid;
    uint64_t started_ns = 0;
    uint64_t restore_started_ns = 0;
    std::unique_ptr<Parking> parking;
    std::unique_ptr<Restore> restore;
    std::vector<PartRef> held;  // parts of the restore, counted while it runs
    ImageRef source;            // image being restored
    bool pinned = false;
    bool reading = false;  // the pinned source, from the disk
  };
  using ActiveList = std::list<Active>;
  // A session action under way.
  struct SessionAction {
    SessionRequest request;
    SessionView view;
    std::set<RequestId> before;  // came earlier, and may still take the slot
    uint64_t free_since_ns = 0;  // the slot is
    uint64_t started_ns = 0;
    uint64_t moved = 0;
    bool cancelled = false;
    std::unique_ptr<NamedSave> save;
    std::unique_ptr<NamedRestore> restore;
    std::unique_ptr<Parking> parking;  // of what the slot holds before a restore
    bool parked = false;               // or need not be, or cannot
    std::vector<PartRef> held;         // of a save
  };

  // --- placing.cpp
  void advance(Active& active);
  void give_up(Active& active);
  void plan(Active& active);
  void follow_plan(Active& active);
  void follow_slot_plan(Active& active, Slot& source, Slot& target);
  void plan_again(Active& active);
  [[nodiscard]] bool waits_for_parking(const Active& active);
  Slot* choose_slot(const Active& active);
  void claim(Active& active, Slot& slot);
  void park_donor(Active& active, Slot& donor, uint32_t tokens);
  void donor_parked(Active& active);
  void park_outgoing(Active& active);
  void fill_slot(Active& active);
  void continue_in_place(Active& active, Slot& slot);
  [[nodiscard]] size_t open_restores() const;
  [[nodiscard]] Status empty_if_stored(Slot& slot);
  void start_restore(Active& active, Slot& slot);
  std::vector<HostBufferRef> keep_buffers(const std::vector<PartRef>& parts, bool keep);
  std::vector<HostBufferRef> ram_buffers(const std::vector<PartRef>& parts,
                                         const std::function<bool(const Part&)>& wanted);
  [[nodiscard]] uint64_t patience_ns(uint32_t tokens) const;
  std::optional<SkipReason> no_memory_for(const Restore::Request& request);
  void do_without_restore(Active& active, Slot& slot, SkipReason why);
  void restore_done(Active& active, Slot& slot);
  void restore_failed(Active& active, Slot& slot);
  void distrust(const Extent& damaged);
  void forget_disk_only_parts(Active& active);
  void end_restore(Active& active);
  void start_fresh(Active& active, Slot& slot);
  void serve(Active& active, Slot& slot);
  void fail(Active& active, const Error& error);
  void pin_source(Active& active);
  void unpin_source(Active& active);
  void report_placement(const Active& active);
  void log_disk_hit(const Placement& placement);
  [[nodiscard]] Planner::View view() const;
  [[nodiscard]] bool stored_state(const Slot& slot) const;

  // --- parking.cpp
  CopyOut::Ports copy_ports();
  // Null with a reason when the slot's first `tokens` tokens cannot be parked.
  std::unique_ptr<Parking> start_parking(Slot& slot, uint32_t tokens, SkipReason& why);
  ImageRef image_of(const Slot& slot, uint32_t tokens);
  [[nodiscard]] bool held_by_user(ConversationId id) const;
  [[nodiscard]] std::vector<PartRef> kept_checkpoints(const Slot& slot, uint32_t tokens) const;
  bool collect_parts(const Slot& slot, uint32_t tokens, Image& image, std::vector<PartRef>& fresh);
  std::optional<SkipReason> allocate_parts(const std::vector<PartRef>& fresh,
                                           std::vector<CopyOut::Item>& items);
  bool start_copy(Parking& parking, SkipReason& why);
  bool start_stream(Parking& parking, SkipReason& why);
  // False when it is over, well or not.
  bool step_parking(Parking& parking);
  void parked(Parking& parking);
  void log_parked(const Parking& parking, size_t evictions);
  void park_failed(Parking& parking);
  void fit_buffers(const std::vector<PartRef>& parts);
  std::optional<SkipReason> room_for(uint64_t bytes);
  std::optional<SkipReason> working_room(uint64_t bytes);
  [[nodiscard]] bool at_hand(const Part& part) const;
  void skip_parking(const Slot& slot, SkipReason why, uint64_t needed);
  void inherit(Slot& slot, std::vector<PartRef> parts);
  void drop_parts(Slot& slot);
  void drop_parts_behind(Slot& slot, uint32_t tokens);
  void reset(Slot& slot);
  void take_checkpoint(Slot& slot);
  void step_checkpoints();
  void prune_checkpoints(Slot& slot);
  [[nodiscard]] bool parks() const;  // there is a tier to park to, and the model's state can be parked

  // --- writing_out.cpp
  void step_write_policy();
  [[nodiscard]] bool policy_allows(uint64_t since_ns) const;
  void park_in_background(Slot& slot);
  void step_background();
  void let_background_go(SlotId slot);
  void mark_unwritten(Slot& slot);
  void step_shutdown();
  bool park_idle_slots();

  // --- session_actions.cpp
  void step_session();
  [[nodiscard]] bool session_running() const;
  bool slot_is_next(Slot& target);
  void start_session(Slot& target);
  void start_save(Slot& from);
  ImageRef image_to_save(const Slot& from);
  void step_save(Slot& from);
  void start_named_restore();
  void step_named_restore(Slot& target);
  void verify_saved();
  void park_before_restore(Slot& target);
  void move_saved(Slot& target);
  std::vector<HostBufferRef> buffers_for_checkpoints(const Image& image);
  void adopt_restored(Slot& target);
  void named_restore_failed(Slot& target);
  [[nodiscard]] uint32_t usable_tokens(const Slot& target) const;
  [[nodiscard]] bool state_can_be_kept() const;
  [[nodiscard]] std::optional<std::string> session_memory_missing(uint64_t bytes);
  bool free_for_save(uint64_t bytes, std::string& why);
  bool reclaim_one();
  bool drop_slot_copies();
  bool drop_last_checkpoint();
  void session_done();
  void session_failed(const Error& error);
  void session_failed(SessionFault fault, std::string reason);
  void session_over(SessionView::State state);
  std::function<void(uint64_t)> session_moved();

  // --- stack.cpp
  Active* find(RequestId id);
  [[nodiscard]] const Active* find(RequestId id) const;
  void ram_dropped(const RamTier::Entry& entry, RamTier::Drop why);
  DiskTier::Listener disk_listener();
  Status open_disk(const Identity& identity);
  [[nodiscard]] uint64_t working_bytes();
  [[nodiscard]] uint64_t window_bytes() const;
  void remember(const Image& image, ReadReason reason);
  ConversationId new_conversation();
  void publish_gauges();
  bool grow_pools();
  void grow_while_reading(uint64_t duration_ns);
  [[nodiscard]] uint64_t unparked_blocks() const;
  [[nodiscard]] PinnedPool::Backing pool_backing() const;
  [[nodiscard]] Slot& slot(SlotId id) { return slots_.at(static_cast<size_t>(id)); }
  [[nodiscard]] CheckpointRules rules() const;
  [[nodiscard]] uint64_t largest_block_bytes() const;

  TierOptions options_;
  RunClock clock_;
  TierPorts ports_;  // with clock_
  Identity identity_;
  const ModelInfo& model_;
  PrefixIndex index_;
  Ghosts ghosts_;
  CostModel cost_;
  std::unique_ptr<PinnedPool> ram_pool_;
  std::unique_ptr<PinnedPool> staging_pool_;
  uint64_t window_bytes_ = 0;  // disk mode: of the buffers that a park passes through
  UnsettledBuffers unsettled_;
  std::unique_ptr<RamTier> ram_;
  std::unique_ptr<DiskReader> reader_;
  std::unique_ptr<DiskTier> disk_;
  std::string disk_off_reason_;  // a folder was given, but its disk cannot be used
  SlotTable slots_;
  ActiveList active_;
  std::vector<std::unique_ptr<Restore>> lingering_;  // ended; their reads have not
  std::list<CheckpointCopy> checkpoints_;
  std::unique_ptr<Parking> background_;       // of an idle slot: by the write policy, or at shutdown
  std::unique_ptr<PinnedPool> session_pool_;  // what saved sessions pass through
  std::optional<SessionAction> session_;
  std::optional<uint64_t> spill_due_ns_;  // something was parked, first then, and is not handed to the disk
  uint64_t last_active_ns_ = 0;
  DeviceStream out_stream_, in_stream_;
  uint64_t next_key_ = 1;
  uint32_t cheaper_in_a_row_ = 0;  // plans that read although something could have been restored
  bool shutting_down_ = false;
  bool shutdown_parked_ = false;
  std::set<SlotId> shutdown_tried_;  // parked once, or refused
  uint64_t shutdown_base_bytes_ = 0;
  uint64_t shutdown_base_count_ = 0;
};

}  // namespace strata
