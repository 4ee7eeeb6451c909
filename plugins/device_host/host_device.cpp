// The reference device: host memory behind virtual streams (virtual_streams.hpp), with limits and faults by
// option.
//
//   device_host.devices=N         how many devices there are (1)
//   device_host.memory_mib=N      memory of each; by default the machine's
//   device_host.poison=1          fill fresh memory with 0xFF bytes, which read as NaN
//   device_host.seed=N            of the order in which streams go on
//   device_host.delay=N           how often an event answers "not yet"; by default 1 to 3 times
//   device_host.fail_alloc_at=N   the N-th allocation is refused
//   device_host.fail_copy_at=N    the N-th copy is refused when it is queued
//   device_host.fail_execute_at=N the N-th copy fails while it is carried out; its stream stays failed
//   device_host.fail_register=1   memory cannot be registered, as under a memlock limit
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

#include "plugins/device_host/virtual_streams.hpp"
#include "plugins/sdk/error.hpp"
#include "plugins/sdk/guard.hpp"
#include "plugins/sdk/options.hpp"

namespace strata::device_host {
namespace {

using sdk::fail;
using sdk::guard;

constexpr uint32_t kPinnedAlignment = 4096;
constexpr uint64_t kMaxDevices = 8;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMaxNumber = UINT64_MAX / 2;

struct Options {
  uint64_t devices = 1;
  uint64_t memory_bytes = 0;
  uint64_t poison = 0;
  uint64_t fail_alloc_at = 0;
  uint64_t fail_copy_at = 0;
  uint64_t fail_register = 0;
  StreamOptions streams;
};

struct Allocation {
  uint64_t bytes = 0;
  int32_t device = 0;
};

class HostDevice {
 public:
  explicit HostDevice(const Options& options)
      : options_(options), streams_(options.streams), used_(options.devices) {
    default_stream_ = streams_.create();
  }
  ~HostDevice();
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(options_.devices); }
  [[nodiscard]] bool has(int32_t device) const { return device >= 0 && device < count(); }
  strata_status info(int32_t device, strata_device_info* info, strata_error* error) const;
  strata_status alloc(int32_t device, uint64_t bytes, void** memory, strata_error* error);
  void free(void* memory);
  strata_status register_memory(void* memory, uint64_t bytes, strata_error* error);
  strata_status unregister_memory(void* memory, strata_error* error);
  strata_status copy(const strata_copy& copy, int32_t direction, void* stream, strata_error* error);

  void* create_stream() { return streams_.create(); }
  void destroy_stream(void* stream);
  void* create_event();
  void destroy_event(void* event);
  strata_status record(void* event, void* stream, strata_error* error);
  strata_status query(void* event, int32_t* done, strata_error* error);
  strata_status wait(void* event, strata_error* error);
  strata_status stream_wait(void* stream, void* event, strata_error* error);

 private:
  [[nodiscard]] Stream* stream_of(void* handle) const;
  [[nodiscard]] Event* event_of(void* handle) const;
  [[nodiscard]] bool owns(const void* memory, uint64_t bytes) const;
  [[nodiscard]] strata_status check(const strata_copy& copy, int32_t direction, strata_error* error) const;

