// The model table of the reference model: argument checks, copying out, and no exception beyond it.
#include <algorithm>
#include <cstring>
#include <string>

#include "plugins/model_reference/failure.hpp"
#include "plugins/model_reference/instance.hpp"
#include "plugins/model_reference/vocabulary.hpp"

namespace strata::reference {
namespace {

Instance& self(strata_instance* instance) { return *reinterpret_cast<Instance*>(instance); }

int32_t probe(const strata_host* /*host*/, strata_error* /*error*/) { return 10; }

strata_status create(const strata_host* host, strata_instance** instance, strata_error* error) {
  return guarded(error, [&]() -> strata_status {
    Options options;
    if (const strata_status status = read_options(host, options, error); status != STRATA_OK) return status;
    *instance = reinterpret_cast<strata_instance*>(new Instance(options));
    return STRATA_OK;
  });
}

void destroy(strata_instance* instance) { delete &self(instance); }

strata_status bind_device(strata_instance* instance, const strata_device* device,
                          strata_instance* device_instance, int32_t index, strata_error* error) {
  return guarded(
      error, [&]() -> strata_status { return self(instance).bind(device, device_instance, index, error); });
}

strata_status info(strata_instance* instance, strata_model_info* out, strata_error* error) {
  if (out->struct_size < sizeof(strata_model_info))  // there is no older version of it
    return fail(error, STRATA_INVALID, "model info of %u bytes is too small", out->struct_size);
  self(instance).describe(*out);
  return STRATA_OK;
}

strata_status identity_fields(strata_instance* instance, strata_pair_visitor visit, void* ctx,
                              strata_error* error) {
  return guarded(error, [&]() -> strata_status {
    self(instance).identity(visit, ctx);
    return STRATA_OK;
  });
}

strata_status files(strata_instance* /*instance*/, strata_pair_visitor /*visit*/, void* /*ctx*/,
                    strata_error* /*error*/) {
  return STRATA_OK;  // the weights come from the seed, which is an identity field
}

// Writes what fits, reports the whole length.
void copy_out(std::string_view from, char* text, uint64_t capacity, uint64_t* length) {
  if (capacity != 0) std::memcpy(text, from.data(), std::min<uint64_t>(capacity, from.size()));
  *length = from.size();
}

std::string_view view(strata_text text) {
  return text.length == 0 ? std::string_view() : std::string_view(text.data, text.length);
}

strata_status tokenize_text(strata_instance* /*instance*/, strata_text text, int32_t add_special,
                            int32_t parse_special, int32_t* tokens, uint32_t capacity, uint32_t* count,
                            strata_error* error) {
  return guarded(error, [&]() -> strata_status {
    if (text.length >= UINT32_MAX) return fail(error, STRATA_INVALID, "text is too long");
    const std::vector<int32_t> all = tokenize(view(text), add_special != 0 ? AddBegin::yes : AddBegin::no,
                                              parse_special != 0 ? ParseSpecial::yes : ParseSpecial::no);
    *count = static_cast<uint32_t>(all.size());
    std::copy_n(all.begin(), std::min(*count, capacity), tokens);
    return STRATA_OK;
  });
}

strata_status detokenize_tokens(strata_instance* /*instance*/, const int32_t* tokens, uint32_t token_count,
                                char* text, uint64_t capacity, uint64_t* length, strata_error* error) {
  return guarded(error, [&]() -> strata_status {
    const std::span<const int32_t> all(tokens, token_count);
    if (const strata_status status = check_tokens(all, error); status != STRATA_OK) return status;
    std::string whole;
    if (!detokenize(all, whole)) return fail(error, STRATA_INTERNAL, "a checked token has no text");
    copy_out(whole, text, capacity, length);
    return STRATA_OK;
  });
}

int32_t ends_generation(strata_instance* /*instance*/, int32_t token) {
  return is_end_of_generation(token) ? 1 : 0;
}

strata_status template_text(strata_instance* /*instance*/, char* text, uint64_t capacity, uint64_t* length,
                            strata_error* /*error*/) {
  copy_out(chat_template(), text, capacity, length);
  return STRATA_OK;
}

strata_status apply_template(strata_instance* /*instance*/, const strata_chat_message* messages,
                             uint32_t count, int32_t add_generation_prompt, char* text, uint64_t capacity,
                             uint64_t* length, strata_error* error) {
  return guarded(error, [&]() -> strata_status {
    std::vector<Message> views;
    for (uint32_t i = 0; i < count; ++i) views.push_back({view(messages[i].role), view(messages[i].content)});
    std::string whole;
    if (!render_chat(views, add_generation_prompt != 0 ? GenerationPrompt::yes : GenerationPrompt::no, whole))
      return fail(error, STRATA_INVALID, "message role \"%.40s\" is not known", whole.c_str());
    copy_out(whole, text, capacity, length);
    return STRATA_OK;
  });
}

strata_status decode(strata_instance* instance, const strata_batch_item* items, uint32_t count,
                     const float** logits, strata_error* error) {
  return guarded(error, [&]() -> strata_status {
    return self(instance).decode({items, count}, logits, error);
  });
}

uint32_t length(strata_instance* instance, int32_t slot) {
  const SlotStore* store = self(instance).store.get();
  return store != nullptr && store->is_slot(slot) ? store->length(slot) : 0;
}

strata_status truncate(strata_instance* instance, int32_t slot, uint32_t tokens, strata_error* error) {
  return guarded(error, [&]() -> strata_status { return self(instance).truncate(slot, tokens, error); });
}

strata_status clear(strata_instance* instance, int32_t slot, strata_error* error) {
  return guarded(error, [&]() -> strata_status { return self(instance).clear(slot, error); });
}

uint64_t block_bytes(strata_instance* instance, uint32_t stage, uint32_t count) {
  return stage < self(instance).options.stages ? self(instance).layout.block_bytes(count) : 0;
}

// Runs a function on the slot store, when there is one.
template <class Function>
strata_status with_store(strata_instance* instance, strata_error* error, Function&& function) {
  return guarded(error, [&]() -> strata_status {
    const strata_status status = self(instance).check_bound(error);
    return status == STRATA_OK ? function(*self(instance).store) : status;
  });
}

strata_status export_block(strata_instance* instance, int32_t slot, uint32_t stage, uint32_t first,
                           uint32_t count, void* to, uint64_t capacity, void* stream, strata_error* error) {
  return with_store(instance, error, [&](SlotStore& store) {
    return store.export_block(slot, stage, first, count, to, capacity, stream, error);
  });
}

strata_status export_checkpoint(strata_instance* instance, int32_t slot, uint32_t stage, void* to,
                                uint64_t capacity, void* stream, uint64_t* bytes, strata_error* error) {
  return with_store(instance, error, [&](SlotStore& store) {
    return store.export_checkpoint(slot, stage, to, capacity, stream, bytes, error);
  });
}

strata_status import_begin(strata_instance* instance, int32_t slot, const int32_t* tokens, uint32_t count,
                           uint64_t* import, strata_error* error) {
  return with_store(instance, error, [&](SlotStore& store) {
    const strata_status status = check_tokens({tokens, count}, error);
    return status == STRATA_OK ? store.begin(slot, count, import, error) : status;
  });
}

strata_status import_block(strata_instance* instance, uint64_t import, uint32_t stage, uint32_t first,
                           uint32_t count, const void* from, uint64_t bytes, void* stream,
                           strata_error* error) {
  return with_store(instance, error, [&](SlotStore& store) {
    return store.add_block(import, stage, first, count, from, bytes, stream, error);
  });
}

strata_status import_checkpoint(strata_instance* instance, uint64_t import, uint32_t stage, uint32_t position,
                                const void* from, uint64_t bytes, void* stream, strata_error* error) {
  return with_store(instance, error, [&](SlotStore& store) {
    return store.add_checkpoint(import, stage, position, from, bytes, stream, error);
  });
}

strata_status import_commit(strata_instance* instance, uint64_t import, strata_error* error) {
  return with_store(instance, error, [&](SlotStore& store) { return store.commit(import, error); });
}

void import_abort(strata_instance* instance, uint64_t import) {
  if (self(instance).store != nullptr) self(instance).store->abort(import);
}

strata_plugin header() {
  strata_plugin plugin = {};
  plugin.struct_size = sizeof(strata_model);
  plugin.abi_major = STRATA_ABI_MAJOR;
  plugin.abi_minor = STRATA_ABI_MINOR;
  plugin.kind = STRATA_KIND_MODEL;
  plugin.caps_optional = STRATA_MODEL_CAP_TOKENIZER;
  plugin.name = "reference";
  plugin.version = "1.0";
  plugin.probe = probe;
  plugin.create = create;
  plugin.destroy = destroy;
  return plugin;
}

strata_model table() {
  strata_model model = {};
  model.plugin = header();
  model.bind_device = bind_device;
  model.info = info;
  model.identity_fields = identity_fields;
  model.files = files;
  model.tokenize = tokenize_text;
  model.detokenize = detokenize_tokens;
  model.is_end_of_generation = ends_generation;
  model.chat_template = template_text;
  model.apply_chat_template = apply_template;
  model.decode = decode;
  model.length = length;
  model.truncate = truncate;
  model.clear = clear;
  model.block_bytes = block_bytes;
  model.export_block = export_block;
  model.export_checkpoint = export_checkpoint;
  model.import_begin = import_begin;
  model.import_block = import_block;
  model.import_checkpoint = import_checkpoint;
  model.import_commit = import_commit;
  model.import_abort = import_abort;
  return model;
}

}  // namespace
}  // namespace strata::reference

STRATA_PLUGIN_ENTRY(model_reference) {
  static const strata_model kTable = strata::reference::table();
  return kind == STRATA_KIND_MODEL ? &kTable.plugin : nullptr;
}
