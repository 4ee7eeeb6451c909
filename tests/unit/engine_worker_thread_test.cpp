// The thread that reads and writes saved sessions.
#include "engine/runtime/worker_thread.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace strata {
namespace {

TEST(SessionWorker, RunsInOrderElsewhereAndWakesAfterEach) {
  std::atomic<int> woken{0};
  std::vector<int> order;
  std::thread::id where;
  {
    WorkerThread worker([&] { ++woken; });
    for (int i = 0; i < 100; ++i)
      worker.post([&order, &where, i] {
        order.push_back(i);
        where = std::this_thread::get_id();
      });
    worker.drain();
    ASSERT_EQ(order.size(), 100u);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
    EXPECT_NE(where, std::this_thread::get_id());
    for (int i = 0; i < 10; ++i) worker.post([&order, i] { order.push_back(i); });
  }
  EXPECT_EQ(order.size(), 110u) << "what is queued runs before it ends";
  EXPECT_EQ(woken, 110);
}

}  // namespace
}  // namespace strata