  Options options_;
  VirtualStreams streams_;
  Stream* default_stream_ = nullptr;
  std::map<void*, std::unique_ptr<Event>> events_;
  std::map<uintptr_t, Allocation> allocations_;
  std::map<uintptr_t, uint64_t> registered_;
  std::vector<uint64_t> used_;  // bytes, by device
  uint64_t allocs_ = 0;
  uint64_t copies_ = 0;
};

HostDevice::~HostDevice() {
  for (const auto& [address, allocation] : allocations_) std::free(reinterpret_cast<void*>(address));
}

strata_status HostDevice::info(int32_t device, strata_device_info* info, strata_error* error) const {
  if (!has(device)) return fail(error, STRATA_NOT_FOUND, "info: no such device");
  const uint32_t size = info->struct_size;
  if (size < sizeof *info)
    return fail(error, STRATA_INVALID, "info: struct_size is smaller than that of ABI 1.0");
  *info = strata_device_info{};
  info->struct_size = size;
  info->pinned_alignment = kPinnedAlignment;
  info->memory_total = options_.memory_bytes;
  info->memory_free = options_.memory_bytes - used_[static_cast<size_t>(device)];
  info->unified_memory = 1;  // the processor reads it directly; the reference model computes there
  std::snprintf(info->name, sizeof info->name, "host memory %d", device);
  std::snprintf(info->uuid, sizeof info->uuid, "host-%d", device);
  return STRATA_OK;
}

strata_status HostDevice::alloc(int32_t device, uint64_t bytes, void** memory, strata_error* error) {
  if (!has(device)) return fail(error, STRATA_NOT_FOUND, "alloc: no such device");
  if (bytes == 0) return fail(error, STRATA_INVALID, "alloc: zero bytes");
  uint64_t& used = used_[static_cast<size_t>(device)];
  const bool refused = ++allocs_ == options_.fail_alloc_at;
  if (refused || bytes > options_.memory_bytes - used) {
    return fail(error, STRATA_EXHAUSTED,
                "alloc: " + std::to_string(bytes) + " bytes wanted, " +
                    std::to_string(options_.memory_bytes - used) + " free" +
                    (refused ? " (refused by option)" : ""));
  }
  const uint64_t rounded = (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
  void* const address = std::aligned_alloc(kPinnedAlignment, rounded);
  if (address == nullptr) return fail(error, STRATA_EXHAUSTED, "alloc: out of host memory", ENOMEM);
  if (options_.poison != 0) std::memset(address, 0xff, rounded);
  allocations_.emplace(reinterpret_cast<uintptr_t>(address), Allocation{bytes, device});
  used += bytes;
  *memory = address;
  return STRATA_OK;
}

// Freeing waits for the device, as on real ones.
void HostDevice::free(void* memory) {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == allocations_.end()) return;
  streams_.finish_all();
  used_[static_cast<size_t>(found->second.device)] -= found->second.bytes;
  allocations_.erase(found);
  std::free(memory);
}

strata_status HostDevice::register_memory(void* memory, uint64_t bytes, strata_error* error) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (bytes == 0 || address == 0 || address % kPinnedAlignment != 0) {
    return fail(error, STRATA_INVALID, "host_register: memory must be page-aligned and not empty");
  }
  if (options_.fail_register != 0)
    return fail(error, STRATA_EXHAUSTED, "host_register: refused by option", ENOMEM);
  const auto next = registered_.lower_bound(address);
  const bool meets_next = next != registered_.end() && next->first < address + bytes;
  const bool meets_previous =
      next != registered_.begin() && std::prev(next)->first + std::prev(next)->second > address;
  if (meets_next || meets_previous) {
    return fail(error, STRATA_INVALID, "host_register: memory is registered already");
  }
  registered_.emplace(address, bytes);
  return STRATA_OK;
}

strata_status HostDevice::unregister_memory(void* memory, strata_error* error) {
  if (registered_.erase(reinterpret_cast<uintptr_t>(memory)) == 1) return STRATA_OK;
  return fail(error, STRATA_NOT_FOUND, "host_unregister: memory is not registered");
}

bool HostDevice::owns(const void* memory, uint64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto found = allocations_.upper_bound(address);
  if (found == allocations_.begin()) return false;
  --found;
  const uint64_t at = address - found->first;
  return at <= found->second.bytes && bytes <= found->second.bytes - at;
}

strata_status HostDevice::check(const strata_copy& copy, int32_t direction, strata_error* error) const {
  if (direction < STRATA_COPY_HOST_TO_DEVICE || direction > STRATA_COPY_DEVICE_TO_DEVICE) {
    return fail(error, STRATA_INVALID, "copy: unknown direction");
  }
  if (copy.to == nullptr || copy.from == nullptr) return fail(error, STRATA_INVALID, "copy: null address");
  if (direction != STRATA_COPY_HOST_TO_DEVICE && !owns(copy.from, copy.bytes)) {
    return fail(error, STRATA_INVALID, "copy: the source is outside of every allocation of this device");
  }
  if (direction != STRATA_COPY_DEVICE_TO_HOST && !owns(copy.to, copy.bytes)) {
    return fail(error, STRATA_INVALID, "copy: the target is outside of every allocation of this device");
  }
  return STRATA_OK;
}

