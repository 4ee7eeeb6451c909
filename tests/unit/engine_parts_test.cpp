// Small parts of the engine process: sharing, mailbox, watchdog, line splitting, report lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "engine/protocol/line_splitter.hpp"
#include "engine/runtime/mailbox.hpp"
#include "engine/runtime/prompt_share.hpp"
#include "engine/runtime/request_report.hpp"
#include "engine/runtime/watchdog.hpp"
#include "tests/support/engine_bench.hpp"

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(EnginePromptShare, IsEvenAndGivesAwayWhatOneCannotTake) {
  EXPECT_THAT(share_prompt_tokens(64, std::vector<uint32_t>{1000, 1000}, 0), ElementsAre(32, 32));
  EXPECT_THAT(share_prompt_tokens(64, std::vector<uint32_t>{10, 1000}, 0), ElementsAre(10, 54));
  EXPECT_THAT(share_prompt_tokens(64, std::vector<uint32_t>{10, 20}, 0), ElementsAre(10, 20));
  EXPECT_THAT(share_prompt_tokens(2, std::vector<uint32_t>{5, 5, 5}, 1), ElementsAre(0, 1, 1));
  EXPECT_TRUE(share_prompt_tokens(64, {}, 3).empty());
}

TEST(EnginePromptShare, NeverGivesMoreThanWantedOrBudgetedAndNeverLess) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> wanted(random() % 6);
    for (uint32_t& want : wanted) want = random() % 100;
    const uint32_t budget = random() % 200;
    const auto given = share_prompt_tokens(budget, wanted, random());
    uint32_t total = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_LE(given[i], wanted[i]);
      total += given[i];
    }
    EXPECT_EQ(total, std::min(budget, std::accumulate(wanted.begin(), wanted.end(), 0U)));
  }
}

TEST(EngineMailbox, KeepsOrderAndHoldsTheSenderBackWhenFull) {
  Mailbox<int> mailbox(2);
  std::thread sender([&] {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(mailbox.post(i));
  });
  std::vector<int> seen;
  while (seen.size() < 100) {
    mailbox.wait(std::chrono::seconds(10));
    const auto taken = mailbox.take_all();
    EXPECT_LE(taken.size(), 2U);
    seen.insert(seen.end(), taken.begin(), taken.end());
  }
  sender.join();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(EngineMailbox, ClosingFreesAWaitingSender) {
  Mailbox<int> mailbox(1);
  ASSERT_TRUE(mailbox.post(1));
  std::future<bool> second = std::async(std::launch::async, [&] { return mailbox.post(2); });
  mailbox.close();
  EXPECT_FALSE(second.get());
}

TEST(EngineWatchdog, ComplainsOnlyWhileARequestIsOpen) {
  ProgressWatch watch(100);
  watch.beat(1000, false);
  EXPECT_FALSE(watch.stuck(5000));
  watch.beat(5000, true);
  EXPECT_FALSE(watch.stuck(5100));
  EXPECT_TRUE(watch.stuck(5101));
  watch.beat(5101, true);
  EXPECT_FALSE(watch.stuck(5150));
  watch.beat(5150, false);
  EXPECT_FALSE(watch.stuck(9000));
}

TEST(EngineWatchdog, ItsThreadCallsOnce) {
  testing::FakeClock clock;
  std::promise<void> called;
  Watchdog watchdog(clock, 8'000'000, [&] { called.set_value(); });  // a second call would throw
  watchdog.beat(true);
  clock.advance(100'000'000);
  EXPECT_EQ(called.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(EngineWatchdog, EndsWithoutACall) {
  testing::FakeClock clock;
  Watchdog watchdog(clock, 60'000'000'000, [] { FAIL(); });
  watchdog.beat(true);
}

struct Seen {
  std::vector<std::string> lines;
  std::vector<bool> cut;
  LineSplitter splitter;
  explicit Seen(size_t limit)
      : splitter(limit, [this](std::string_view line, bool was_cut) {
          lines.emplace_back(line);
          cut.push_back(was_cut);
        }) {}
};

TEST(EngineLineSplitter, JoinsPiecesAndSplitsLines) {
  Seen seen(100);
  for (const char* piece : {"ab", "c\nde\r\n", "\n", "tail"}) seen.splitter.feed(piece);
  EXPECT_THAT(seen.lines, ElementsAre("abc", "de", ""));
  seen.splitter.end();
  EXPECT_EQ(seen.lines.back(), "tail");
}

TEST(EngineLineSplitter, ALineOverTheLimitIsReportedOnceAndSkipped) {
  Seen seen(4);
  for (const char* piece : {"12345", "6789", "0\nok\n", "1234\n"}) seen.splitter.feed(piece);
  EXPECT_THAT(seen.lines, ElementsAre("1234", "ok", "1234"));
  EXPECT_THAT(seen.cut, ElementsAre(true, false, false));
}

RequestReport report_of(Tier tier, uint32_t reused, ReadCause cause) {
  RequestReport report;
  report.id = 3;
  report.prompt_tokens = 165'000;
  report.read_tokens = 165'000 - reused;
  report.generated_tokens = 12;
  report.read_ns = 1'500'000'000;
  report.decode_ns = 240'000'000;
  report.placement = {1, reused, tier, cause, 3'349'000'000, 1, 1};
  return report;
}

// Golden: dashboards parse these (docs/operations.md).
TEST(EngineReportGolden, RequestLines) {
  EXPECT_EQ(
      log_line(report_of(Tier::disk, 163'500, {ReadReason::none, 0})),
      "strata: prompt 165000 tokens = 163500 reused + 1500 read in 1500.0 ms (1000.0 tok/s), 12 generated in "
      "240.0 ms "
      "(50.0 tok/s), because none, reused from the disk in 3.3 s");
  EXPECT_EQ(
      log_line(report_of(Tier::ram, 163'500, {ReadReason::prefix_changed, 163'500})),
      "strata: prompt 165000 tokens = 163500 reused + 1500 read in 1500.0 ms (1000.0 tok/s), 12 generated in "
      "240.0 ms "
      "(50.0 tok/s), because prefix_changed@163500");
  RequestReport cancelled = report_of(Tier::none, 0, {ReadReason::evicted, 0});
  cancelled.finish = lines::Finish::cancel;
  EXPECT_EQ(log_line(cancelled),
            "strata: prompt 165000 tokens = 0 reused + 165000 read in 1500.0 ms (110000.0 tok/s), 12 "
            "generated in 240.0 ms "
            "(50.0 tok/s) until cancelled, because evicted");
}

TEST(EngineReport, CountsWhatWasReadByReason) {
  Metrics metrics;
  count(metrics, report_of(Tier::disk, 1000, {ReadReason::no_checkpoint, 0}));
  count(metrics, report_of(Tier::none, 0, {ReadReason::fresh, 0}));
  EXPECT_EQ(metrics.value("strata_read_tokens_total", "reason=\"no_checkpoint\""), 164'000);
  EXPECT_EQ(metrics.value("strata_read_tokens_total", "reason=\"new\""), 165'000);
  EXPECT_EQ(metrics.value("strata_requests_total", "finish=\"stop\""), 2);
  EXPECT_EQ(metrics.value("llamacpp:prompt_tokens_total"), 329'000);
  EXPECT_EQ(metrics.value("llamacpp:tokens_predicted_total"), 24);
  EXPECT_DOUBLE_EQ(metrics.value("llamacpp:predicted_tokens_seconds"), 50.0);
}

}  // namespace
}  // namespace strata
