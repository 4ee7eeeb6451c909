// The disk of the power-loss test keeps what was synced, and nothing else for sure; and what the histories
// found with it, one test each (B-6).
#include <gtest/gtest.h>

#include <set>

#include "tests/support/power_loss_file_system.hpp"
#include "tests/support/stack_world.hpp"

namespace strata::testing {
namespace {

using Survival = PowerLossFileSystem::Survival;

class PowerLossDisk : public ::testing::Test {
 protected:
  PowerLossDisk() {
    EXPECT_TRUE(files_.create_directory("/d").ok());
    EXPECT_TRUE(files_.sync_directory("/").ok());
  }
  FileHandle create(const std::string& path, uint64_t bytes, std::byte value) {
    const FileHandle file = *files_.open(path, OpenMode::create_exclusive, Caching::buffered);
    write(file, 0, bytes, value);
    return file;
  }
  void write(FileHandle file, uint64_t offset, uint64_t bytes, std::byte value) {
    EXPECT_TRUE(files_.write_at(file, std::vector<std::byte>(bytes, value), offset).ok());
  }
  // The first byte of each page, '-' for zero.
  std::string pages(const std::string& path) {
    const auto bytes = files_.content(path);
    if (!bytes) return "gone";
    std::string text;
    for (size_t at = 0; at < bytes->size(); at += 4096)
      text += (*bytes)[at] == std::byte{0} ? '-' : static_cast<char>((*bytes)[at]);
    return text;
  }
  // What may be found after a cut in the state that `prepare` makes.
  std::set<std::string> outcomes(const std::function<void()>& prepare, const std::string& path) {
    std::set<std::string> found;
    for (uint64_t seed = 0; seed < 400; ++seed) {
      files_ = PowerLossFileSystem();
      EXPECT_TRUE(files_.create_directory("/d").ok());
      EXPECT_TRUE(files_.sync_directory("/").ok());
      prepare();
      files_.come_back(seed);
      found.insert(pages(path));
    }
    return found;
  }

  PowerLossFileSystem files_;
};

TEST_F(PowerLossDisk, SyncedDataAndNamesStayAndTheRestIsForgotten) {
  const FileHandle file = create("/d/a", 8192, std::byte{'x'});
  ASSERT_TRUE(files_.sync_data(file).ok());
  ASSERT_TRUE(files_.sync_directory("/d").ok());
  write(file, 4096, 8192, std::byte{'y'});
  files_.close(create("/d/b", 10, std::byte{'z'}));
  EXPECT_EQ(pages("/d/a"), "xyy");
  files_.come_back(1, Survival::nothing);
  EXPECT_EQ(pages("/d/a"), "xx");
  EXPECT_EQ(pages("/d/b"), "gone");
  EXPECT_EQ(files_.unsynced_changes(), 0u);
}

TEST_F(PowerLossDisk, TheEndOfTheProcessAloneKeepsEverythingButItsHandlesAndLocks) {
  const FileHandle lock = *files_.lock("/d/LOCK");
  const FileHandle file = create("/d/a", 4096, std::byte{'x'});
  files_.come_back(1, Survival::everything);
  EXPECT_EQ(pages("/d/a"), "x");
  EXPECT_FALSE(files_.write_at(file, std::vector<std::byte>(1), 0).ok());
  EXPECT_TRUE(files_.lock("/d/LOCK").ok());
  files_.close(lock);
}

TEST_F(PowerLossDisk, EachUnsyncedPageAndSizeIsKeptOrDroppedOnItsOwn) {
  const auto found = outcomes(
      [&] {
        const FileHandle file = create("/d/a", 4096, std::byte{'o'});
        EXPECT_TRUE(files_.sync_data(file).ok());
        EXPECT_TRUE(files_.sync_directory("/d").ok());
        write(file, 0, 8192, std::byte{'n'});
      },
      "/d/a");
  EXPECT_EQ(found, (std::set<std::string>{"o", "n", "o-", "n-", "on", "nn"}));
}

TEST_F(PowerLossDisk, ASyncOfTheFileSaysNothingOfItsNameAndOneOfTheFolderNothingOfItsContent) {
  const auto named_late =
      outcomes([&] { EXPECT_TRUE(files_.sync_data(create("/d/a", 4096, std::byte{'x'})).ok()); }, "/d/a");
  EXPECT_EQ(named_late, (std::set<std::string>{"gone", "x"}));
  const auto written_late = outcomes(
      [&] {
        files_.close(create("/d/a", 4096, std::byte{'x'}));
        EXPECT_TRUE(files_.sync_directory("/d").ok());
      },
      "/d/a");
  EXPECT_EQ(written_late, (std::set<std::string>{"", "-", "x"}));
}

TEST_F(PowerLossDisk, UnsyncedRenamesRemovalsAndHolesAreKeptOrDropped) {
  const auto prepare = [&] {
    const FileHandle old = create("/d/a", 4096, std::byte{'o'});
    const FileHandle fresh = create("/d/b", 4096, std::byte{'n'});
    EXPECT_TRUE(files_.sync_data(old).ok() && files_.sync_data(fresh).ok());
    EXPECT_TRUE(files_.sync_directory("/d").ok());
  };
  const auto renamed = outcomes(
      [&] {
        prepare();
        EXPECT_TRUE(files_.rename("/d/b", "/d/a").ok());
      },
      "/d/a");
  EXPECT_EQ(renamed, (std::set<std::string>{"o", "n"}));
  const auto removed = outcomes(
      [&] {
        prepare();
        EXPECT_TRUE(files_.unlink("/d/a").ok());
      },
      "/d/a");
  EXPECT_EQ(removed, (std::set<std::string>{"o", "gone"}));
  const auto punched = outcomes(
      [&] {
        prepare();
        EXPECT_TRUE(
            files_.punch(*files_.open("/d/a", OpenMode::read_write, Caching::buffered), 0, 4096).ok());
      },
      "/d/a");
  EXPECT_EQ(punched, (std::set<std::string>{"o", "-"}));
}

TEST_F(PowerLossDisk, AfterTheCutNothingWorksUntilItComesBack) {
  const FileHandle file = create("/d/a", 4096, std::byte{'x'});
  files_.cut_in(2);
  EXPECT_TRUE(files_.sync_data(file).ok());
  EXPECT_FALSE(files_.off());
  EXPECT_FALSE(files_.sync_directory("/d").ok()) << "the call in which the power goes";
  EXPECT_TRUE(files_.off());
  std::vector<std::byte> byte(1);
  EXPECT_FALSE(files_.read_at(file, byte, 0).ok());
  EXPECT_FALSE(files_.list("/d").ok());
  EXPECT_FALSE(files_.lock("/d/LOCK").ok());
  files_.come_back(1, Survival::nothing);
  EXPECT_EQ(pages("/d/a"), "gone") << "a sync that was cut is none";
}

// A conversation folder that the program made itself: its name is as lasting as what is published in it.
TEST(PowerLossFound, B6_ANewFolderIsNotLostWithWhatWasPublishedInIt) {
  PowerLossFileSystem files;
  StackWorldOptions options;
  options.files = &files;
  options.tiers = ram_and_disk(1 << 20, 16 << 20);
  StackWorld world(options);
  const std::vector<Token> prompt = prompt_of(1, 60);
  const std::vector<Token> next = next_prompt(prompt, world.ask(prompt, 2), 2, 5);
  world.shutdown();
  world.halt();
  files.come_back(1, Survival::nothing);
  ASSERT_TRUE(world.try_restart().ok());
  EXPECT_EQ(world.ask(next, 2).placement.tier, Tier::disk);
}

}  // namespace
}  // namespace strata::testing
