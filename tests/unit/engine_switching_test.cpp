// The whole engine with all its threads at random switching over a real folder: the engine loop, the writer,
// the threads of the disk queues, of the device and of the model, the worker of saved sessions, and a client.
// Budgets are so small that everything is parked, spilled, evicted and fetched all the time; the engine ends
// and starts again on the same folder. Answers are exact (invariant 1); under the thread sanitizer nothing
// races. STRATA_SWITCHING_SECONDS says how long; tools/switching runs it for minutes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "core/limits.hpp"
#include "engine/protocol/session_loop.hpp"
#include "engine/runtime/engine_host.hpp"
#include "tests/support/fake_random.hpp"
#include "tests/support/recording_log.hpp"
#include "tests/support/stack_world.hpp"
#include "tests/support/temporary_folder.hpp"

namespace strata::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kGenerate = 4;
constexpr size_t kAtOnce = 3;
constexpr uint32_t kLongest = 420;
constexpr int kTurnsOfALife = 60;

// One engine from READY to BYE, on a thread of its own; lines come out of a pipe.
class EngineLife {
 public:
  EngineLife(const EngineSettings& settings, RecordingLog& log) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    read_end_ = ends[0];
    thread_ = std::thread([this, settings, &log, output = ends[1]] {
      run(settings, log, output);
      ::close(output);
    });
  }
  ~EngineLife() {
    (void)mailbox_.post(Terminate{});
    while (next_event().has_value()) {
    }
    thread_.join();
    ::close(read_end_);
  }
  EngineLife(const EngineLife&) = delete;
  EngineLife& operator=(const EngineLife&) = delete;

  void post(lines::Command command) { EXPECT_TRUE(mailbox_.post(std::move(command))); }
  // Waits for it; null after the last.
  std::optional<lines::Event> next_event() {
    size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos) {
      char buffer[4096];
      const ssize_t got = ::read(read_end_, buffer, sizeof buffer);
      if (got <= 0) return std::nullopt;
      text_.append(buffer, static_cast<size_t>(got));
    }
    auto event = lines::decode_event(text_.substr(0, end));
    text_.erase(0, end + 1);
    EXPECT_TRUE(event.ok()) << event.error().message;
    if (!event.ok()) return std::nullopt;
    return std::move(*event);
  }

 private:
  void run(const EngineSettings& settings, RecordingLog& log, int output) {
    auto host = EngineHost::open(settings, log, [this] { mailbox_.wake(); });
    ASSERT_TRUE(host.ok()) << host.error().message;
    EngineHost& parts = **host;
    EventWriter events(output);
    Engine engine({parts.model(), parts.tiers(), parts.clock(), parts.random(), log, parts.metrics(), events},
                  {});
    SessionLoop({engine, parts.tiers(), parts.clock(), log, parts.metrics(), events, mailbox_,
                 settings.context_tokens})
        .run();
  }

  InputMailbox mailbox_{64};
  int read_end_ = -1;
  std::string text_;
  std::thread thread_;
};

struct Agent {
  std::vector<Token> prompt;
  bool verifies = false;  // asks the same again without the cache
};

struct Open {
  size_t agent = 0;
  bool stopped = false;
  std::vector<Token> answer;
};

class EngineSwitching : public ::testing::Test {
 protected:
  EngineSwitching() {
    settings_.model_options = {{"layout", "hybrid"}, {"layers", "4"},   {"dim", "32"},
                               {"heads", "2"},       {"kv_heads", "1"}, {"ffn", "32"},
                               {"window", "24"},     {"threads", "2"},  {"tokens_per_block", "16"}};
    settings_.context_tokens = 512;
    settings_.slots = 2;
    settings_.io = "posix";  // threads that the sanitizer sees
    settings_.tiers = ram_and_disk(600 << 10, 2 << 20);
    settings_.tiers.disk_folder = folder_ / "conversations";
    settings_.tiers.checkpoints_every_tokens = 64;
    settings_.tiers.session_min_free_bytes = 0;
    for (uint64_t i = 0; i < 8; ++i) agents_.push_back({followed_by(prompt_of(1, 90), 10 + i, 60)});
  }

  void live(int turns) {
    EngineLife engine(settings_, log_);
    while (turns > 0 && !HasFailure()) {
      while (open_.size() < kAtOnce) ask(engine);
      meddle(engine);
      auto event = engine.next_event();
      ASSERT_TRUE(event.has_value()) << "the engine is gone";
      if (const auto* token = std::get_if<lines::TokenLine>(&*event)) {
        open_.at(token->id).answer.push_back(token->token);
      } else if (const auto* done = std::get_if<lines::Done>(&*event)) {
        answered(*done);
        --turns;
      } else if (std::holds_alternative<lines::Saved>(*event)) {
        ++saved_;
      } else if (std::holds_alternative<lines::Restored>(*event)) {
        ++restored_;
      } else if (const auto* refused = std::get_if<lines::SlotError>(&*event)) {
        ASSERT_EQ(refused->kind, "invalid")
            << refused->reason;  // an empty slot, a file that is not there yet
      } else if (const auto* failed = std::get_if<lines::Failed>(&*event)) {
        ASSERT_FALSE(failed->id.has_value())
            << failed->reason;  // a conversation that is in use cannot be forgotten
      }
    }
    open_.clear();  // what is open now ends with the engine
  }

