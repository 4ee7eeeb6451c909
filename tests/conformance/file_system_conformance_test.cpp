// One suite for every FileSystem: the operating system's on a real file system, the one in memory, and the
// fault-injecting decorator over each with no fault planned. Then: every planned fault surfaces (SES-1,
// SES-3, DISK-8).
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>

#include "core/limits.hpp"
#include "core/posix/file_system.hpp"
#include "tests/support/fake_file_system.hpp"
#include "tests/support/faulty_file_system.hpp"
#include "tests/support/temporary_folder.hpp"

namespace strata {
namespace {

using testing::FakeFileSystem;
using testing::FaultyFileSystem;
using testing::FileCall;
using testing::FileFault;
using testing::TemporaryFolder;

constexpr uint64_t kPage = limits::kAlignment;

// A FileSystem with an empty folder to work in, and the deeds the port itself cannot do.
struct Subject {
  virtual ~Subject() = default;
  virtual FileSystem& files() = 0;
  virtual std::string folder() = 0;
  virtual void make_link(const std::string& path) = 0;
  virtual void make_second_name(const std::string& path, const std::string& existing) = 0;
};

struct PosixSubject : Subject {
  PosixFileSystem system;
  TemporaryFolder temporary;
  FileSystem& files() override { return system; }
  std::string folder() override { return temporary.path(); }
  void make_link(const std::string& path) override { ASSERT_EQ(::symlink("/etc/hostname", path.c_str()), 0); }
  void make_second_name(const std::string& path, const std::string& existing) override {
    ASSERT_EQ(::link(existing.c_str(), path.c_str()), 0);
  }
};

struct FakeSubject : Subject {
  FakeFileSystem system;
  FakeSubject() { EXPECT_TRUE(system.create_directory("/folder")); }
  FileSystem& files() override { return system; }
  std::string folder() override { return "/folder"; }
  void make_link(const std::string& path) override { system.add_symlink(path); }
  void make_second_name(const std::string& path, const std::string& existing) override {
    system.add_hard_link(path, existing);
  }
};

template <class Inner>
struct DecoratedSubject : Inner {
  FaultyFileSystem decorated{this->system};
  FileSystem& files() override { return decorated; }
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Subject>()> make;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
std::string kind_name(const ::testing::TestParamInfo<Kind>& kind) { return kind.param.name; }

std::vector<std::byte> pattern(size_t size, int seed = 1) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + static_cast<size_t>(seed));
  return bytes;
}

class FileSystemConformance : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { subject_ = GetParam().make(); }
  FileSystem& files() { return subject_->files(); }
  std::string path(const std::string& name) { return subject_->folder() + "/" + name; }

  FileHandle create(const std::string& name) {
    auto file = files().open(path(name), OpenMode::create_exclusive, Caching::buffered);
    EXPECT_TRUE(file) << file.error().message;
    return *file;
  }
  void create_with(const std::string& name, const std::vector<std::byte>& bytes) {
    const FileHandle file = create(name);
    EXPECT_TRUE(files().write_at(file, bytes, 0));
    files().close(file);
  }
  std::vector<std::byte> content(const std::string& name) {
    auto file = files().open(path(name), OpenMode::read, Caching::buffered);
    EXPECT_TRUE(file) << file.error().message;
    std::vector<std::byte> bytes(1 << 20);
    auto got = files().read_at(*file, bytes, 0);
    EXPECT_TRUE(got);
    bytes.resize(*got);
    files().close(*file);
    return bytes;
  }
  template <class T>
  static ErrorCode code(const Result<T>& result) {
    return result ? ErrorCode{} : result.error().code;
  }
  template <class T>
  static ErrorCode code_of(Result<T> result) {
    return code(result);
  }

  std::unique_ptr<Subject> subject_;
};

