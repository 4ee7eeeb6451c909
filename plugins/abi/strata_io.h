/* Strata plugin ABI: asynchronous storage I/O on file descriptors opened by the host.
 * A completion is always "all bytes" or an error; short transfers, EINTR and EAGAIN are resubmitted inside. A failed
 * fdatasync is final. Buffers and descriptors are borrowed(operation). */
#ifndef STRATA_IO_H
#define STRATA_IO_H

#include "plugins/abi/strata_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_IO_READ = 0, STRATA_IO_WRITE = 1, STRATA_IO_SYNC_DATA = 2 };

#define STRATA_IO_CAP_REGISTER (UINT64_C(1) << 0) /* register_buffer, unregister_buffer */

typedef struct strata_io_info {
  uint32_t struct_size;
  uint32_t buffer_align, length_align, max_in_flight;
} strata_io_info;

typedef struct strata_io_op { /* frozen array element */
  uint32_t kind;
  int32_t fd;
  void* data; /* not written to by a write */
  uint64_t length, offset, cookie;
} strata_io_op;

typedef struct strata_io_done { /* frozen array element */
  uint64_t cookie;
  int32_t status, os_errno; /* STRATA_IO with os_errno 0: the file ended before all bytes of a read */
} strata_io_done;

typedef struct strata_io {
  strata_plugin plugin;
  strata_status (*info)(strata_instance*, strata_io_info* info, strata_error*);
  /* Accepts a prefix of ops; *accepted < count is back-pressure, not an error. */
  strata_status (*submit)(strata_instance*, const strata_io_op* ops, uint32_t count, uint32_t* accepted, strata_error*);
  /* Waits for at least min completions, or all that are in flight when those are fewer, or timeout_ns; min = 0 never
   * waits. Fills at most capacity. */
  strata_status (*poll)(strata_instance*, uint32_t min, uint64_t timeout_ns, strata_io_done* done, uint32_t capacity,
                        uint32_t* count, strata_error*);
  uint32_t (*in_flight)(strata_instance*); /* accepted and not yet handed out by poll */
  /* STRATA_IO_CAP_REGISTER: memory stays registered until unregister_buffer with the same address. */
  strata_status (*register_buffer)(strata_instance*, void* memory, uint64_t bytes, strata_error*);
  strata_status (*unregister_buffer)(strata_instance*, void* memory, strata_error*);
} strata_io;

#ifdef __cplusplus
}
#endif
#endif
