// Port: work that blocks, done elsewhere so that the engine loop goes on. Ownership: what a piece of work
// uses stays valid until it ran or drain() returned. Thread-safety: post and drain from one thread. Pieces
// run one after the other, in the order they were posted.
#pragma once

#include <functional>

namespace strata {

class Worker {
 public:
  virtual ~Worker() = default;
  virtual void post(std::function<void()> work) = 0;
  // Waits until everything that was posted ran.
  virtual void drain() = 0;
};

}  // namespace strata
