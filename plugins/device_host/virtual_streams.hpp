// Streams and events of a device that does not exist: work is queued and carried out late.
//
// Nothing moves when a copy is queued. Copies are carried out when an event is asked for or waited for, and
// now and then by later calls, in stream order, but in any order across streams; an event says "done" only
// when it was asked a few times. Whoever reads bytes without waiting for the event, or changes the source too
// early, gets wrong bytes. All choices come from a seed. Ownership: streams and events belong to the caller
// until destroyed. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "plugins/abi/strata_device.h"

namespace strata::device_host {

class Stream;

// One recording of an event: reached when everything queued on its stream before it was carried out.
struct Mark {
  Stream* stream = nullptr;
  bool reached = false;
  bool failed = false;  // a copy before it failed
  uint64_t asked = 0;   // how often "done?" was answered with no
  uint64_t delay = 0;   // how often it has to be
};

struct Event {
  std::shared_ptr<Mark> mark;  // null: never recorded
};

struct Work {
  enum class Kind : uint8_t { copy, mark, wait } kind = Kind::copy;
  strata_copy copy{};
  std::shared_ptr<Mark> mark;
};

class Stream {
 public:
  std::deque<Work> queue;
  bool failed = false;  // sticky: the device is in an error state for this stream
};

struct StreamOptions {
  uint64_t seed = 1;
  bool fixed_delay = false;  // delay counts for every event; otherwise 1 to 3, by the seed
  uint64_t delay = 0;
  uint64_t fail_executed = 0;  // the n-th copy carried out fails half way; 0: none
};

class VirtualStreams {
 public:
  explicit VirtualStreams(const StreamOptions& options) : options_(options), random_(options.seed) {}

  Stream* create();
  void destroy(Stream* stream);  // what it holds is carried out first
  [[nodiscard]] bool knows(const Stream* stream) const;

  void copy(Stream* stream, const strata_copy& copy);
  void record(Stream* stream, Event* event);
  void wait_on(Stream* stream, const Event& event);

  enum class Answer : uint8_t { no, yes, failed };
  Answer query(const Event& event);
  Answer wait(const Event& event);
  void finish_all();

 private:
  uint64_t random(uint64_t below);
  void run_all(Stream* stream);
  void carry_out_front(Stream* stream);
  void step_another(const Stream* except);
  void run_until(const std::shared_ptr<Mark>& mark);
  static bool blocked(const Stream& stream);

  StreamOptions options_;
  uint64_t random_;
  uint64_t executed_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;  // by creation: the choices must not depend on addresses
};

}  // namespace strata::device_host
