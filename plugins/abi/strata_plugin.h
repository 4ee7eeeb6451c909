/* Strata plugin ABI, common part. Pure C, stable within a major version: structs only grow at the end.
 *
 * A plugin exports one symbol, strata_plugin_entry_v1, and fills one table per kind it offers. The same entry serves
 * plugins that are linked in (each under its own name, see STRATA_PLUGIN_ENTRY) and plugins loaded from a file.
 *
 * Rules: every struct starts with struct_size, set with sizeof by whoever fills it; fields beyond the reader's
 * knowledge are looked at only after STRATA_HAS. Errors are a status code and a caller-owned strata_error. One thread
 * at a time per instance unless a function says otherwise. No exception leaves. A plugin is never unloaded.
 * Pointer comments: borrowed(call): valid during the call; borrowed(operation): until its completion; static: for
 * ever; owned by instance: until destroy.
 */
#ifndef STRATA_PLUGIN_H
#define STRATA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_ABI_MAJOR 1
#define STRATA_ABI_MINOR 1

#define STRATA_HAS(ptr, field) \
  ((ptr)->struct_size >= offsetof(__typeof__(*(ptr)), field) + sizeof((ptr)->field) && (ptr)->field)

enum { STRATA_KIND_DEVICE = 1, STRATA_KIND_IO = 2, STRATA_KIND_MODEL = 3 };

typedef int32_t strata_status;
enum {
  STRATA_OK = 0,
  STRATA_INVALID = 1,
  STRATA_NOT_FOUND = 2,
  STRATA_EXHAUSTED = 3,
  STRATA_UNAVAILABLE = 4,
  STRATA_UNSUPPORTED = 5,
  STRATA_CORRUPT = 6,
  STRATA_IO = 7,
  STRATA_CANCELLED = 8,
  STRATA_INTERNAL = 9
};

enum { STRATA_ERROR_RETRYABLE = 1u, STRATA_ERROR_DEVICE_LOST = 2u };

typedef struct strata_error { /* frozen; 256 bytes */
  int32_t code;
  int32_t os_errno;
  int32_t vendor_code;
  uint32_t flags;
  uint32_t reserved0;
  char message[236]; /* zero-terminated, context first */
} strata_error;

enum { STRATA_LOG_DEBUG = 0, STRATA_LOG_INFO = 1, STRATA_LOG_WARNING = 2, STRATA_LOG_ERROR = 3 };

typedef struct strata_host { /* valid for the life of the process, any thread */
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;
  void* ctx;
  void (*log)(void* ctx, int32_t level, const char* text, uint32_t length);
  uint64_t (*now_ns)(void* ctx); /* monotonic; virtual in simulation */
  /* Copies the zero-terminated value; returns its length without the zero, or -1 when the option is not set. A value
   * longer than out_size-1 is not copied (the length is still returned). */
  int32_t (*get_option)(void* ctx, const char* key, char* out, uint32_t out_size);
} strata_host;

typedef struct strata_instance strata_instance; /* opaque, the plugin's own */

typedef struct strata_plugin { /* first member of every kind table, frozen */
  uint32_t struct_size;        /* of the whole kind table */
  uint16_t abi_major, abi_minor;
  uint32_t kind, reserved0;
  uint64_t caps_required; /* unknown bit: the host refuses the plugin */
  uint64_t caps_optional; /* unknown bit: ignored */
  const char* name;       /* static */
  const char* version;    /* static */
  int32_t (*probe)(const strata_host* host, strata_error* error); /* 0 = cannot run here; higher wins; cheap */
  /* host outlives the instance. */
  strata_status (*create)(const strata_host* host, strata_instance** instance, strata_error* error);
  void (*destroy)(strata_instance* instance); /* nothing in flight */
  const void* (*query)(strata_instance* instance, const char* interface_name, uint32_t version); /* may be null */
} strata_plugin;

#if defined(_WIN32)
#define STRATA_EXPORT __declspec(dllexport)
#else
#define STRATA_EXPORT __attribute__((visibility("default")))
#endif

/* Returns the table of that kind, static, or null when the plugin does not offer it. */
typedef const strata_plugin* (*strata_plugin_entry_fn)(uint32_t kind);
#define STRATA_PLUGIN_ENTRY_SYMBOL "strata_plugin_entry_v1"

/* Built as a shared object a plugin exports strata_plugin_entry_v1; linked in (STRATA_PLUGIN_LINKED defined) the same
 * function is named strata_plugin_entry_v1_<name>, so that several can live in one program. */
#ifdef __cplusplus
#define STRATA_EXTERN_C extern "C"
#else
#define STRATA_EXTERN_C
#endif
#ifdef STRATA_PLUGIN_LINKED
#define STRATA_PLUGIN_ENTRY(name) STRATA_EXTERN_C const strata_plugin* strata_plugin_entry_v1_##name(uint32_t kind)
#else
#define STRATA_PLUGIN_ENTRY(name) STRATA_EXTERN_C STRATA_EXPORT const strata_plugin* strata_plugin_entry_v1(uint32_t kind)
#endif

#ifdef __cplusplus
}
#endif
#endif
