// Port: where the engine's answers go. Events of one request come in order; flush() hands what was emitted
// on. One thread (the engine loop). Units and fields: core/lines.hpp.
#pragma once

#include "core/lines.hpp"

namespace strata {

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void emit(lines::Event event) = 0;
  virtual void flush() = 0;
};

}  // namespace strata
