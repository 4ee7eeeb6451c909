// The model table of llama.cpp: arguments in, answers copied out, and no exception beyond it.
#include <algorithm>
#include <cstring>
#include <string>

#include "plugins/model_llama/failure.hpp"
#include "plugins/model_llama/instance.hpp"
#include "plugins/model_llama/sampling.hpp"

namespace strata::llama {
namespace {

Instance& self(strata_instance* instance) { return *reinterpret_cast<Instance*>(instance); }

// The libraries are built for processors with AVX2 (tools/install_deps llama).
int32_t probe(const strata_host* /*host*/, strata_error* error) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    sdk::fail(error, STRATA_UNAVAILABLE, "this processor has no AVX2");
    return 0;
  }
#endif
  static_cast<void>(error);
  return 5;
}

strata_status create(const strata_host* host, strata_instance** instance, strata_error* error) {
  return guarded(
      error, [&] { *instance = reinterpret_cast<strata_instance*>(new Instance(host, read_options(host))); });
}

void destroy(strata_instance* instance) { delete &self(instance); }

strata_status bind_device(strata_instance* instance, const strata_device* device,
                          strata_instance* device_instance, int32_t index, strata_error* error) {
  return guarded(error, [&] { self(instance).bind(device, device_instance, index); });
}

strata_status info(strata_instance* instance, strata_model_info* out, strata_error* error) {
  return guarded(error, [&] {
    if (out->struct_size < sizeof(strata_model_info))
      fail(STRATA_INVALID, "model info of %u bytes is too small", out->struct_size);
    self(instance).describe(*out);
  });
}

strata_status identity_fields(strata_instance* instance, strata_pair_visitor visit, void* ctx,
                              strata_error* error) {
  return guarded(error, [&] { self(instance).identity(visit, ctx); });
}

strata_status files(strata_instance* instance, strata_pair_visitor visit, void* ctx, strata_error* error) {
  return guarded(error, [&] { self(instance).files(visit, ctx); });
}

// Writes what fits, reports the whole length.
void copy_out(std::string_view from, char* text, uint64_t capacity, uint64_t* length) {
  if (capacity != 0) std::memcpy(text, from.data(), std::min<uint64_t>(capacity, from.size()));
  *length = from.size();
}

std::string_view view(strata_text text) {
  return text.length == 0 ? std::string_view() : std::string_view(text.data, text.length);
}

strata_status tokenize(strata_instance* instance, strata_text text, int32_t add_special,
                       int32_t parse_special, int32_t* tokens, uint32_t capacity, uint32_t* count,
                       strata_error* error) {
  return guarded(error, [&] {
    const auto all = self(instance).model().tokenize(view(text), add_special != 0, parse_special != 0);
    *count = static_cast<uint32_t>(all.size());
    std::copy_n(all.begin(), std::min(*count, capacity), tokens);
  });
}

strata_status detokenize(strata_instance* instance, const int32_t* tokens, uint32_t count, char* text,
                         uint64_t capacity, uint64_t* length, strata_error* error) {
  return guarded(error,
                 [&] { copy_out(self(instance).model().detokenize(tokens, count), text, capacity, length); });
}

int32_t ends_generation(strata_instance* instance, int32_t token) {
  const LoadedModel& model = self(instance).model();
  const bool known = token >= 0 && static_cast<uint32_t>(token) < model.vocabulary_size();
  return known && llama_vocab_is_eog(model.vocabulary(), token) ? 1 : 0;
}

strata_status chat_template(strata_instance* instance, char* text, uint64_t capacity, uint64_t* length,
                            strata_error* error) {
  return guarded(error, [&] { copy_out(self(instance).chat().template_text(), text, capacity, length); });
}

strata_status apply_chat_template(strata_instance* instance, const strata_chat_message* messages,
                                  uint32_t count, int32_t add_generation_prompt, char* text,
                                  uint64_t capacity, uint64_t* length, strata_error* error) {
  return guarded(error, [&] {
    std::vector<std::pair<std::string, std::string>> all;
    for (uint32_t i = 0; i < count; ++i) all.emplace_back(view(messages[i].role), view(messages[i].content));
    copy_out(self(instance).chat().apply(all, add_generation_prompt != 0), text, capacity, length);
  });
}

strata_status chat_format(strata_instance* instance, strata_text request, strata_pair_visitor visit,
                          void* ctx, strata_error* error) {
  return guarded(error, [&] {
    const FormattedChat chat = self(instance).chat().format(std::string(view(request)));
    const auto pair = [&](std::string_view key, std::string_view value) {
      visit(ctx, {key.data(), key.size()}, {value.data(), value.size()});
    };
    pair("prompt", chat.prompt);
    for (const std::string& stop : chat.stops) pair("stop", stop);
    pair("grammar", chat.grammar);
    pair("grammar_lazy", chat.grammar_lazy ? "1" : "0");
    pair("parser", chat.parser);
  });
}

strata_status chat_parse(strata_instance* instance, strata_text parser, strata_text text, int32_t final,
                         char* json, uint64_t capacity, uint64_t* length, strata_error* error) {
  return guarded(error, [&] {
    const std::string message =
        self(instance).chat().parse(std::string(view(parser)), std::string(view(text)), final != 0);
    copy_out(message, json, capacity, length);
  });
}

