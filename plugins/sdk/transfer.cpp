#include "plugins/sdk/transfer.hpp"

#include <cerrno>

#include "plugins/sdk/error.hpp"

namespace strata::sdk {
namespace {

constexpr uint32_t kMaxRetries = 10000;  // of EINTR and EAGAIN in a row
constexpr uint32_t kMaxBarren = 3;       // attempts in a row that moved no new bytes

// The largest block size that all of address, length and offset are multiples of, so that a resumed attempt
// is as aligned as the first one was.
uint64_t alignment_of(const strata_io_op& op) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(op.data) | op.length | op.offset;
  for (const uint64_t align : {uint64_t{4096}, uint64_t{512}}) {
    if ((bits & (align - 1)) == 0) return align;
  }
  return 1;
}

}  // namespace

Transfer::Transfer(const strata_io_op& op) : op_(op), align_(alignment_of(op)) { done_.cookie = op.cookie; }

Transfer::Next Transfer::finish(strata_status status, int os_errno) {
  done_.status = status;
  done_.os_errno = os_errno;
  return Next::finished;
}

Transfer::Next Transfer::advance(int64_t result) {
  if (result >= 0) return advance_bytes(static_cast<uint64_t>(result));
  const int os_errno = static_cast<int>(-result);
  // A failed sync is final: the system may have dropped the dirty pages, and trying again would succeed over
  // lost data.
  const bool again = os_errno == EINTR || os_errno == EAGAIN;
  if (again && op_.kind != STRATA_IO_SYNC_DATA && ++retries_ <= kMaxRetries) return Next::go_on;
  return finish(status_of_errno(os_errno), os_errno);
}

Transfer::Next Transfer::advance_bytes(uint64_t bytes) {
  if (op_.kind == STRATA_IO_SYNC_DATA) return finish(STRATA_OK, 0);
  if (bytes > length()) return finish(STRATA_INTERNAL, 0);
  const uint64_t now = from_ + bytes;
  if (now == op_.length) return finish(STRATA_OK, 0);
  if (now <= reached_ &&
      (bytes == 0 || ++barren_ > kMaxBarren)) {  // the file ends here, or the device takes no more
    return op_.kind == STRATA_IO_READ ? finish(STRATA_IO, 0) : finish(STRATA_EXHAUSTED, ENOSPC);
  }
  if (now > reached_) {
    retries_ = barren_ = 0;
    reached_ = now;
    from_ = now / align_ * align_;
  }
  return Next::go_on;
}

}  // namespace strata::sdk
