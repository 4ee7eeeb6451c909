#include "plugins/host/table_rules.hpp"

#include <cstring>

#include "plugins/abi/strata_device.h"
#include "plugins/abi/strata_io.h"
#include "plugins/abi/strata_model.h"

namespace strata {
namespace {

constexpr size_t kMaxNameBytes = 64;

#define HAS(table, function) \
  TableFunction { #function, offsetof(table, function) }
#define IMPLIED(table, function, cap) \
  TableFunction { #function, offsetof(table, function), cap }

constexpr TableFunction kDeviceFunctions[] = {
    HAS(strata_device, count),
    HAS(strata_device, info),
    HAS(strata_device, alloc),
    HAS(strata_device, free),
    HAS(strata_device, stream_create),
    HAS(strata_device, stream_destroy),
    HAS(strata_device, copy_async),
    HAS(strata_device, event_create),
    HAS(strata_device, event_destroy),
    HAS(strata_device, event_record),
    HAS(strata_device, event_query),
    HAS(strata_device, event_wait),
    HAS(strata_device, stream_wait),
    IMPLIED(strata_device, host_register, STRATA_DEVICE_CAP_HOST_REGISTER),
    IMPLIED(strata_device, host_unregister, STRATA_DEVICE_CAP_HOST_REGISTER),
    IMPLIED(strata_device, copy_batch_async, STRATA_DEVICE_CAP_COPY_BATCH),
};

constexpr TableFunction kIoFunctions[] = {
    HAS(strata_io, info),
    HAS(strata_io, submit),
    HAS(strata_io, poll),
    HAS(strata_io, in_flight),
    IMPLIED(strata_io, register_buffer, STRATA_IO_CAP_REGISTER),
    IMPLIED(strata_io, unregister_buffer, STRATA_IO_CAP_REGISTER),
};

constexpr TableFunction kModelFunctions[] = {
    HAS(strata_model, bind_device),
    HAS(strata_model, info),
    HAS(strata_model, identity_fields),
    HAS(strata_model, files),
    HAS(strata_model, decode),
    HAS(strata_model, length),
    HAS(strata_model, truncate),
    HAS(strata_model, clear),
    HAS(strata_model, block_bytes),
    HAS(strata_model, export_block),
    HAS(strata_model, export_checkpoint),
    HAS(strata_model, import_begin),
    HAS(strata_model, import_block),
    HAS(strata_model, import_checkpoint),
    HAS(strata_model, import_commit),
    HAS(strata_model, import_abort),
    IMPLIED(strata_model, tokenize, STRATA_MODEL_CAP_TOKENIZER),
    IMPLIED(strata_model, detokenize, STRATA_MODEL_CAP_TOKENIZER),
    IMPLIED(strata_model, is_end_of_generation, STRATA_MODEL_CAP_TOKENIZER),
    IMPLIED(strata_model, chat_template, STRATA_MODEL_CAP_TOKENIZER),
    IMPLIED(strata_model, apply_chat_template, STRATA_MODEL_CAP_TOKENIZER),
    IMPLIED(strata_model, chat_format, STRATA_MODEL_CAP_CHAT),
    IMPLIED(strata_model, chat_parse, STRATA_MODEL_CAP_CHAT),
    IMPLIED(strata_model, sampler_create, STRATA_MODEL_CAP_SAMPLING),
    IMPLIED(strata_model, sampler_sample, STRATA_MODEL_CAP_SAMPLING),
    IMPLIED(strata_model, sampler_accept, STRATA_MODEL_CAP_SAMPLING),
    IMPLIED(strata_model, sampler_destroy, STRATA_MODEL_CAP_SAMPLING),
};

#undef HAS
#undef IMPLIED

constexpr TableRules kDevice{
    sizeof(strata_device), STRATA_DEVICE_CAP_HOST_REGISTER | STRATA_DEVICE_CAP_COPY_BATCH, kDeviceFunctions};
constexpr TableRules kIo{sizeof(strata_io), STRATA_IO_CAP_REGISTER, kIoFunctions};
constexpr size_t kModelBytes1_0 = offsetof(strata_model, import_abort) + sizeof(strata_model::import_abort);
constexpr TableRules kModel{kModelBytes1_0,
                            STRATA_MODEL_CAP_TOKENIZER | STRATA_MODEL_CAP_CHAT | STRATA_MODEL_CAP_SAMPLING,
                            kModelFunctions};

// Or beyond the end of a table of an earlier minor version.
bool is_null(const strata_plugin* table, size_t offset) {
  using Function = void (*)();
  if (table->struct_size < offset + sizeof(Function)) return true;
  Function function = nullptr;
  std::memcpy(&function, reinterpret_cast<const char*>(table) + offset, sizeof function);
  return function == nullptr;
}

bool is_name(const char* text) {
  return text != nullptr && text[0] != '\0' && std::memchr(text, '\0', kMaxNameBytes) != nullptr;
}

}  // namespace

const TableRules* table_rules(uint32_t kind) {
  switch (kind) {
    case STRATA_KIND_DEVICE:
      return &kDevice;
    case STRATA_KIND_IO:
      return &kIo;
    case STRATA_KIND_MODEL:
      return &kModel;
    default:
      return nullptr;
  }
}

const char* missing_of_1_0(const TableRules& rules, const strata_plugin* table) {
  if (table->struct_size < rules.size_1_0) return "the end of the table of ABI 1.0";
  if (!is_name(table->name)) return "name";
  if (!is_name(table->version)) return "version";
  if (table->probe == nullptr) return "probe";
  if (table->create == nullptr) return "create";
  if (table->destroy == nullptr) return "destroy";
  for (const TableFunction& function : rules.functions) {
    if (function.implied_by == 0 && is_null(table, function.offset)) return function.name;
  }
  return nullptr;
}

const char* missing_implied(const TableRules& rules, const strata_plugin* table) {
  const uint64_t caps = table->caps_required | table->caps_optional;
  for (const TableFunction& function : rules.functions) {
    if ((caps & function.implied_by) != 0 && is_null(table, function.offset)) return function.name;
  }
  return nullptr;
}

}  // namespace strata
