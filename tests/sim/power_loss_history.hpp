// One history of agents that switch over a disk that loses power, decided by a seed: 50 steps, a cut at a
// random point, often in the middle of a job of the writer, a restart on what survived, and on to a second
// cut at the end. Needs no framework: what is wrong comes back as text. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/promises.hpp"
#include "tests/support/stack_world.hpp"

namespace strata::testing {

// What an engine without a cache answers, worked out once for each prompt of all histories.
class ColdAnswers {
 public:
  const Answer& to(const StackWorldOptions& shape, const std::vector<Token>& prompt, uint32_t generate);

 private:
  struct Shape {
    std::unique_ptr<StackWorld> world;
    std::map<std::pair<std::vector<Token>, uint32_t>, Answer> known;
  };
  std::map<std::string, Shape> shapes_;
};

// A sync that is left out, to show that it is missed.
enum class ForgottenSync : uint8_t {
  none,
  session_data,    // of extents before their index
  index_data,      // of the index before its rename
  created_name,    // of a new session file before its index
  published_name,  // of the index after its rename
  removed_name,    // of an index before its bytes are given back
};

struct PowerLossCounts {
  uint64_t histories = 0, cuts = 0, cuts_in_a_job = 0, cuts_at_start = 0, unsynced = 0;
  uint64_t publications = 0, removals = 0, compactions = 0, survived = 0;
  uint64_t restored = 0, refused = 0;  // conversations after a cut: taken in, or refused with a reason
  uint64_t compared = 0, reused = 0;   // answers after a cut, logit by logit; of those, with reused tokens
  std::map<std::string, uint64_t> refusals;
  void add(const PowerLossCounts& other);
  [[nodiscard]] std::string text() const;
};

class PowerLossHistory {
 public:
  PowerLossHistory(uint64_t seed, ColdAnswers& cold, ForgottenSync forgotten = ForgottenSync::none);

  // Empty when every promise was kept; otherwise what was not, with the seed and the steps up to there.
  std::string run();
  [[nodiscard]] const PowerLossCounts& counts() const { return counts_; }

 private:
  struct Agent {
    std::vector<Token> tokens;
    uint64_t seed = 0;  // of what it says first
  };

  [[nodiscard]] ForgottenSync sync_of(DiskChange change, const std::string& path) const;
  void cut_soon();
  void step();
  void turn();
  void fork();
  void drain_and_restart();
  void note(std::string what);
  void wrong(std::string what);
  void compare(const std::vector<Token>& prompt, const Answer& answer);
  void check_space();
  void cut_and_come_back();
  void survive();
  bool start();
  void check_taken_in(const std::map<ConversationId, Manifest>& before);
  void restore_some();
  [[nodiscard]] bool expired(const Manifest& manifest);
  [[nodiscard]] uint64_t below(uint64_t limit) { return random_.below(limit); }
  [[nodiscard]] bool one_in(uint64_t count) { return below(count) == 0; }
  static StackWorldOptions options_for(uint64_t seed, PowerLossFileSystem& files);

  uint64_t seed_;
  FakeRandom random_;
  ColdAnswers& cold_;
  PowerLossFileSystem files_;
  Promises promises_;
  StackWorldOptions options_;
  std::unique_ptr<StackWorld> world_;
  std::vector<Agent> agents_;
  std::map<std::string, Promises::Bytes> foreign_;
  std::vector<std::string> steps_;
  std::string failure_;
  PowerLossCounts counts_;
};

}  // namespace strata::testing
