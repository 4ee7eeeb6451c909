// Mailbox: messages from other threads to the engine loop, in order. Bounded: a sender waits while it is
// full, the receiver never waits for a sender longer than it asks to. Thread-safe; one receiver.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace strata {

template <class Message>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) {}

  // False when the mailbox is closed: the message is dropped.
  bool post(Message message) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return closed_ || messages_.size() < capacity_; });
    if (closed_) return false;
    messages_.push_back(std::move(message));
    arrived_.notify_one();
    return true;
  }

  [[nodiscard]] std::deque<Message> take_all() {
    const std::lock_guard lock(mutex_);
    room_.notify_all();
    return std::exchange(messages_, {});
  }

  // Returns when a message is there, wake() was called, or the time is over.
  void wait(std::chrono::nanoseconds at_most) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, at_most, [this] { return woken_ || !messages_.empty(); });
    woken_ = false;
  }

  // Ends the receiver's present or next wait.
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    arrived_.notify_one();
  }

  // Later and waiting posts return false.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    room_.notify_all();
    arrived_.notify_one();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable arrived_, room_;
  std::deque<Message> messages_;
  bool closed_ = false;
  bool woken_ = false;
};

}  // namespace strata
