// EventWriter: events as whole lines on a file descriptor, collected and written once per flush. When the
// other side is gone (EPIPE or any other failure) closed() becomes true and the rest is thrown away.
// Ownership: the descriptor belongs to the caller. One thread.
#pragma once

#include <string>

#include "engine/runtime/event_sink.hpp"

namespace strata {

class EventWriter final : public EventSink {
 public:
  explicit EventWriter(int output) : output_(output) {}
  void emit(lines::Event event) override;
  void flush() override;
  [[nodiscard]] bool closed() const { return closed_; }

 private:
  const int output_;
  std::string pending_;
  bool closed_ = false;
};

}  // namespace strata
