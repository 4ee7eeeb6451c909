// The io plugin "uring": see uring_queue.hpp.
//
//   io_uring.depth=N  operations in flight (64)
//   io_uring.plain=1  a ring as kernels before Linux 6.1 have it
#include "plugins/io_uring/uring_queue.hpp"
#include "plugins/sdk/error.hpp"
#include "plugins/sdk/guard.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::io_uring_plugin {
namespace {

constexpr uint32_t kDirectAlignment = 4096;  // serves every block device in use
constexpr uint32_t kDefaultDepth = 64;
constexpr int32_t kProbe = 100;

UringQueue& self(strata_instance* instance) { return *reinterpret_cast<UringQueue*>(instance); }

// Containers forbid io_uring (EPERM), kernels lack it (ENOSYS), rings count against the memlock limit
// (ENOMEM): only trying tells.
strata_status try_ring(uint32_t depth, RingFlags flags, strata_error* error) {
  Ring ring;
  if (const int result = ring.open(depth, flags); result < 0)
    return sdk::fail_errno(error, -result, "io_uring_setup");
  const bool recent = (ring.get()->features & IORING_FEAT_RW_CUR_POS) != 0;
  return recent ? STRATA_OK : sdk::fail(error, STRATA_UNSUPPORTED, "io_uring: Linux 5.6 or later is needed");
}

int32_t probe(const strata_host*, strata_error* error) {
  return try_ring(kDefaultDepth, RingFlags::best, error) == STRATA_OK ? kProbe : 0;
}

// The ring itself is made by the thread that uses it.
strata_status create(const strata_host* host, strata_instance** instance, strata_error* error) {
  return sdk::guard(error, [&] {
    uint64_t depth = 0;
    uint64_t plain = 0;
    strata_status status =
        sdk::option_number(host, {"io_uring.depth", kDefaultDepth, 1, 4096}, &depth, error);
    if (status == STRATA_OK) status = sdk::option_number(host, {"io_uring.plain", 0, 0, 1}, &plain, error);
    const RingFlags flags = plain != 0 ? RingFlags::plain : RingFlags::best;
    if (status == STRATA_OK) status = try_ring(static_cast<uint32_t>(depth), flags, error);
    if (status != STRATA_OK) return status;
    *instance = reinterpret_cast<strata_instance*>(new UringQueue(host, static_cast<uint32_t>(depth), flags));
    return status;
  });
}

strata_status info(strata_instance* instance, strata_io_info* info, strata_error* error) {
  if (info->struct_size < sizeof *info)
    return sdk::fail(error, STRATA_INVALID, "io_uring: info is too small");
  info->buffer_align = kDirectAlignment;
  info->length_align = kDirectAlignment;
  info->max_in_flight = self(instance).max_in_flight();
  return STRATA_OK;
}

strata_status submit(strata_instance* instance, const strata_io_op* ops, uint32_t count, uint32_t* accepted,
                     strata_error* error) {
  return sdk::guard(error, [&] { return self(instance).submit(ops, count, accepted, error); });
}

strata_status poll(strata_instance* instance, uint32_t min, uint64_t timeout_ns, strata_io_done* done,
                   uint32_t capacity, uint32_t* count, strata_error* error) {
  return sdk::guard(error,
                    [&] { return self(instance).poll(min, timeout_ns, done, capacity, count, error); });
}

strata_status register_buffer(strata_instance* instance, void* memory, uint64_t bytes, strata_error* error) {
  return sdk::guard(error, [&] { return self(instance).register_buffer(memory, bytes, error); });
}

strata_status unregister_buffer(strata_instance* instance, void* memory, strata_error* error) {
  return sdk::guard(error, [&] { return self(instance).unregister_buffer(memory, error); });
}

const strata_io kTable = {
    .plugin = {.struct_size = sizeof(strata_io),
               .abi_major = STRATA_ABI_MAJOR,
               .abi_minor = STRATA_ABI_MINOR,
               .kind = STRATA_KIND_IO,
               .caps_optional = STRATA_IO_CAP_REGISTER,
               .name = "uring",
               .version = "1",
               .probe = probe,
               .create = create,
               .destroy = [](strata_instance* instance) { delete &self(instance); }},
    .info = info,
    .submit = submit,
    .poll = poll,
    .in_flight = [](strata_instance* instance) { return self(instance).in_flight(); },
    .register_buffer = register_buffer,
    .unregister_buffer = unregister_buffer,
};

}  // namespace
}  // namespace strata::io_uring_plugin

STRATA_PLUGIN_ENTRY(io_uring) {
  return kind == STRATA_KIND_IO ? &strata::io_uring_plugin::kTable.plugin : nullptr;
}
