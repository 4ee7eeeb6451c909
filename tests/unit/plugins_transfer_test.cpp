// Field lesson 26: an operation of an io plugin completes with all its bytes or with an error, whatever the
// system does in between. The system is played by the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <vector>

#include "plugins/sdk/transfer.hpp"

namespace strata::sdk {
namespace {

alignas(4096) char memory[64 << 10];

strata_io_op read_op(uint64_t length, uint64_t offset = 0, void* data = memory) {
  return {STRATA_IO_READ, 3, data, length, offset, 99};
}

TEST(Transfer, AllBytesAtOnceIsDone) {
  Transfer transfer(read_op(8192));
  EXPECT_EQ(transfer.advance(8192), Transfer::Next::finished);
  EXPECT_EQ(transfer.done().status, STRATA_OK);
  EXPECT_EQ(transfer.done().cookie, 99u);
}

TEST(Transfer, GoesOnWhereAShortOneEnded) {
  Transfer transfer(read_op(300, 1000, memory + 1));
  ASSERT_EQ(transfer.advance(100), Transfer::Next::go_on);
  EXPECT_EQ(transfer.offset(), 1100u);
  EXPECT_EQ(transfer.length(), 200u);
  EXPECT_EQ(transfer.data(), memory + 101);
  EXPECT_EQ(transfer.advance(200), Transfer::Next::finished);
  EXPECT_EQ(transfer.done().status, STRATA_OK);
}

TEST(Transfer, StaysAlignedForDirectFiles) {
  Transfer transfer(read_op(4 * 4096));
  ASSERT_EQ(transfer.advance(4096 + 700), Transfer::Next::go_on);
  EXPECT_EQ(transfer.offset(), 4096u);
  Transfer sectors(read_op(4 * 512, 512));
  ASSERT_EQ(sectors.advance(1100), Transfer::Next::go_on);
  EXPECT_EQ(sectors.offset(), 512u + 1024u);
}

TEST(Transfer, TheEndOfTheFileIsAnErrorWithoutErrno) {
  Transfer at_once(read_op(4096));
  EXPECT_EQ(at_once.advance(0), Transfer::Next::finished);
  EXPECT_EQ(at_once.done().status, STRATA_IO);
  EXPECT_EQ(at_once.done().os_errno, 0);
  Transfer later(read_op(8192));  // 5,000 bytes are there
  ASSERT_EQ(later.advance(5000), Transfer::Next::go_on);
  int attempts = 0;
  while (later.advance(904) == Transfer::Next::go_on) ASSERT_LT(++attempts, 10);
  EXPECT_EQ(later.done().status, STRATA_IO);
  EXPECT_EQ(later.done().os_errno, 0);
}

TEST(Transfer, AWriteThatGetsNowhereIsOutOfSpace) {
  strata_io_op op = read_op(8192);
  op.kind = STRATA_IO_WRITE;
  Transfer transfer(op);
  ASSERT_EQ(transfer.advance(4096), Transfer::Next::go_on);
  EXPECT_EQ(transfer.advance(0), Transfer::Next::finished);
  EXPECT_EQ(transfer.done().status, STRATA_EXHAUSTED);
}

TEST(Transfer, InterruptionsAreTriedAgainButNotForEver) {
  for (const int os_errno : {EINTR, EAGAIN}) {
    Transfer transfer(read_op(4096));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(transfer.advance(-os_errno), Transfer::Next::go_on);
    EXPECT_EQ(transfer.advance(4096), Transfer::Next::finished);
    Transfer endless(read_op(4096));
    int attempts = 0;
    while (endless.advance(-os_errno) == Transfer::Next::go_on) ASSERT_LT(++attempts, 1000000);
    EXPECT_EQ(endless.done().os_errno, os_errno);
    EXPECT_NE(endless.done().status, STRATA_OK);
  }
}

TEST(Transfer, ErrorsKeepTheirErrno) {
  const struct {
    int os_errno;
    int32_t status;
  } cases[] = {{EIO, STRATA_IO}, {ENOSPC, STRATA_EXHAUSTED}, {EBADF, STRATA_IO}, {EINVAL, STRATA_INVALID}};
  for (const auto& one : cases) {
    Transfer transfer(read_op(4096));
    EXPECT_EQ(transfer.advance(-one.os_errno), Transfer::Next::finished);
    EXPECT_EQ(transfer.done().status, one.status);
    EXPECT_EQ(transfer.done().os_errno, one.os_errno);
  }
}

// Field lesson 17: the second try of a failed sync would succeed over lost data.
TEST(Transfer, AFailedSyncIsFinal) {
  for (const int os_errno : {EIO, EINTR, EAGAIN, ENOSPC}) {
    strata_io_op op{};
    op.kind = STRATA_IO_SYNC_DATA;
    Transfer transfer(op);
    EXPECT_EQ(transfer.advance(-os_errno), Transfer::Next::finished);
    EXPECT_EQ(transfer.done().os_errno, os_errno);
  }
}

TEST(Transfer, MoreThanAskedForIsAnError) {
  Transfer transfer(read_op(100));
  EXPECT_EQ(transfer.advance(101), Transfer::Next::finished);
  EXPECT_EQ(transfer.done().status, STRATA_INTERNAL);
}

// A system that cuts and interrupts at random never changes what arrives, and always ends.
TEST(Transfer, RandomCutsMoveEveryByteOnce) {
  std::mt19937_64 random(3);
  std::vector<char> file(60000);
  std::generate(file.begin(), file.end(), [&] { return static_cast<char>(random()); });
  for (int round = 0; round < 2000; ++round) {
    const bool direct = round % 2 == 0;
    const uint64_t unit = direct ? 4096 : 1;
    const uint64_t length = (1 + random() % (16384 / unit)) * unit;
    const uint64_t offset = random() % (file.size() / unit) * unit;
    const bool inside = offset + length <= file.size();
    std::fill_n(memory, length, '\0');
    Transfer transfer(read_op(length, offset));
    int attempts = 0;
    int64_t result = 0;
    do {
      ASSERT_LT(++attempts, 100000);
      const uint64_t left = transfer.offset() < file.size() ? file.size() - transfer.offset() : 0;
      const uint64_t most = std::min(left, transfer.length());
      result = random() % 5 == 0 || most == 0 ? static_cast<int64_t>(most)
                                              : static_cast<int64_t>(1 + random() % most);
      if (random() % 4 == 0) result = random() % 2 == 0 ? -EINTR : -EAGAIN;
      if (result > 0)
        std::copy_n(file.begin() + static_cast<ptrdiff_t>(transfer.offset()), result,
                    static_cast<char*>(transfer.data()));
    } while (transfer.advance(result) == Transfer::Next::go_on);
    if (!inside) {
      ASSERT_EQ(transfer.done().status, STRATA_IO);
    } else if (transfer.done().status == STRATA_OK) {
      ASSERT_TRUE(std::equal(memory, memory + length, file.begin() + static_cast<ptrdiff_t>(offset)));
    } else {
      ASSERT_TRUE(direct);  // several attempts in a row that did not get past a block
    }
  }
}

}  // namespace
}  // namespace strata::sdk
