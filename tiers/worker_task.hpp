// One piece of work on the worker, and whether it is over. Without a worker it is done at once, by the
// caller. Ownership: its result is shared with the work. One thread, the one that starts it. Never waits with
// a worker.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/result.hpp"
#include "core/worker.hpp"

namespace strata {

class WorkerTask {
 public:
  void start(Worker* worker, std::function<Status()> work) {
    state_ = std::make_shared<State>();
    const auto run = [state = state_, work = std::move(work)] {
      state->status = work();
      state->over.store(true, std::memory_order_release);
    };
    if (worker != nullptr)
      worker->post(run);
    else
      run();
  }
  [[nodiscard]] bool started() const { return state_ != nullptr; }
  [[nodiscard]] bool running() const { return started() && !state_->over.load(std::memory_order_acquire); }
  // Of a task that is over; it can be started anew then.
  Status take() {
    const auto state = std::exchange(state_, nullptr);
    return std::move(state->status);
  }

 private:
  struct State {
    std::atomic<bool> over{false};
    Status status;
  };
  std::shared_ptr<State> state_;
};

}  // namespace strata
