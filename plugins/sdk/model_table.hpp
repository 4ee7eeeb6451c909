// The table of a model plugin made from one class: arguments as C++ has them, answers copied out, and no
// exception beyond it. ModelTable<Plugin> owns each Plugin from create to destroy and asks of it, all failing
// by throwing (plugins/sdk/failure.hpp), and throwing nothing where marked with *:
//
//   explicit Plugin(const strata_host*)
//   void bind(const strata_device*, strata_instance*, int32_t index)
//   void describe(strata_model_info&)
//   void identity(strata_pair_visitor, void* ctx)
//   void files(strata_pair_visitor, void* ctx)
//   std::vector<int32_t> tokenize(std::string_view text, bool add_special, bool parse_special)
//   std::string detokenize(std::span<const int32_t> tokens)
//   bool ends_generation(int32_t token) *
//   std::string chat_template()
//   std::string apply_chat_template(std::span<const ChatMessage>, bool add_generation_prompt)
//   void decode(std::span<const strata_batch_item>, const float** logits)
//   uint32_t length(int32_t slot) *
//   void truncate(int32_t slot, uint32_t tokens)
//   void clear(int32_t slot)
//   uint64_t block_bytes(uint32_t stage, uint32_t count) *
//   void export_block(slot, stage, first, count, std::span<std::byte> to, void* stream)
//   uint64_t export_checkpoint(slot, stage, std::span<std::byte> to, void* stream)
//   uint64_t import_begin(slot, std::span<const int32_t> tokens)
//   void import_block(import, stage, first, count, std::span<const std::byte> from, void* stream)
//   void import_checkpoint(import, stage, position, std::span<const std::byte> from, void* stream)
//   void import_commit(import)
//   void import_abort(import) *
//
// STRATA_MODEL_CAP_CHAT and STRATA_MODEL_CAP_SAMPLING are declared when it has the functions for them:
//
//   void chat_format(std::string_view request, visit)    calls visit(key, value), both std::string_view
//   std::string chat_parse(std::string_view parser, std::string_view text, bool final)
//   using Sampler = ...
//   std::unique_ptr<Sampler> sampler_create(std::string_view params)
//   int32_t sampler_sample(Sampler&, int32_t slot)
//   void sampler_accept(Sampler&, int32_t token, bool generated)
//
// One thread at a time per instance.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/abi/strata_model.h"
#include "plugins/sdk/guard.hpp"

namespace strata::sdk {

struct ChatMessage {
  std::string_view role, content;
};

// Where a function's text goes: what fits is written, the whole length is reported.
struct TextRoom {
  char* text;
  uint64_t capacity;
  uint64_t* length;

  void take(std::string_view from) const {
    if (capacity != 0) std::memcpy(text, from.data(), std::min<uint64_t>(capacity, from.size()));
    *length = from.size();
  }
};

inline std::string_view view(strata_text text) {
  return text.length == 0 ? std::string_view() : std::string_view(text.data, text.length);
}

template <class Plugin>
class ModelTable {
 public:
  using Probe = int32_t (*)(const strata_host*, strata_error*);

  static constexpr bool kChats = requires { &Plugin::chat_parse; };
  static constexpr bool kSamples = requires { typename Plugin::Sampler; };

  // name, version: static
  static strata_model make(const char* name, const char* version, Probe probe) {
    strata_model model = {};
    model.plugin.struct_size = sizeof model;
    model.plugin.abi_major = STRATA_ABI_MAJOR;
    model.plugin.abi_minor = STRATA_ABI_MINOR;
    model.plugin.kind = STRATA_KIND_MODEL;
    model.plugin.caps_optional = STRATA_MODEL_CAP_TOKENIZER;
    model.plugin.name = name;
    model.plugin.version = version;
    model.plugin.probe = probe;
    add_life(model);
    add_text(model);
    add_slots(model);
    add_exports(model);
    add_imports(model);
    if constexpr (kChats) add_chat(model);
    if constexpr (kSamples) add_sampler(model);
    return model;
  }

