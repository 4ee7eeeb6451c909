/* Strata plugin ABI: devices. Memory, pinned host memory, streams, events, asynchronous copies.
 * Copies run in stream order; different streams in any order. All sizes in bytes. */
#ifndef STRATA_DEVICE_H
#define STRATA_DEVICE_H

#include "plugins/abi/strata_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_COPY_HOST_TO_DEVICE = 0, STRATA_COPY_DEVICE_TO_HOST = 1, STRATA_COPY_DEVICE_TO_DEVICE = 2 };

/* caps bits */
#define STRATA_DEVICE_CAP_HOST_REGISTER (UINT64_C(1) << 0) /* host_register, host_unregister */
#define STRATA_DEVICE_CAP_COPY_BATCH (UINT64_C(1) << 1)    /* copy_batch_async */

typedef struct strata_device_info {
  uint32_t struct_size, pinned_alignment;
  uint64_t memory_total, memory_free;
  int32_t unified_memory, reserved0;
  char name[128];
  char uuid[64];
} strata_device_info;

typedef struct strata_copy { /* frozen array element */
  void* to;                  /* borrowed(operation) */
  const void* from;          /* borrowed(operation) */
  uint64_t bytes;
} strata_copy;

typedef struct strata_device {
  strata_plugin plugin;
  int32_t (*count)(strata_instance*);
  strata_status (*info)(strata_instance*, int32_t device, strata_device_info* info, strata_error*);
  strata_status (*alloc)(strata_instance*, int32_t device, uint64_t bytes, void** memory, strata_error*);
  void (*free)(strata_instance*, int32_t device, void* memory);
  strata_status (*stream_create)(strata_instance*, int32_t device, void** stream, strata_error*);
  void (*stream_destroy)(strata_instance*, void* stream);
  strata_status (*copy_async)(strata_instance*, void* to, const void* from, uint64_t bytes, int32_t direction,
                              void* stream, strata_error*); /* null stream: the default stream */
  strata_status (*event_create)(strata_instance*, int32_t device, void** event, strata_error*);
  void (*event_destroy)(strata_instance*, void* event);
  strata_status (*event_record)(strata_instance*, void* event, void* stream, strata_error*);
  strata_status (*event_query)(strata_instance*, void* event, int32_t* done, strata_error*); /* 1 when never recorded */
  strata_status (*event_wait)(strata_instance*, void* event, strata_error*);                 /* blocks the caller */
  strata_status (*stream_wait)(strata_instance*, void* stream, void* event, strata_error*);
  /* STRATA_DEVICE_CAP_HOST_REGISTER */
  strata_status (*host_register)(strata_instance*, void* memory, uint64_t bytes, strata_error*);
  strata_status (*host_unregister)(strata_instance*, void* memory, strata_error*);
  /* STRATA_DEVICE_CAP_COPY_BATCH: the same as count calls of copy_async */
  strata_status (*copy_batch_async)(strata_instance*, const strata_copy* copies, uint32_t count, int32_t direction,
                                    void* stream, strata_error*);
} strata_device;

#ifdef __cplusplus
}
#endif
#endif
