// A WriteQueue whose jobs run only when a test says so, on the test's own thread: the writer thread in slow
// motion. hang(): a disk that takes for ever; jobs start (and can no longer be cancelled) but never end.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/disk_writer.hpp"

namespace strata::testing {

class SteppedWriteQueue final : public WriteQueue {
 public:
  explicit SteppedWriteQueue(DiskWriter& writer) : writer_(writer) {}

  // ---- for tests
  // The next job is under way: no longer cancellable, not carried out yet. False when one is already or none
  // waits.
  bool start_one() {
    if (started_ || waiting_.empty()) return false;
    started_ = std::move(waiting_.front());
    waiting_.pop_front();
    return true;
  }
  // Carries out the started job, or the next one. False when there is none or the disk hangs.
  bool run_one() {
    start_one();
    if (!started_ || hanging_) return false;
    WriteJobRef job = *std::exchange(started_, std::nullopt);
    results_.push_back(writer_.run(job));
    return true;
  }
  size_t run_all() {
    size_t done = 0;
    while (run_one()) ++done;
    return done;
  }
  void hang(bool hanging) { hanging_ = hanging; }
  [[nodiscard]] size_t waiting() const { return waiting_.size(); }
  [[nodiscard]] bool busy() const { return started_.has_value(); }
  [[nodiscard]] bool foreground() const { return foreground_; }

  // ---- WriteQueue
  void post(WriteJobRef job) override { waiting_.push_back(std::move(job)); }
  bool cancel(JobId id) override {
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const WriteJobRef& job) { return job->id == id; });
    if (found == waiting_.end()) return false;
    results_.push_back(cancelled_result(*found));
    waiting_.erase(found);
    return true;
  }
  std::vector<WriteResult> collect() override { return std::exchange(results_, {}); }
  void set_foreground(bool reading) override { foreground_ = reading; }

 private:
  DiskWriter& writer_;
  std::deque<WriteJobRef> waiting_;
  std::optional<WriteJobRef> started_;
  std::vector<WriteResult> results_;
  bool hanging_ = false;
  bool foreground_ = false;
};

}  // namespace strata::testing
