/* A device plugin in plain C that is right in every respect but the one that its FIXTURE_ macro names. */
#include "plugins/abi/strata_device.h"

static int32_t instance_data;

static int32_t count(strata_instance* instance) {
  (void)instance;
#ifdef FIXTURE_NO_DEVICES
  return 0;
#else
  return 1;
#endif
}

static strata_status info(strata_instance* instance, int32_t device, strata_device_info* out, strata_error* error) {
  (void)instance, (void)device, (void)error;
  out->pinned_alignment = 1;
  out->memory_total = out->memory_free = 4096;
  out->name[0] = 'f';
  out->name[1] = '\0';
  return STRATA_OK;
}

static strata_status alloc(strata_instance* instance, int32_t device, uint64_t bytes, void** memory, strata_error* error) {
  (void)instance, (void)device, (void)bytes, (void)memory, (void)error;
  return STRATA_EXHAUSTED;
}

static void release(strata_instance* instance, int32_t device, void* memory) {
  (void)instance, (void)device, (void)memory;
}

static strata_status make(strata_instance* instance, int32_t device, void** handle, strata_error* error) {
  (void)instance, (void)device, (void)handle, (void)error;
  return STRATA_UNSUPPORTED;
}

static void drop(strata_instance* instance, void* handle) { (void)instance, (void)handle; }

static strata_status copy(strata_instance* instance, void* to, const void* from, uint64_t bytes, int32_t direction,
                          void* stream, strata_error* error) {
  (void)instance, (void)to, (void)from, (void)bytes, (void)direction, (void)stream, (void)error;
  return STRATA_UNSUPPORTED;
}

static strata_status two(strata_instance* instance, void* first, void* second, strata_error* error) {
  (void)instance, (void)first, (void)second, (void)error;
  return STRATA_UNSUPPORTED;
}

static strata_status query_event(strata_instance* instance, void* event, int32_t* done, strata_error* error) {
  (void)instance, (void)event, (void)done, (void)error;
  return STRATA_UNSUPPORTED;
}

static strata_status one(strata_instance* instance, void* handle, strata_error* error) {
  (void)instance, (void)handle, (void)error;
  return STRATA_UNSUPPORTED;
}

static int32_t probe(const strata_host* host, strata_error* error) {
  (void)host, (void)error;
#ifdef FIXTURE_PROBE_ZERO
  const char reason[] = "no such hardware";
  for (unsigned i = 0; i < sizeof reason; ++i) error->message[i] = reason[i];
  return 0;
#else
  return 1;
#endif
}

static strata_status create(const strata_host* host, strata_instance** instance, strata_error* error) {
  (void)host, (void)instance, (void)error, (void)instance_data;
#ifdef FIXTURE_CREATE_FAILS
  return STRATA_UNAVAILABLE;
#endif
#ifndef FIXTURE_CREATE_NULL
  *instance = (strata_instance*)&instance_data;
#endif
  return STRATA_OK;
}

static void destroy(strata_instance* instance) { (void)instance; }

#ifdef FIXTURE_UNRESOLVED
extern void strata_fixture_that_nobody_defines(void);
#endif

static const strata_device table = {
    .plugin =
        {
#if defined(FIXTURE_SHORT_HEADER)
            .struct_size = 8,
#elif defined(FIXTURE_SHORT_TABLE)
            .struct_size = offsetof(strata_device, copy_batch_async),
#else
            .struct_size = sizeof(strata_device),
#endif
#ifdef FIXTURE_NEXT_MAJOR
            .abi_major = STRATA_ABI_MAJOR + 1,
#else
            .abi_major = STRATA_ABI_MAJOR,
#endif
#ifdef FIXTURE_NEXT_MINOR
            .abi_minor = STRATA_ABI_MINOR + 1,
#else
            .abi_minor = STRATA_ABI_MINOR,
#endif
#ifdef FIXTURE_OTHER_KIND
            .kind = STRATA_KIND_IO,
#else
            .kind = STRATA_KIND_DEVICE,
#endif
#ifdef FIXTURE_REQUIRED_BIT
            .caps_required = UINT64_C(1) << 63,
#endif
#if defined(FIXTURE_IMPLIED_FUNCTION)
            .caps_optional = STRATA_DEVICE_CAP_HOST_REGISTER,
#elif defined(FIXTURE_OPTIONAL_BIT)
            .caps_optional = UINT64_C(1) << 63,
#endif
#ifndef FIXTURE_NO_NAME
            .name = "fixture",
#endif
            .version = "1",
            .probe = probe,
            .create = create,
            .destroy = destroy,
        },
    .count = count,
    .info = info,
    .alloc = alloc,
    .free = release,
    .stream_create = make,
    .stream_destroy = drop,
#ifndef FIXTURE_MISSING_FUNCTION
    .copy_async = copy,
#endif
    .event_create = make,
    .event_destroy = drop,
    .event_record = two,
    .event_query = query_event,
    .event_wait = one,
    .stream_wait = two,
};

#ifdef FIXTURE_NO_SYMBOL
STRATA_EXPORT const void* strata_plugin_entry_v0(void);
const void* strata_plugin_entry_v0(void) { return &table; }
#else
const strata_plugin* strata_plugin_entry_v1(uint32_t kind);

STRATA_PLUGIN_ENTRY(fixture) {
#ifdef FIXTURE_UNRESOLVED
  strata_fixture_that_nobody_defines();
#endif
#ifdef FIXTURE_MISSING_FUNCTION
  (void)copy;
#endif
#ifdef FIXTURE_UNKNOWN_KIND
  return kind == 99 ? &table.plugin : 0;
#else
  return kind == STRATA_KIND_DEVICE ? &table.plugin : 0;
#endif
}
#endif
