/* Every struct of the plugin ABI with its fields in order, of 1.0 and of what each minor version appended. The includer gives the two macros:
 * STRUCT(type) and FIELD(type, field). Plain C. */
#ifndef STRATA_TESTS_ABI_LAYOUT_H
#define STRATA_TESTS_ABI_LAYOUT_H

#include "plugins/abi/strata_device.h"
#include "plugins/abi/strata_io.h"
#include "plugins/abi/strata_model.h"
#include "plugins/abi/strata_plugin.h"

#define STRATA_ABI_1_0(STRUCT, FIELD) \
  STRUCT(strata_error)                                                                               \
  FIELD(strata_error, code)                                                                          \
  FIELD(strata_error, os_errno)                                                                      \
  FIELD(strata_error, vendor_code)                                                                   \
  FIELD(strata_error, flags)                                                                         \
  FIELD(strata_error, reserved0)                                                                     \
  FIELD(strata_error, message)                                                                       \
  STRUCT(strata_host)                                                                                \
  FIELD(strata_host, struct_size)                                                                    \
  FIELD(strata_host, abi_major)                                                                      \
  FIELD(strata_host, abi_minor)                                                                      \
  FIELD(strata_host, ctx)                                                                            \
  FIELD(strata_host, log)                                                                            \
  FIELD(strata_host, now_ns)                                                                         \
  FIELD(strata_host, get_option)                                                                     \
  STRUCT(strata_plugin)                                                                              \
  FIELD(strata_plugin, struct_size)                                                                  \
  FIELD(strata_plugin, abi_major)                                                                    \
  FIELD(strata_plugin, abi_minor)                                                                    \
  FIELD(strata_plugin, kind)                                                                         \
  FIELD(strata_plugin, reserved0)                                                                    \
  FIELD(strata_plugin, caps_required)                                                                \
  FIELD(strata_plugin, caps_optional)                                                                \
  FIELD(strata_plugin, name)                                                                         \
  FIELD(strata_plugin, version)                                                                      \
  FIELD(strata_plugin, probe)                                                                        \
  FIELD(strata_plugin, create)                                                                       \
  FIELD(strata_plugin, destroy)                                                                      \
  FIELD(strata_plugin, query)                                                                        \
  STRUCT(strata_device_info)                                                                         \
  FIELD(strata_device_info, struct_size)                                                             \
  FIELD(strata_device_info, pinned_alignment)                                                        \
  FIELD(strata_device_info, memory_total)                                                            \
  FIELD(strata_device_info, memory_free)                                                             \
  FIELD(strata_device_info, unified_memory)                                                          \
  FIELD(strata_device_info, reserved0)                                                               \
  FIELD(strata_device_info, name)                                                                    \
  FIELD(strata_device_info, uuid)                                                                    \
  STRUCT(strata_copy)                                                                                \
  FIELD(strata_copy, to)                                                                             \
  FIELD(strata_copy, from)                                                                           \
  FIELD(strata_copy, bytes)                                                                          \
  STRUCT(strata_device)                                                                              \
  FIELD(strata_device, plugin)                                                                       \
  FIELD(strata_device, count)                                                                        \
  FIELD(strata_device, info)                                                                         \
  FIELD(strata_device, alloc)                                                                        \
  FIELD(strata_device, free)                                                                         \
  FIELD(strata_device, stream_create)                                                                \
  FIELD(strata_device, stream_destroy)                                                               \
  FIELD(strata_device, copy_async)                                                                   \
  FIELD(strata_device, event_create)                                                                 \
  FIELD(strata_device, event_destroy)                                                                \
  FIELD(strata_device, event_record)                                                                 \
  FIELD(strata_device, event_query)                                                                  \
  FIELD(strata_device, event_wait)                                                                   \
  FIELD(strata_device, stream_wait)                                                                  \
  FIELD(strata_device, host_register)                                                                \
  FIELD(strata_device, host_unregister)                                                              \
  FIELD(strata_device, copy_batch_async)                                                             \
  STRUCT(strata_io_info)                                                                             \
  FIELD(strata_io_info, struct_size)                                                                 \
  FIELD(strata_io_info, buffer_align)                                                                \
  FIELD(strata_io_info, length_align)                                                                \
  FIELD(strata_io_info, max_in_flight)                                                               \
  STRUCT(strata_io_op)                                                                               \
  FIELD(strata_io_op, kind)                                                                          \
  FIELD(strata_io_op, fd)                                                                            \
  FIELD(strata_io_op, data)                                                                          \
  FIELD(strata_io_op, length)                                                                        \
  FIELD(strata_io_op, offset)                                                                        \
  FIELD(strata_io_op, cookie)                                                                        \
  STRUCT(strata_io_done)                                                                             \
  FIELD(strata_io_done, cookie)                                                                      \
  FIELD(strata_io_done, status)                                                                      \
  FIELD(strata_io_done, os_errno)                                                                    \
  STRUCT(strata_io)                                                                                  \
  FIELD(strata_io, plugin)                                                                           \
  FIELD(strata_io, info)                                                                             \
  FIELD(strata_io, submit)                                                                           \
  FIELD(strata_io, poll)                                                                             \
  FIELD(strata_io, in_flight)                                                                        \
  FIELD(strata_io, register_buffer)                                                                  \
  FIELD(strata_io, unregister_buffer)                                                                \
  STRUCT(strata_model_info)                                                                          \
  FIELD(strata_model_info, struct_size)                                                              \
  FIELD(strata_model_info, stages)                                                                   \
  FIELD(strata_model_info, slots)                                                                    \
  FIELD(strata_model_info, context_tokens)                                                           \
  FIELD(strata_model_info, vocabulary)                                                               \
  FIELD(strata_model_info, tokens_per_block)                                                         \
  FIELD(strata_model_info, staged_imports)                                                           \
  FIELD(strata_model_info, reserved0)                                                                \
  FIELD(strata_model_info, caps)                                                                     \
  FIELD(strata_model_info, parameters)                                                               \
  FIELD(strata_model_info, weight_bytes)                                                             \
  FIELD(strata_model_info, max_block_bytes)                                                          \
  FIELD(strata_model_info, checkpoint_bytes)                                                         \
  FIELD(strata_model_info, name)                                                                     \
  FIELD(strata_model_info, state_version)                                                            \
  STRUCT(strata_text)                                                                                \
  FIELD(strata_text, data)                                                                           \
  FIELD(strata_text, length)                                                                         \
  STRUCT(strata_chat_message)                                                                        \
  FIELD(strata_chat_message, role)                                                                   \
  FIELD(strata_chat_message, content)                                                                \
  STRUCT(strata_batch_item)                                                                          \
  FIELD(strata_batch_item, slot)                                                                     \
  FIELD(strata_batch_item, position)                                                                 \
  FIELD(strata_batch_item, token_count)                                                              \
  FIELD(strata_batch_item, want_logits)                                                              \
  FIELD(strata_batch_item, tokens)                                                                   \
  STRUCT(strata_model)                                                                               \
  FIELD(strata_model, plugin)                                                                        \
  FIELD(strata_model, bind_device)                                                                   \
  FIELD(strata_model, info)                                                                          \
  FIELD(strata_model, identity_fields)                                                               \
  FIELD(strata_model, files)                                                                         \
  FIELD(strata_model, tokenize)                                                                      \
  FIELD(strata_model, detokenize)                                                                    \
  FIELD(strata_model, is_end_of_generation)                                                          \
  FIELD(strata_model, chat_template)                                                                 \
  FIELD(strata_model, apply_chat_template)                                                           \
  FIELD(strata_model, decode)                                                                        \
  FIELD(strata_model, length)                                                                        \
  FIELD(strata_model, truncate)                                                                      \
  FIELD(strata_model, clear)                                                                         \
  FIELD(strata_model, block_bytes)                                                                   \
  FIELD(strata_model, export_block)                                                                  \
  FIELD(strata_model, export_checkpoint)                                                             \
  FIELD(strata_model, import_begin)                                                                  \
  FIELD(strata_model, import_block)                                                                  \
  FIELD(strata_model, import_checkpoint)                                                             \
  FIELD(strata_model, import_commit)                                                                 \
  FIELD(strata_model, import_abort)

/* The last struct of the list grew. */
#define STRATA_ABI_1_1(STRUCT, FIELD)  \
  STRATA_ABI_1_0(STRUCT, FIELD)        \
  FIELD(strata_model, chat_format)     \
  FIELD(strata_model, chat_parse)      \
  FIELD(strata_model, sampler_create)  \
  FIELD(strata_model, sampler_sample)  \
  FIELD(strata_model, sampler_accept)  \
  FIELD(strata_model, sampler_destroy)

#ifdef __cplusplus
extern "C" {
#endif
/* "struct size" and "struct.field offset size" lines, as a C compiler lays it out. Returns the length. */
unsigned long strata_abi_layout_in_c(char* text, unsigned long capacity);
#ifdef __cplusplus
}
#endif

#endif
