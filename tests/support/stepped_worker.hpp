// A Worker whose work runs only when a test says so, on the test's own thread.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "core/worker.hpp"

namespace strata::testing {

class SteppedWorker final : public Worker {
 public:
  void post(std::function<void()> work) override { waiting_.push_back(std::move(work)); }
  void drain() override {
    while (run_one()) {
    }
  }
  bool run_one() {
    if (waiting_.empty()) return false;
    const auto work = std::move(waiting_.front());
    waiting_.pop_front();
    work();
    return true;
  }
  [[nodiscard]] size_t waiting() const { return waiting_.size(); }

 private:
  std::deque<std::function<void()>> waiting_;
};

}  // namespace strata::testing
