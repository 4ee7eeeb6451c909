#include "engine/runtime/writer_thread.hpp"

#include <linux/ioprio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/limits.hpp"

namespace strata {
namespace {

constexpr int kLowestBestEffort = 7;
constexpr uint64_t kStopLookNs = 50'000'000;  // how often background work looks whether it is to stop

// Best effort: without the right to do so the writer merely competes harder.
bool lower_priority() {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  const bool nice = ::setpriority(PRIO_PROCESS, thread, limits::kWriterNice) == 0;
  const bool io = ::syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread,
                            IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, kLowestBestEffort)) == 0;
  return nice && io;
}

}  // namespace

// Holds the transfers of the running job back.
class WriterThread::Gate final : public TransferGate {
 public:
  explicit Gate(WriterThread& owner) : owner_(owner) {}
  void set_deadline(uint64_t deadline_ns) { deadline_ns_ = deadline_ns; }
  void before_transfer() override {
    std::unique_lock lock(owner_.mutex_);
    while (owner_.must_wait(deadline_ns_)) owner_.wait_for_foreground(lock, deadline_ns_);
  }
  void before_background_transfer(const StopFlag& stop) override {
    std::unique_lock lock(owner_.mutex_);
    while (owner_.foreground_ && !owner_.stopping_ && !stop.is_set()) {
      owner_.wait_for_foreground(lock, owner_.clock_.monotonic_ns() + kStopLookNs);
    }
  }

 private:
  WriterThread& owner_;
  uint64_t deadline_ns_ = 0;  // of the running job
};

WriterThread::WriterThread(FileSystem& files, IoQueue& io, Clock& clock, Log& log, Wake wake)
    : files_(files), io_(io), clock_(clock), log_(log), wake_(std::move(wake)), thread_([this] { run(); }) {}

WriterThread::~WriterThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// ---- the engine loop's end

void WriterThread::post(WriteJobRef job) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(job), clock_.monotonic_ns() + limits::kWriterDeadlineNs});
  }
  changed_.notify_all();
}

bool WriterThread::cancel(JobId id) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [&](const Queued& queued) { return queued.job->id == id; });
  if (found == queue_.end()) return false;
  results_.push_back(cancelled_result(std::move(found->job)));
  queue_.erase(found);
  return true;
}

std::vector<WriteResult> WriterThread::collect() {
  const std::lock_guard lock(mutex_);
  return std::exchange(results_, {});
}

void WriterThread::set_foreground(bool reading) {
  {
    const std::lock_guard lock(mutex_);
    foreground_ = reading;
  }
  changed_.notify_all();
}

bool WriterThread::held_back() const {
  const std::lock_guard lock(mutex_);
  return held_back_;
}

// ---- the writer's end

void WriterThread::run() {
  if (!lower_priority())
    log_.write(LogLevel::info, "strata: the disk writer keeps the priority of the engine");
  Gate gate(*this);
  DiskWriter writer(files_, io_, clock_, &gate);
  for (Queued next; next_job(next);) {
    gate.set_deadline(next.deadline_ns);
    WriteResult result = writer.run(next.job);
    next.job
        .reset();  // the result holds the last reference, so that buffers are released where it is dropped
    deliver(std::move(result));
  }
}

// False when the thread is to end. A job that is held back is still in the queue and can be cancelled.
bool WriterThread::next_job(Queued& next) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return false;
    const uint64_t deadline_ns = queue_.front().deadline_ns;
    if (!must_wait(deadline_ns)) break;
    wait_for_foreground(lock, deadline_ns);
  }
  next = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void WriterThread::deliver(WriteResult result) {
  {
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
  }
  if (wake_) wake_();
}

bool WriterThread::must_wait(uint64_t deadline_ns) const {
  return foreground_ && !stopping_ && clock_.monotonic_ns() < deadline_ns;
}

// Until something changed or the deadline passed; the caller asks again.
void WriterThread::wait_for_foreground(std::unique_lock<std::mutex>& lock, uint64_t deadline_ns) {
  const uint64_t now_ns = clock_.monotonic_ns();
  const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
  held_back_ = true;
  changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
  held_back_ = false;
}

}  // namespace strata