TEST_P(FileSystemConformance, WritesAndReadsBack) {
  const auto bytes = pattern(10'000);
  const FileHandle file = create("a");
  ASSERT_TRUE(files().write_at(file, bytes, 0));
  ASSERT_TRUE(files().write_at(file, pattern(100, 9), 20'000));
  ASSERT_TRUE(files().sync_data(file));
  std::vector<std::byte> read(10'000);
  EXPECT_EQ(*files().read_at(file, read, 0), 10'000u);
  EXPECT_EQ(read, bytes);
  read.assign(200, std::byte{1});
  EXPECT_EQ(*files().read_at(file, read, 19'950), 150u);  // short only at the end
  EXPECT_TRUE(std::all_of(read.begin(), read.begin() + 50, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(read[50], pattern(1, 9)[0]);
  EXPECT_EQ(*files().read_at(file, read, 30'000), 0u);
  EXPECT_EQ(files().info(file)->size_bytes, 20'100u);
  files().close(file);
}

TEST_P(FileSystemConformance, MissingFileIsNotFound) {
  EXPECT_EQ(code_of(files().open(path("none"), OpenMode::read, Caching::buffered)), ErrorCode::not_found);
  EXPECT_EQ(code_of(files().open(path("none/file"), OpenMode::create_exclusive, Caching::buffered)),
            ErrorCode::not_found);
  EXPECT_EQ(code_of(files().info(path("none"))), ErrorCode::not_found);
  EXPECT_EQ(code_of(files().unlink(path("none"))), ErrorCode::not_found);
  EXPECT_EQ(code_of(files().rename(path("none"), path("other"))), ErrorCode::not_found);
  EXPECT_EQ(code_of(files().list(path("none"))), ErrorCode::not_found);
  EXPECT_EQ(code_of(files().sync_directory(path("none"))), ErrorCode::not_found);
  EXPECT_EQ(code_of(files().space(path("none"))), ErrorCode::not_found);
}

TEST_P(FileSystemConformance, ErrorsNameThePath) {
  const auto refused = files().open(path("none"), OpenMode::read, Caching::buffered);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(path("none")), std::string::npos);
}

TEST_P(FileSystemConformance, CreateIsExclusive) {  // SES-1
  create_with("a", pattern(10));
  EXPECT_EQ(code_of(files().open(path("a"), OpenMode::create_exclusive, Caching::buffered)),
            ErrorCode::invalid);
  EXPECT_EQ(content("a"), pattern(10));
}

TEST_P(FileSystemConformance, LinksAreNotFollowed) {  // SES-3
  subject_->make_link(path("link"));
  EXPECT_EQ(code_of(files().open(path("link"), OpenMode::read, Caching::buffered)), ErrorCode::invalid);
  EXPECT_EQ(code_of(files().open(path("link"), OpenMode::read_write, Caching::buffered)), ErrorCode::invalid);
  EXPECT_EQ(code_of(files().open(path("link"), OpenMode::create_exclusive, Caching::buffered)),
            ErrorCode::invalid);
  EXPECT_EQ(code_of(files().lock(path("link"))), ErrorCode::invalid);
  const auto info = files().info(path("link"));
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->regular);
}

TEST_P(FileSystemConformance, FilesWithSeveralNamesAreRefused) {  // SES-3
  create_with("a", pattern(10));
  subject_->make_second_name(path("b"), path("a"));
  EXPECT_EQ(code_of(files().open(path("a"), OpenMode::read, Caching::buffered)), ErrorCode::invalid);
  EXPECT_EQ(files().info(path("a"))->links, 2u);
  ASSERT_TRUE(files().unlink(path("b")));
  EXPECT_EQ(content("a"), pattern(10));
}

TEST_P(FileSystemConformance, FoldersAreNotFiles) {
  ASSERT_TRUE(files().create_directory(path("sub")));
  EXPECT_EQ(code_of(files().open(path("sub"), OpenMode::read, Caching::buffered)), ErrorCode::invalid);
  EXPECT_EQ(code_of(files().open(path("sub"), OpenMode::read_write, Caching::buffered)), ErrorCode::invalid);
  EXPECT_TRUE(files().info(path("sub"))->directory);
  EXPECT_FALSE(files().info(path("sub"))->regular);
}

TEST_P(FileSystemConformance, FoldersAreMadeOnceAndOneLevelDeep) {
  EXPECT_TRUE(files().create_directory(path("sub")));
  EXPECT_TRUE(files().create_directory(path("sub")));
  EXPECT_EQ(code_of(files().create_directory(path("x/y"))), ErrorCode::not_found);
  create_with("a", {});
  EXPECT_EQ(code_of(files().create_directory(path("a"))), ErrorCode::invalid);
}

TEST_P(FileSystemConformance, ListNamesEverythingOnce) {
  EXPECT_TRUE(files().list(subject_->folder())->empty());
  create_with("a", {});
  create_with("b", {});
  ASSERT_TRUE(files().create_directory(path("sub")));
  create_with("sub/inner", {});
  std::vector<std::string> names = *files().list(subject_->folder());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "sub"}));
}

TEST_P(FileSystemConformance, RenameReplaces) {  // SES-1
  create_with("new", pattern(20, 2));
  create_with("old", pattern(10));
  ASSERT_TRUE(files().rename(path("new"), path("old")));
  ASSERT_TRUE(files().sync_directory(subject_->folder()));
  EXPECT_EQ(content("old"), pattern(20, 2));
  EXPECT_EQ(code_of(files().info(path("new"))), ErrorCode::not_found);
}

TEST_P(FileSystemConformance, AnUnlinkedFileLivesUntilItIsClosed) {
  const FileHandle file = create("a");
  ASSERT_TRUE(files().write_at(file, pattern(10), 0));
  ASSERT_TRUE(files().unlink(path("a")));
  std::vector<std::byte> read(10);
  EXPECT_EQ(*files().read_at(file, read, 0), 10u);
  EXPECT_EQ(read, pattern(10));
  EXPECT_EQ(code_of(files().info(path("a"))), ErrorCode::not_found);
  files().close(file);
}

TEST_P(FileSystemConformance, AllocateGrowsAndHoldsSpace) {  // DISK-3: physical bytes
  const FileHandle file = create("a");
  ASSERT_TRUE(files().allocate(file, 0, 64 * kPage));
  EXPECT_EQ(files().info(file)->size_bytes, 64 * kPage);
  EXPECT_GE(files().info(file)->allocated_bytes, 64 * kPage);
  std::vector<std::byte> read(kPage, std::byte{1});
  EXPECT_EQ(*files().read_at(file, read, 63 * kPage), kPage);
  EXPECT_EQ(read, std::vector<std::byte>(kPage));
  EXPECT_EQ(code_of(files().allocate(file, 0, 0)), ErrorCode::invalid);
  files().close(file);
}

TEST_P(FileSystemConformance, PunchGivesSpaceBackAndKeepsTheSize) {
  const FileHandle file = create("a");
  ASSERT_TRUE(files().write_at(file, pattern(64 * kPage), 0));
  ASSERT_TRUE(files().sync_data(file));
  const uint64_t before = files().info(file)->allocated_bytes;
  const Status punched = files().punch(file, 16 * kPage, 32 * kPage);
  if (!punched && punched.error().code == ErrorCode::unsupported)
    GTEST_SKIP() << "no holes here: " << punched.error().message;
  ASSERT_TRUE(punched) << punched.error().message;
  EXPECT_EQ(files().info(file)->size_bytes, 64 * kPage);
  EXPECT_LE(files().info(file)->allocated_bytes + 32 * kPage, before);
  std::vector<std::byte> read(64 * kPage);
  EXPECT_EQ(*files().read_at(file, read, 0), 64 * kPage);
  auto expected = pattern(64 * kPage);
  std::fill(expected.begin() + 16 * kPage, expected.begin() + 48 * kPage, std::byte{0});
  EXPECT_EQ(read, expected);
  files().close(file);
}

TEST_P(FileSystemConformance, TruncateCutsAndGrowsWithZeros) {
  const FileHandle file = create("a");
  ASSERT_TRUE(files().write_at(file, pattern(100), 0));
  ASSERT_TRUE(files().truncate(file, 50));
  ASSERT_TRUE(files().truncate(file, 80));
  files().close(file);
  auto expected = pattern(100);
  expected.resize(50);
  expected.resize(80);
  EXPECT_EQ(content("a"), expected);
}

TEST_P(FileSystemConformance, AFileOpenedForReadingCannotBeWritten) {
  create_with("a", pattern(10));
  const auto file = files().open(path("a"), OpenMode::read, Caching::buffered);
  ASSERT_TRUE(file);
  EXPECT_FALSE(files().write_at(*file, pattern(5), 0));
  EXPECT_FALSE(files().allocate(*file, 0, kPage));
  EXPECT_FALSE(files().truncate(*file, 0));
  files().close(*file);
  EXPECT_EQ(content("a"), pattern(10));
}

TEST_P(FileSystemConformance, DirectTransfersNeedAlignment) {
  create_with("a", pattern(4 * kPage));
  const auto file = files().open(path("a"), OpenMode::read_write, Caching::direct);
  if (!file && file.error().code == ErrorCode::unsupported)
    GTEST_SKIP() << "no direct files: " << file.error().message;
  ASSERT_TRUE(file) << file.error().message;
  const std::unique_ptr<std::byte, void (*)(void*)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPage, 4 * kPage)), std::free);
  const std::span buffer(memory.get(), 4 * kPage);
  EXPECT_EQ(*files().read_at(*file, buffer, 0), 4 * kPage);
  EXPECT_EQ(std::vector(buffer.begin(), buffer.end()), pattern(4 * kPage));
  EXPECT_TRUE(files().write_at(*file, buffer.first(kPage), 8 * kPage));
  EXPECT_EQ(*files().read_at(*file, buffer.first(2 * kPage), 8 * kPage), kPage);  // the end of the file
  EXPECT_EQ(code_of(files().read_at(*file, buffer.first(kPage), 100)), ErrorCode::invalid);
  files().close(*file);
}

TEST_P(FileSystemConformance, OneLockAtATime) {  // DISK-8: one process owns a folder
  const auto first = files().lock(path("LOCK"));
  ASSERT_TRUE(first) << first.error().message;
  const auto second = files().lock(path("LOCK"));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  EXPECT_NE(second.error().message.find("in use by another process"), std::string::npos);
  files().unlock(*first);
  const auto third = files().lock(path("LOCK"));
  ASSERT_TRUE(third) << third.error().message;
  files().unlock(*third);
  EXPECT_TRUE(
      files().info(path("LOCK")));  // the file stays, so that nobody locks another one of the same name
}

TEST_P(FileSystemConformance, SpaceIsKnown) {
  const auto space = files().space(subject_->folder());
  ASSERT_TRUE(space);
  EXPECT_GT(space->total_bytes, 0u);
  EXPECT_LE(space->free_bytes, space->total_bytes);
}

const Kind kKinds[] = {
    {"Posix", [] { return std::make_unique<PosixSubject>(); }},
    {"Fake", [] { return std::make_unique<FakeSubject>(); }},
    {"FaultyPosix", [] { return std::make_unique<DecoratedSubject<PosixSubject>>(); }},
    {"FaultyFake", [] { return std::make_unique<DecoratedSubject<FakeSubject>>(); }},
};
INSTANTIATE_TEST_SUITE_P(All, FileSystemConformance, ::testing::ValuesIn(kKinds), kind_name);

// ---- what only the real one shows

TEST(PosixFileSystemTest, FilesAndFoldersBelongToTheOwnerOnly) {  // SES-1
  const mode_t before = umask(0);
  PosixFileSystem files;
  TemporaryFolder folder;
  const auto file = files.open(folder / "a", OpenMode::create_exclusive, Caching::buffered);
  ASSERT_TRUE(file);
  files.close(*file);
  ASSERT_TRUE(files.create_directory(folder / "sub"));
  const auto lock = files.lock(folder / "LOCK");
  ASSERT_TRUE(lock);
  files.unlock(*lock);
  umask(before);
  const auto mode = [](const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  };
  EXPECT_EQ(mode(folder / "a"), 0600u);
  EXPECT_EQ(mode(folder / "LOCK"), 0600u);
  EXPECT_EQ(mode(folder / "sub"), 0700u);
}

TEST(PosixFileSystemTest, PipesAndDevicesAreRefusedWithoutWaiting) {  // SES-3
  PosixFileSystem files;
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto pipe = files.open(folder / "pipe", OpenMode::read, Caching::buffered);
  ASSERT_FALSE(pipe);
  EXPECT_EQ(pipe.error().code, ErrorCode::invalid);
  const auto device = files.open("/dev/null", OpenMode::read_write, Caching::buffered);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::invalid);
}

TEST(FakeFileSystemTest, CapacityAndMissingFeatures) {
  FakeFileSystem files(
      {.capacity_bytes = 4 * kPage, .direct = false, .punch = false, .sync_directory = false});
  const auto file = files.open("/a", OpenMode::create_exclusive, Caching::buffered);
  ASSERT_TRUE(file);
  EXPECT_TRUE(files.write_at(*file, pattern(4 * kPage), 0));
  EXPECT_EQ(files.write_at(*file, pattern(1), 4 * kPage).error().code, ErrorCode::exhausted);
  EXPECT_EQ(files.allocate(*file, 0, 5 * kPage).error().code, ErrorCode::exhausted);
  EXPECT_EQ(files.space("/")->free_bytes, 0u);
  EXPECT_EQ(files.punch(*file, 0, kPage).error().code, ErrorCode::unsupported);
  EXPECT_EQ(files.sync_directory("/").error().code, ErrorCode::unsupported);
  EXPECT_EQ(files.open("/a", OpenMode::read, Caching::direct).error().code, ErrorCode::unsupported);
  files.close(*file);
  EXPECT_EQ(files.open_files(), 0u);
}

// ---- planned faults

class FileFaults : public ::testing::Test {
 protected:
  FileFaults() {
    inner_.put("/a", pattern(100));
    file_ = *inner_.open("/a", OpenMode::read_write, Caching::buffered);
  }
  FakeFileSystem inner_;
  FaultyFileSystem files_{inner_};
  FileHandle file_;
};

TEST_F(FileFaults, EveryCallSurfacesItsError) {  // a lost error status is fault kind 25 of the field lessons
  std::vector<std::byte> buffer(10);
  const std::pair<FileCall, std::function<ErrorCode()>> calls[] = {
      {FileCall::open, [&] { return files_.open("/a", OpenMode::read, Caching::buffered).error().code; }},
      {FileCall::read, [&] { return files_.read_at(file_, buffer, 0).error().code; }},
      {FileCall::write, [&] { return files_.write_at(file_, buffer, 0).error().code; }},
      {FileCall::sync_data, [&] { return files_.sync_data(file_).error().code; }},
      {FileCall::info, [&] { return files_.info(file_).error().code; }},
      {FileCall::info, [&] { return files_.info("/a").error().code; }},
      {FileCall::allocate, [&] { return files_.allocate(file_, 0, 10).error().code; }},
      {FileCall::punch, [&] { return files_.punch(file_, 0, 10).error().code; }},
      {FileCall::truncate, [&] { return files_.truncate(file_, 10).error().code; }},
      {FileCall::rename, [&] { return files_.rename("/a", "/b").error().code; }},
      {FileCall::unlink, [&] { return files_.unlink("/a").error().code; }},
      {FileCall::create_directory, [&] { return files_.create_directory("/d").error().code; }},
      {FileCall::sync_directory, [&] { return files_.sync_directory("/").error().code; }},
      {FileCall::list, [&] { return files_.list("/").error().code; }},
      {FileCall::space, [&] { return files_.space("/").error().code; }},
      {FileCall::lock, [&] { return files_.lock("/LOCK").error().code; }},
  };
  const std::pair<int, ErrorCode> errors[] = {{EIO, ErrorCode::io},
                                              {ENOSPC, ErrorCode::exhausted},
                                              {ENOENT, ErrorCode::not_found},
                                              {EACCES, ErrorCode::unavailable},
                                              {EOPNOTSUPP, ErrorCode::unsupported}};
  for (const auto& [call, run] : calls)
    for (const auto& [os_errno, expected] : errors) {
      files_.set_plan({{call, 1, os_errno}});
      EXPECT_EQ(run(), expected) << static_cast<int>(call) << " errno " << os_errno;
      EXPECT_EQ(files_.faults(), 1u);
    }
  EXPECT_EQ(inner_.get("/a"), pattern(100));  // nothing happened underneath
}

TEST_F(FileFaults, OnlyTheNthCallFails) {
  files_.set_plan({{FileCall::sync_data, 3, EIO}});
  std::vector<bool> results;
  for (int i = 0; i < 5; ++i) results.push_back(files_.sync_data(file_).ok());
  EXPECT_EQ(results, (std::vector<bool>{true, true, false, true, true}));
  EXPECT_EQ(files_.calls(FileCall::sync_data), 5u);

  files_.set_plan({{FileCall::sync_data, 2, EIO, true}});
  results.clear();
  for (int i = 0; i < 4; ++i) results.push_back(files_.sync_data(file_).ok());
  EXPECT_EQ(results, (std::vector<bool>{true, false, false, false}));
}

TEST_F(FileFaults, CallsOfAnyKindCanBeCounted) {  // "fail the 1st, 2nd, 3rd … until a clean pass"
  files_.set_plan({{FileCall::any, 2, EIO}});
  EXPECT_TRUE(files_.info(file_));
  EXPECT_FALSE(files_.sync_data(file_));
  EXPECT_TRUE(files_.sync_data(file_));
}

TEST_F(FileFaults, WritesAreCutAndReadsShortenedOrDamaged) {
  FileFault torn{FileCall::write, 1, ENOSPC};
  torn.keep_bytes = 10;
  files_.set_plan({torn});
  EXPECT_EQ(files_.write_at(file_, pattern(50, 7), 0).error().code, ErrorCode::exhausted);
  auto expected = pattern(100);
  const auto written = pattern(10, 7);
  std::copy(written.begin(), written.end(), expected.begin());
  EXPECT_EQ(inner_.get("/a"), expected);

  FileFault cut{FileCall::read, 1};
  cut.keep_bytes = 30;
  FileFault flipped{FileCall::read, 2};
  flipped.flip_at = 5;
  files_.set_plan({cut, flipped});
  std::vector<std::byte> read(100);
  EXPECT_EQ(*files_.read_at(file_, read, 0), 30u);
  EXPECT_EQ(*files_.read_at(file_, read, 0), 100u);
  EXPECT_NE(read[5], expected[5]);
  read[5] = expected[5];
  EXPECT_EQ(read, expected);
}

}  // namespace
}  // namespace strata