strata_status HostDevice::copy(const strata_copy& copy, int32_t direction, void* stream,
                               strata_error* error) {
  Stream* const on = stream_of(stream);
  if (on == nullptr) return fail(error, STRATA_INVALID, "copy: unknown stream");
  if (copy.bytes == 0) return STRATA_OK;
  if (const strata_status status = check(copy, direction, error); status != STRATA_OK) return status;
  if (++copies_ == options_.fail_copy_at) return fail(error, STRATA_IO, "copy: refused by option");
  streams_.copy(on, copy);
  return STRATA_OK;
}

Stream* HostDevice::stream_of(void* handle) const {
  auto* const stream = handle == nullptr ? default_stream_ : static_cast<Stream*>(handle);
  return streams_.knows(stream) ? stream : nullptr;
}

Event* HostDevice::event_of(void* handle) const {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second.get();
}

void HostDevice::destroy_stream(void* stream) {
  auto* const known = static_cast<Stream*>(stream);
  if (stream != nullptr && known != default_stream_ && streams_.knows(known)) streams_.destroy(known);
}

void* HostDevice::create_event() {
  auto event = std::make_unique<Event>();
  void* const handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

void HostDevice::destroy_event(void* event) { events_.erase(event); }

strata_status HostDevice::record(void* event, void* stream, strata_error* error) {
  Event* const known = event_of(event);
  Stream* const on = stream_of(stream);
  if (known == nullptr || on == nullptr)
    return fail(error, STRATA_INVALID, "event_record: unknown event or stream");
  streams_.record(on, known);
  return STRATA_OK;
}

strata_status answer(VirtualStreams::Answer answer, strata_error* error) {
  if (answer != VirtualStreams::Answer::failed) return STRATA_OK;
  return fail(error, STRATA_IO, "a copy on this stream failed");
}

strata_status HostDevice::query(void* event, int32_t* done, strata_error* error) {
  Event* const known = event_of(event);
  if (known == nullptr) return fail(error, STRATA_INVALID, "event_query: unknown event");
  const VirtualStreams::Answer result = streams_.query(*known);
  *done = result == VirtualStreams::Answer::no ? 0 : 1;
  return answer(result, error);
}

strata_status HostDevice::wait(void* event, strata_error* error) {
  Event* const known = event_of(event);
  if (known == nullptr) return fail(error, STRATA_INVALID, "event_wait: unknown event");
  return answer(streams_.wait(*known), error);
}

strata_status HostDevice::stream_wait(void* stream, void* event, strata_error* error) {
  Event* const known = event_of(event);
  Stream* const on = stream_of(stream);
  if (known == nullptr || on == nullptr)
    return fail(error, STRATA_INVALID, "stream_wait: unknown event or stream");
  streams_.wait_on(on, *known);
  return STRATA_OK;
}

HostDevice& self(strata_instance* instance) { return *reinterpret_cast<HostDevice*>(instance); }

uint64_t machine_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : 0;
}

strata_status read_options(const strata_host* host, Options* options, strata_error* error) {
  uint64_t memory_mib = 0;
  const struct {
    sdk::NumberOption option;
    uint64_t* value;
  } numbers[] = {
      {{"device_host.devices", 1, 1, kMaxDevices}, &options->devices},
      {{"device_host.memory_mib", machine_memory() / kMiB, 1, kMaxNumber / kMiB}, &memory_mib},
      {{"device_host.poison", 0, 0, 1}, &options->poison},
      {{"device_host.fail_alloc_at", 0, 0, kMaxNumber}, &options->fail_alloc_at},
      {{"device_host.fail_copy_at", 0, 0, kMaxNumber}, &options->fail_copy_at},
      {{"device_host.fail_register", 0, 0, 1}, &options->fail_register},
      {{"device_host.fail_execute_at", 0, 0, kMaxNumber}, &options->streams.fail_executed},
      {{"device_host.seed", 1, 0, kMaxNumber}, &options->streams.seed},
      {{"device_host.delay", 0, 0, kMaxNumber}, &options->streams.delay},
  };
  for (const auto& number : numbers) {
    const strata_status status = sdk::option_number(host, number.option, number.value, error);
    if (status != STRATA_OK) return status;
  }
  options->memory_bytes = memory_mib * kMiB;
  options->streams.fixed_delay = sdk::option_text(host, "device_host.delay").has_value();
  return STRATA_OK;
}