 private:
  using Self = strata_instance*;

  static Plugin& of(Self self) { return *reinterpret_cast<Plugin*>(self); }
  static std::span<std::byte> room(void* data, uint64_t bytes) {
    return {static_cast<std::byte*>(data), bytes};
  }
  static std::span<const std::byte> source(const void* data, uint64_t bytes) {
    return {static_cast<const std::byte*>(data), bytes};
  }

  static void add_life(strata_model& model) {
    model.plugin.create = [](const strata_host* host, Self* self, strata_error* error) {
      return guard(error, [&] { *self = reinterpret_cast<Self>(new Plugin(host)); });
    };
    model.plugin.destroy = [](Self self) { delete &of(self); };
    model.bind_device = [](Self self, const strata_device* device, Self device_instance, int32_t index,
                           strata_error* error) {
      return guard(error, [&] { of(self).bind(device, device_instance, index); });
    };
    model.info = [](Self self, strata_model_info* out, strata_error* error) {
      return guard(error, [&] {
        if (out->struct_size < sizeof *out)  // there is no older version of it
          raise(STRATA_INVALID, "model info of %u bytes is too small", out->struct_size);
        of(self).describe(*out);
      });
    };
    model.identity_fields = [](Self self, strata_pair_visitor visit, void* ctx, strata_error* error) {
      return guard(error, [&] { of(self).identity(visit, ctx); });
    };
    model.files = [](Self self, strata_pair_visitor visit, void* ctx, strata_error* error) {
      return guard(error, [&] { of(self).files(visit, ctx); });
    };
  }

  static void add_text(strata_model& model) {
    model.tokenize = [](Self self, strata_text text, int32_t add_special, int32_t parse_special,
                        int32_t* tokens, uint32_t capacity, uint32_t* count, strata_error* error) {
      return guard(error, [&] {
        if (text.length >= UINT32_MAX) raise(STRATA_INVALID, "text is too long");
        const std::vector<int32_t> all = of(self).tokenize(view(text), add_special != 0, parse_special != 0);
        *count = static_cast<uint32_t>(all.size());
        std::copy_n(all.begin(), std::min(*count, capacity), tokens);
      });
    };
    model.detokenize = [](Self self, const int32_t* tokens, uint32_t count, char* text, uint64_t capacity,
                          uint64_t* length, strata_error* error) {
      return guard(error, [&] {
        TextRoom{text, capacity, length}.take(of(self).detokenize(std::span(tokens, count)));
      });
    };
    model.is_end_of_generation = [](Self self, int32_t token) {
      return of(self).ends_generation(token) ? 1 : 0;
    };
    model.chat_template = [](Self self, char* text, uint64_t capacity, uint64_t* length,
                             strata_error* error) {
      return guard(error, [&] { TextRoom{text, capacity, length}.take(of(self).chat_template()); });
    };
    model.apply_chat_template = [](Self self, const strata_chat_message* messages, uint32_t count,
                                   int32_t add_generation_prompt, char* text, uint64_t capacity,
                                   uint64_t* length, strata_error* error) {
      return guard(error, [&] {
        std::vector<ChatMessage> all;
        for (const strata_chat_message& message : std::span(messages, count))
          all.push_back({view(message.role), view(message.content)});
        TextRoom{text, capacity, length}.take(of(self).apply_chat_template(all, add_generation_prompt != 0));
      });
    };
  }

  static void add_slots(strata_model& model) {
    model.decode = [](Self self, const strata_batch_item* items, uint32_t count, const float** logits,
                      strata_error* error) {
      return guard(error, [&] { of(self).decode(std::span(items, count), logits); });
    };
    model.length = [](Self self, int32_t slot) -> uint32_t { return of(self).length(slot); };
    model.truncate = [](Self self, int32_t slot, uint32_t tokens, strata_error* error) {
      return guard(error, [&] { of(self).truncate(slot, tokens); });
    };
    model.clear = [](Self self, int32_t slot, strata_error* error) {
      return guard(error, [&] { of(self).clear(slot); });
    };
    model.block_bytes = [](Self self, uint32_t stage, uint32_t count) -> uint64_t {
      return of(self).block_bytes(stage, count);
    };
  }