  void ask(EngineLife& engine) {
    size_t who = random_.below(agents_.size());
    const auto busy = [&] {
      return std::any_of(open_.begin(), open_.end(),
                         [&](const auto& one) { return one.second.agent == who; });
    };
    while (busy()) who = (who + 1) % agents_.size();
    Agent& agent = agents_[who];
    lines::Generate request;
    request.id = ++last_id_;
    request.max_tokens = kGenerate;
    request.ignore_end = true;
    request.borders = {90};
    request.use_cache = !agent.verifies;
    request.keep = random_.below(10) != 0;
    request.tokens = agent.prompt;
    open_[request.id].agent = who;
    engine.post(std::move(request));
  }

  void meddle(EngineLife& engine) {
    switch (random_.below(60)) {
      case 0:
        open_.begin()->second.stopped = true;
        engine.post(lines::Stop{open_.begin()->first});
        return;
      case 1:
        engine.post(lines::ListSessions{});
        return;
      case 2:
        engine.post(lines::QueryStatus{});
        return;
      case 3:
        engine.post(
            lines::SlotAction{lines::SlotActionKind::erase, static_cast<SlotId>(random_.below(2)), {}});
        return;
      case 4:
      case 5:
        engine.post(
            lines::SlotAction{lines::SlotActionKind::save, static_cast<SlotId>(random_.below(2)), named()});
        return;
      case 6:
      case 7:
        engine.post(lines::SlotAction{lines::SlotActionKind::restore, static_cast<SlotId>(random_.below(2)),
                                      named()});
        return;
      default:
        return;
    }
  }
  // One of a few files, of any life.
  std::string named() { return folder_ / ("saved/" + std::to_string(random_.below(4)) + ".sess"); }

  // The same prompt has the same answer, from the cache and without.
  void answered(const lines::Done& done) {
    const Open one = open_.at(done.id);
    open_.erase(done.id);
    if (one.stopped || done.finish != lines::Finish::length) return;
    Agent& agent = agents_[one.agent];
    ++turns_;
    reused_ += done.reused > 0 ? 1 : 0;
    from_disk_ += done.tier == Tier::disk ? 1 : 0;
    if (agent.verifies) {
      ASSERT_EQ(one.answer, asked_.at(agent.prompt));
      ++verified_;
    } else {
      asked_[agent.prompt] = one.answer;
      agent.verifies = random_.below(5) == 0;
      if (agent.verifies) return;
    }
    agent.verifies = false;
    asked_.erase(agent.prompt);
    agent.prompt.insert(agent.prompt.end(), one.answer.begin(), one.answer.end());
    agent.prompt =
        followed_by(std::move(agent.prompt), random_.next(), 4 + static_cast<uint32_t>(random_.below(30)));
    if (agent.prompt.size() > kLongest) agent.prompt = followed_by(prompt_of(1, 90), random_.next(), 40);
  }

  TemporaryFolder folder_;
  RecordingLog log_;
  EngineSettings settings_;
  FakeRandom random_{3};
  std::vector<Agent> agents_;
  std::map<uint64_t, Open> open_;
  std::map<std::vector<Token>, std::vector<Token>> asked_;
  uint64_t last_id_ = 0;
  uint64_t turns_ = 0, reused_ = 0, from_disk_ = 0, verified_ = 0, saved_ = 0, restored_ = 0;
};

TEST_F(EngineSwitching, StaysExactWithAllThreadsAtWork) {
  const char* seconds = std::getenv("STRATA_SWITCHING_SECONDS");
  const auto until = Clock::now() + std::chrono::seconds(seconds == nullptr ? 2 : std::atoi(seconds));
  uint64_t lives = 0;
  do {
    live(kTurnsOfALife);
    ++lives;
  } while (!HasFailure() && (lives < 2 || Clock::now() < until));
  std::printf(
      "%llu lives, %llu turns: %llu with reused tokens, %llu from the disk, %llu verified without the "
      "cache; %llu saved and %llu restored by name\n",
      static_cast<unsigned long long>(lives), static_cast<unsigned long long>(turns_),
      static_cast<unsigned long long>(reused_), static_cast<unsigned long long>(from_disk_),
      static_cast<unsigned long long>(verified_), static_cast<unsigned long long>(saved_),
      static_cast<unsigned long long>(restored_));
  EXPECT_GT(reused_, turns_ / 2);
  EXPECT_GT(from_disk_, 0u);
  EXPECT_GT(verified_, 0u);
  EXPECT_GT(saved_, 0u);
  EXPECT_GT(restored_, 0u);
}

}  // namespace
}  // namespace strata::testing