int32_t probe(const strata_host*, strata_error*) { return 1; }  // every real device is preferred

strata_status create(const strata_host* host, strata_instance** instance, strata_error* error) {
  return guard(error, [&] {
    Options options;
    const strata_status status = read_options(host, &options, error);
    if (status == STRATA_OK) *instance = reinterpret_cast<strata_instance*>(new HostDevice(options));
    return status;
  });
}

const strata_device kTable = {
    .plugin = {.struct_size = sizeof(strata_device),
               .abi_major = STRATA_ABI_MAJOR,
               .abi_minor = STRATA_ABI_MINOR,
               .kind = STRATA_KIND_DEVICE,
               .caps_optional = STRATA_DEVICE_CAP_HOST_REGISTER | STRATA_DEVICE_CAP_COPY_BATCH,
               .name = "host",
               .version = "1",
               .probe = probe,
               .create = create,
               .destroy = [](strata_instance* instance) { delete &self(instance); }},
    .count = [](strata_instance* instance) { return self(instance).count(); },
    .info = [](strata_instance* instance, int32_t device, strata_device_info* info,
               strata_error* error) { return self(instance).info(device, info, error); },
    .alloc =
        [](strata_instance* instance, int32_t device, uint64_t bytes, void** memory, strata_error* error) {
          return guard(error, [&] { return self(instance).alloc(device, bytes, memory, error); });
        },
    .free = [](strata_instance* instance, int32_t, void* memory) { self(instance).free(memory); },
    .stream_create =
        [](strata_instance* instance, int32_t device, void** stream, strata_error* error) {
          return guard(error, [&] {
            if (!self(instance).has(device))
              return fail(error, STRATA_NOT_FOUND, "stream_create: no such device");
            *stream = self(instance).create_stream();
            return strata_status{STRATA_OK};
          });
        },
    .stream_destroy = [](strata_instance* instance, void* stream) { self(instance).destroy_stream(stream); },
    .copy_async =
        [](strata_instance* instance, void* to, const void* from, uint64_t bytes, int32_t direction,
           void* stream, strata_error* error) {
          return guard(error, [&] {
            return self(instance).copy({to, from, bytes}, direction, stream, error);
          });
        },
    .event_create =
        [](strata_instance* instance, int32_t device, void** event, strata_error* error) {
          return guard(error, [&] {
            if (!self(instance).has(device))
              return fail(error, STRATA_NOT_FOUND, "event_create: no such device");
            *event = self(instance).create_event();
            return strata_status{STRATA_OK};
          });
        },
    .event_destroy = [](strata_instance* instance, void* event) { self(instance).destroy_event(event); },
    .event_record =
        [](strata_instance* instance, void* event, void* stream, strata_error* error) {
          return guard(error, [&] { return self(instance).record(event, stream, error); });
        },
    .event_query =
        [](strata_instance* instance, void* event, int32_t* done, strata_error* error) {
          return guard(error, [&] { return self(instance).query(event, done, error); });
        },
    .event_wait =
        [](strata_instance* instance, void* event, strata_error* error) {
          return guard(error, [&] { return self(instance).wait(event, error); });
        },
    .stream_wait =
        [](strata_instance* instance, void* stream, void* event, strata_error* error) {
          return guard(error, [&] { return self(instance).stream_wait(stream, event, error); });
        },
    .host_register =
        [](strata_instance* instance, void* memory, uint64_t bytes, strata_error* error) {
          return guard(error, [&] { return self(instance).register_memory(memory, bytes, error); });
        },
    .host_unregister = [](strata_instance* instance, void* memory,
                          strata_error* error) { return self(instance).unregister_memory(memory, error); },
    .copy_batch_async =
        [](strata_instance* instance, const strata_copy* copies, uint32_t count, int32_t direction,
           void* stream, strata_error* error) {
          return guard(error, [&] {
            for (uint32_t i = 0; i < count; ++i) {
              const strata_status status = self(instance).copy(copies[i], direction, stream, error);
              if (status != STRATA_OK) return status;
            }
            return strata_status{STRATA_OK};
          });
        },
};

}  // namespace
}  // namespace strata::device_host

STRATA_PLUGIN_ENTRY(device_host) {
  return kind == STRATA_KIND_DEVICE ? &strata::device_host::kTable.plugin : nullptr;
}
