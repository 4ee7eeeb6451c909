#include "plugins/host/io_adapter.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "plugins/host/abi_error.hpp"

namespace strata {
namespace {

constexpr uint32_t kMaxAlignment = 1u << 20;

strata_io_op to_abi(const IoOp& op) {
  static_assert(static_cast<uint32_t>(IoKind::read) == STRATA_IO_READ);
  static_assert(static_cast<uint32_t>(IoKind::write) == STRATA_IO_WRITE);
  static_assert(static_cast<uint32_t>(IoKind::sync_data) == STRATA_IO_SYNC_DATA);
  return {.kind = static_cast<uint32_t>(op.kind),
          .fd = op.file.value,
          .data = op.data,
          .length = op.length_bytes,
          .offset = op.offset,
          .cookie = op.cookie};
}

std::string text_of(const strata_io_done& done) {
  if (done.os_errno != 0) return strerrordesc_np(done.os_errno);
  return done.status == STRATA_IO ? "short read at end of file" : "failed";
}

IoDone io_done(const strata_io_done& done) {
  if (done.status == STRATA_OK) return {done.cookie, {}};
  strata_error error = empty_abi_error();
  error.os_errno = done.os_errno;
  const std::string text = text_of(done);
  std::memcpy(error.message, text.data(), std::min(text.size(), sizeof error.message - 1));
  return {done.cookie, from_abi(done.status, error, "transfer")};
}

bool is_alignment(uint32_t value) { return std::has_single_bit(value) && value <= kMaxAlignment; }

}  // namespace

Result<std::unique_ptr<IoAdapter>> IoAdapter::make(const strata_io* table, strata_instance* instance) {
  std::unique_ptr<IoAdapter> adapter(new IoAdapter(table, instance));
  strata_error error = empty_abi_error();
  strata_io_info info{};
  info.struct_size = sizeof info;
  STRATA_TRY(from_abi(table->info(instance, &info, &error), error, "io info"));
  if (!is_alignment(info.buffer_align) || !is_alignment(info.length_align) || info.max_in_flight == 0) {
    return make_error(ErrorCode::invalid,
                      std::string("io ") + table->plugin.name + ": alignments or depth make no sense");
  }
  adapter->requirements_ = {info.buffer_align, info.length_align, info.max_in_flight};
  return adapter;
}

bool IoAdapter::registers() const {
  return ((table_->plugin.caps_required | table_->plugin.caps_optional) & STRATA_IO_CAP_REGISTER) != 0;
}

Result<size_t> IoAdapter::submit(std::span<const IoOp> ops) {
  const size_t offered = std::min<size_t>(ops.size(), requirements_.max_in_flight);
  ops_.resize(offered);
  std::transform(ops.begin(), ops.begin() + static_cast<ptrdiff_t>(offered), ops_.begin(), to_abi);
  strata_error error = empty_abi_error();
  uint32_t accepted = 0;
  STRATA_TRY(
      from_abi(table_->submit(instance_, ops_.data(), static_cast<uint32_t>(offered), &accepted, &error),
               error, "io submit"));
  if (accepted > offered) return make_error(ErrorCode::internal, "io submit: more accepted than offered");
  return accepted;
}

Result<size_t> IoAdapter::poll(size_t min, uint64_t timeout_ns, std::span<IoDone> done) {
  const auto capacity = static_cast<uint32_t>(std::min<size_t>(done.size(), requirements_.max_in_flight));
  done_.resize(capacity);
  strata_error error = empty_abi_error();
  uint32_t count = 0;
  STRATA_TRY(from_abi(table_->poll(instance_, static_cast<uint32_t>(std::min<size_t>(min, capacity)),
                                   timeout_ns, done_.data(), capacity, &count, &error),
                      error, "io poll"));
  if (count > capacity)
    return make_error(ErrorCode::internal, "io poll: more completions than there is room for");
  std::transform(done_.begin(), done_.begin() + count, done.begin(),
                 [](const strata_io_done& one) { return io_done(one); });
  return count;
}

Status IoAdapter::register_buffer(std::span<std::byte> memory) {
  if (!registers())
    return make_error(ErrorCode::unsupported, "registering memory for transfers: not offered");
  strata_error error = empty_abi_error();
  return from_abi(table_->register_buffer(instance_, memory.data(), memory.size(), &error), error,
                  "registering memory for transfers");
}

Status IoAdapter::unregister_buffer(std::span<std::byte> memory) {
  if (!registers())
    return make_error(ErrorCode::unsupported, "unregistering memory for transfers: not offered");
  strata_error error = empty_abi_error();
  return from_abi(table_->unregister_buffer(instance_, memory.data(), &error), error,
                  "unregistering memory for transfers");
}

}  // namespace strata
