// SessionLoop: the engine process between READY and BYE. Takes messages from the mailbox, steps the engine,
// writes events, and shuts the tiers down at the end (DISK-7). No input can end it but QUIT, SIGTERM and the
// end of the input.
//
// QUIT and SIGTERM cancel what runs; at the end of the input what runs is finished as long as somebody reads
// the answers. A second SIGTERM during the shutdown ends it without waiting for the remaining writes. DRAIN
// lines are written once QUIT or the end of the input was seen: a server that did not ask for the end would
// take them for a fault.
//
// Ownership: all ports outlive the loop. One thread (the engine loop's); messages come from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/metrics.hpp"
#include "engine/protocol/command_reader.hpp"
#include "engine/protocol/event_writer.hpp"
#include "engine/protocol/slot_actions.hpp"
#include "engine/runtime/engine.hpp"
#include "tiers/tier_stack.hpp"

namespace strata {

struct SessionPorts {
  Engine& engine;
  TierStack& tiers;
  Clock& clock;
  Log& log;
  Metrics& metrics;
  EventWriter& output;
  InputMailbox& mailbox;
  uint32_t context_tokens = 0;
  std::function<void(bool open_requests)> beat = [](bool) {};  // the watchdog's
};

class SessionLoop {
 public:
  explicit SessionLoop(SessionPorts ports)
      : ports_(std::move(ports)), actions_(ports_.tiers, ports_.output) {}

  // Returns after BYE; false when a slot was lost (FATAL).
  bool run();

 private:
  enum class Ending : uint8_t { no, when_done, now };

  void serve();
  void drain();
  void take_messages();
  void handle(Input& input);
  void handle(lines::Generate& ask);
  void handle(const lines::Stop& stop) { ports_.engine.stop(stop.id); }
  void handle(const lines::SlotAction& action) { actions_.ask(action); }
  void handle(const lines::QueryStatus& query);
  void handle(const lines::ListSessions& query);
  void handle(const lines::Forget& forget);
  void handle(const lines::Pin& pin);
  void handle(const lines::Quit& quit);
  void terminate();
  void input_ended();
  void refuse(const Error& error);
  void report_drain(const DrainProgress& progress, bool last);

  SessionPorts ports_;
  SlotActions actions_;
  Ending ending_ = Ending::no;
  bool asked_ = false;  // QUIT or end of the input, not a signal alone
  bool draining_ = false;
  bool terminated_ = false;  // SIGTERM was seen
  bool hurry_ = false;
  uint64_t drain_report_ns_ = 0;
  std::optional<std::pair<uint64_t, uint64_t>> drain_reported_;  // done and total
};

}  // namespace strata