  static void add_exports(strata_model& model) {
    model.export_block = [](Self self, int32_t slot, uint32_t stage, uint32_t first, uint32_t count, void* to,
                            uint64_t capacity, void* stream, strata_error* error) {
      return guard(error,
                   [&] { of(self).export_block(slot, stage, first, count, room(to, capacity), stream); });
    };
    model.export_checkpoint = [](Self self, int32_t slot, uint32_t stage, void* to, uint64_t capacity,
                                 void* stream, uint64_t* bytes, strata_error* error) {
      return guard(error,
                   [&] { *bytes = of(self).export_checkpoint(slot, stage, room(to, capacity), stream); });
    };
  }

  static void add_imports(strata_model& model) {
    model.import_begin = [](Self self, int32_t slot, const int32_t* tokens, uint32_t count, uint64_t* import,
                            strata_error* error) {
      return guard(error, [&] { *import = of(self).import_begin(slot, std::span(tokens, count)); });
    };
    model.import_block = [](Self self, uint64_t import, uint32_t stage, uint32_t first, uint32_t count,
                            const void* from, uint64_t bytes, void* stream, strata_error* error) {
      return guard(error,
                   [&] { of(self).import_block(import, stage, first, count, source(from, bytes), stream); });
    };
    model.import_checkpoint = [](Self self, uint64_t import, uint32_t stage, uint32_t position,
                                 const void* from, uint64_t bytes, void* stream, strata_error* error) {
      return guard(error,
                   [&] { of(self).import_checkpoint(import, stage, position, source(from, bytes), stream); });
    };
    model.import_commit = [](Self self, uint64_t import, strata_error* error) {
      return guard(error, [&] { of(self).import_commit(import); });
    };
    model.import_abort = [](Self self, uint64_t import) { of(self).import_abort(import); };
  }

  static void add_chat(strata_model& model) {
    model.plugin.caps_optional |= STRATA_MODEL_CAP_CHAT;
    model.chat_format = [](Self self, strata_text request, strata_pair_visitor visit, void* ctx,
                           strata_error* error) {
      return guard(error, [&] {
        of(self).chat_format(view(request), [&](std::string_view key, std::string_view value) {
          visit(ctx, {key.data(), key.size()}, {value.data(), value.size()});
        });
      });
    };
    model.chat_parse = [](Self self, strata_text parser, strata_text text, int32_t final, char* json,
                          uint64_t capacity, uint64_t* length, strata_error* error) {
      return guard(error, [&] {
        TextRoom{json, capacity, length}.take(of(self).chat_parse(view(parser), view(text), final != 0));
      });
    };
  }

  static void add_sampler(strata_model& model) {
    using Sampler = typename Plugin::Sampler;
    model.plugin.caps_optional |= STRATA_MODEL_CAP_SAMPLING;
    model.sampler_create = [](Self self, strata_text params, strata_sampler** sampler, strata_error* error) {
      return guard(error, [&] {
        *sampler = reinterpret_cast<strata_sampler*>(of(self).sampler_create(view(params)).release());
      });
    };
    model.sampler_sample = [](Self self, strata_sampler* sampler, int32_t slot, int32_t* token,
                              strata_error* error) {
      return guard(error,
                   [&] { *token = of(self).sampler_sample(*reinterpret_cast<Sampler*>(sampler), slot); });
    };
    model.sampler_accept = [](Self self, strata_sampler* sampler, int32_t token, int32_t generated,
                              strata_error* error) {
      return guard(error, [&] {
        of(self).sampler_accept(*reinterpret_cast<Sampler*>(sampler), token, generated != 0);
      });
    };
    model.sampler_destroy = [](Self /*self*/, strata_sampler* sampler) {
      delete reinterpret_cast<Sampler*>(sampler);
    };
  }
};

}  // namespace strata::sdk
