// The io plugin "posix": see worker_queue.hpp.
//
//   io_posix.threads=N  worker threads (4)
//   io_posix.depth=N    operations in flight (64)
#include "plugins/io_posix/worker_queue.hpp"
#include "plugins/sdk/error.hpp"
#include "plugins/sdk/guard.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::io_posix {
namespace {

constexpr uint32_t kDirectAlignment = 4096;  // serves every block device in use
constexpr int32_t kProbe = 10;               // works everywhere; faster ones answer more

WorkerQueue& self(strata_instance* instance) { return *reinterpret_cast<WorkerQueue*>(instance); }

strata_status create(const strata_host* host, strata_instance** instance, strata_error* error) {
  return sdk::guard(error, [&] {
    uint64_t threads = 0;
    uint64_t depth = 0;
    strata_status status = sdk::option_number(host, {"io_posix.threads", 4, 1, 64}, &threads, error);
    if (status == STRATA_OK)
      status = sdk::option_number(host, {"io_posix.depth", 64, 1, 4096}, &depth, error);
    if (status != STRATA_OK) return status;
    *instance = reinterpret_cast<strata_instance*>(
        new WorkerQueue(static_cast<uint32_t>(threads), static_cast<uint32_t>(depth)));
    return status;
  });
}

strata_status info(strata_instance* instance, strata_io_info* info, strata_error* error) {
  if (info->struct_size < sizeof *info)
    return sdk::fail(error, STRATA_INVALID, "io_posix: info is too small");
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
  return sdk::guard(error, [&] {
    *count = self(instance).poll(min, timeout_ns, done, capacity);
    return strata_status{STRATA_OK};
  });
}

const strata_io kTable = {
    .plugin = {.struct_size = sizeof(strata_io),
               .abi_major = STRATA_ABI_MAJOR,
               .abi_minor = STRATA_ABI_MINOR,
               .kind = STRATA_KIND_IO,
               .name = "posix",
               .version = "1",
               .probe = [](const strata_host*, strata_error*) { return kProbe; },
               .create = create,
               .destroy = [](strata_instance* instance) { delete &self(instance); }},
    .info = info,
    .submit = submit,
    .poll = poll,
    .in_flight = [](strata_instance* instance) { return self(instance).in_flight(); },
};

}  // namespace
}  // namespace strata::io_posix

STRATA_PLUGIN_ENTRY(io_posix) { return kind == STRATA_KIND_IO ? &strata::io_posix::kTable.plugin : nullptr; }
