// SES-1 on a disk that loses power: after a cut at any call, in whatever order effects reach the disk, the
// name holds the old conversation or the new one, whole; and once a save said that it is done, the new one.
#include <gtest/gtest.h>

#include "core/folder_check.hpp"
#include "tests/support/power_loss_file_system.hpp"
#include "tests/support/session_pair.hpp"

namespace strata::testing {
namespace {

constexpr const char* kName = "chat.sess";
constexpr const char* kPath = "/saved/chat.sess";
constexpr uint32_t kOld = 44;
constexpr uint32_t kNew = 68;

class SavedSessionPowerLoss : public SessionPair {
 protected:
  // Saves a conversation, goes on with it, and saves it again; the power goes in that save's call `cut`.
  // Whether the second save was done before.
  bool save_twice(PowerLossFileSystem& disk, uint64_t cut) {
    StackWorldOptions options = session_options();
    options.files = &disk;
    make(options);
    const auto prompt = prompt_of(1, 40);
    const Answer first = ask(prompt, in_slot(0));
    EXPECT_TRUE(save(0, kPath).done());
    ask(next_prompt(prompt, first, 2, 20), in_slot(0));
    disk.cut_in(cut);
    const Outcome second = save(0, kPath);
    world_.reset();
    return second.done();
  }
  // The tokens of the conversation that the name holds, after every byte of it was checked.
  static uint32_t held(PowerLossFileSystem& disk) {
    const auto manifest = read_stored_manifest(disk, "/saved", kName);
    EXPECT_TRUE(manifest.ok()) << manifest.error().message;
    const Verification checked = verify_stored(disk, "/saved", kName, [](uint64_t) {});
    EXPECT_TRUE(checked.problems.empty()) << checked.problems.front().detail;
    return manifest.ok() ? manifest->head.token_count : 0;
  }
};

TEST_F(SavedSessionPowerLoss, SES1_TheNameHoldsTheOldOrTheNewConversationWhole) {
  bool done = false;
  uint64_t cuts = 0;
  for (uint64_t cut = 1; !done; ++cut) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE("cut " + std::to_string(cut) + " seed " + std::to_string(seed));
      PowerLossFileSystem disk;
      done = save_twice(disk, cut);
      if (!disk.off()) disk.cut_now();
      disk.come_back(seed);
      const uint32_t tokens = held(disk);
      EXPECT_TRUE(tokens == kNew || (!done && tokens == kOld)) << tokens;
    }
    ++cuts;
  }
  EXPECT_GT(cuts, 10u) << "every changing call of a save was the last one once";
}

TEST_F(SavedSessionPowerLoss, SES1_WithoutTheFlushOfItsDataAFileWouldNotBeWhole) {
  bool damaged = false;
  for (uint64_t seed = 1; seed <= 40 && !damaged; ++seed) {
    PowerLossFileSystem disk;
    disk.forgets_sync = [](DiskChange change, const std::string&) { return change == DiskChange::sync_data; };
    EXPECT_TRUE(save_twice(disk, 1000));
    disk.cut_now();
    disk.come_back(seed);
    damaged = !read_stored_manifest(disk, "/saved", kName).ok() ||
              !verify_stored(disk, "/saved", kName, [](uint64_t) {}).problems.empty();
  }
  EXPECT_TRUE(damaged) << "the control: this disk does lose what was not flushed";
}

}  // namespace
}  // namespace strata::testing