strata_status sampler_create(strata_instance* instance, strata_text params, strata_sampler** sampler,
                             strata_error* error) {
  return guarded(error, [&] {
    *sampler = reinterpret_cast<strata_sampler*>(
        new RequestSampler(self(instance).model(), std::string(view(params))));
  });
}

RequestSampler& of(strata_sampler* sampler) { return *reinterpret_cast<RequestSampler*>(sampler); }

strata_status sampler_sample(strata_instance* instance, strata_sampler* sampler, int32_t slot, int32_t* token,
                             strata_error* error) {
  return guarded(error, [&] { *token = of(sampler).sample(self(instance).slots(), slot); });
}

strata_status sampler_accept(strata_instance* instance, strata_sampler* sampler, int32_t token,
                             int32_t generated, strata_error* error) {
  return guarded(error, [&] {
    self(instance).model().check_tokens(&token, 1);
    of(sampler).accept(token, generated != 0);
  });
}

void sampler_destroy(strata_instance* /*instance*/, strata_sampler* sampler) { delete &of(sampler); }

strata_status decode(strata_instance* instance, const strata_batch_item* items, uint32_t count,
                     const float** logits, strata_error* error) {
  return guarded(error, [&] { self(instance).slots().decode({items, count}, logits); });
}

uint32_t length(strata_instance* instance, int32_t slot) {
  const Slots* slots = self(instance).bound();
  return slots == nullptr ? 0 : slots->length(slot);
}

strata_status truncate(strata_instance* instance, int32_t slot, uint32_t tokens, strata_error* error) {
  return guarded(error, [&] { self(instance).slots().truncate(slot, tokens); });
}

strata_status clear(strata_instance* instance, int32_t slot, strata_error* error) {
  return guarded(error, [&] { self(instance).slots().clear(slot); });
}

uint64_t block_bytes(strata_instance* instance, uint32_t stage, uint32_t count) {
  const Slots* slots = self(instance).bound();
  return slots == nullptr ? 0 : slots->block_bytes(stage, count);
}

std::span<std::byte> room(void* data, uint64_t bytes) { return {static_cast<std::byte*>(data), bytes}; }
std::span<const std::byte> source(const void* data, uint64_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

strata_status export_block(strata_instance* instance, int32_t slot, uint32_t stage, uint32_t first,
                           uint32_t count, void* to, uint64_t capacity, void* /*stream*/,
                           strata_error* error) {
  return guarded(error,
                 [&] { self(instance).slots().export_block(slot, stage, first, count, room(to, capacity)); });
}

strata_status export_checkpoint(strata_instance* instance, int32_t slot, uint32_t stage, void* to,
                                uint64_t capacity, void* /*stream*/, uint64_t* bytes, strata_error* error) {
  return guarded(error,
                 [&] { *bytes = self(instance).slots().export_checkpoint(slot, stage, room(to, capacity)); });
}

strata_status import_begin(strata_instance* instance, int32_t slot, const int32_t* tokens, uint32_t count,
                           uint64_t* import, strata_error* error) {
  return guarded(error, [&] { *import = self(instance).slots().begin(slot, tokens, count); });
}

strata_status import_block(strata_instance* instance, uint64_t import, uint32_t stage, uint32_t first,
                           uint32_t count, const void* from, uint64_t bytes, void* /*stream*/,
                           strata_error* error) {
  return guarded(error,
                 [&] { self(instance).slots().add_block(import, stage, first, count, source(from, bytes)); });
}

strata_status import_checkpoint(strata_instance* instance, uint64_t import, uint32_t stage, uint32_t position,
                                const void* from, uint64_t bytes, void* /*stream*/, strata_error* error) {
  return guarded(
      error, [&] { self(instance).slots().add_checkpoint(import, stage, position, source(from, bytes)); });
}

strata_status import_commit(strata_instance* instance, uint64_t import, strata_error* error) {
  return guarded(error, [&] { self(instance).slots().commit(import); });
}

void import_abort(strata_instance* instance, uint64_t import) {
  if (self(instance).bound() != nullptr) self(instance).slots().abort(import);
}

strata_plugin header() {
  strata_plugin plugin = {};
  plugin.struct_size = sizeof(strata_model);
  plugin.abi_major = STRATA_ABI_MAJOR;
  plugin.abi_minor = STRATA_ABI_MINOR;
  plugin.kind = STRATA_KIND_MODEL;
  plugin.caps_optional = STRATA_MODEL_CAP_TOKENIZER | STRATA_MODEL_CAP_CHAT | STRATA_MODEL_CAP_SAMPLING;
  plugin.name = "llama";
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
  model.tokenize = tokenize;
  model.detokenize = detokenize;
  model.is_end_of_generation = ends_generation;
  model.chat_template = chat_template;
  model.apply_chat_template = apply_chat_template;
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
  model.chat_format = chat_format;
  model.chat_parse = chat_parse;
  model.sampler_create = sampler_create;
  model.sampler_sample = sampler_sample;
  model.sampler_accept = sampler_accept;
  model.sampler_destroy = sampler_destroy;
  return model;
}

}  // namespace
}  // namespace strata::llama

STRATA_PLUGIN_ENTRY(model_llama) {
  static const strata_model kTable = strata::llama::table();
  return kind == STRATA_KIND_MODEL ? &kTable.plugin : nullptr;
}
